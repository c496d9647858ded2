package httpgate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"example.com/redlock/fence"
	"example.com/redlock/fence/httpgate"
	"example.com/redlock/fence/internal/gatemodel"
)

func named(name string) func(*http.Request) string {
	return func(*http.Request) string { return name }
}

// store keeps one value: GET reads it, PUT replaces it.
type store struct{ value string }

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.value = string(body)
		return
	}
	_, _ = io.WriteString(w, s.value)
}

func newGate(t *testing.T, name string, o *httpgate.Options) *httpgate.Gate {
	t.Helper()
	g, err := httpgate.New(named(name), o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// local sends requests straight to a handler.
type local struct{ h http.Handler }

func (l local) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	l.h.ServeHTTP(rec, r)
	resp := rec.Result()
	resp.Request = r
	return resp, nil
}

func call(c *http.Client, method, body string) (string, error) {
	r, err := http.NewRequest(method, "http://stock.example/", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err := httpgate.Refused(resp); err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", resp.Status, text)
	}
	return string(text), err
}

// TestB26LateWriteIsRefused: A reads and is paused; B, who has the lock now,
// reads; A's write comes too late, before B's.
func TestB26LateWriteIsRefused(t *testing.T) {
	server := httptest.NewServer(newGate(t, "stock", nil).Handler(&store{value: "10"}))
	defer server.Close()
	base := server.Client()
	get := func(c *http.Client) string {
		resp, err := c.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status, string(text), err)
		}
		return string(text)
	}
	put := func(c *http.Client, v string) (int, error) {
		r, err := http.NewRequest(http.MethodPut, server.URL, strings.NewReader(v))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, errors.Join(httpgate.Refused(resp), resp.Body.Close())
	}

	a, b := httpgate.Open(base, "stock", 5), httpgate.Open(base, "stock", 6)
	if got := get(a); got != "10" {
		t.Fatal(got)
	}
	if got := get(b); got != "10" {
		t.Fatal(got)
	}
	status, err := put(a, "9")
	stale, ok := errors.AsType[*fence.StaleError](err)
	if status != http.StatusPreconditionFailed || !ok || stale.Claim.Token != 5 || stale.Seen.Token != 6 || stale.Resource != "stock" {
		t.Errorf("late write: %d, %v", status, err)
	}
	if status, err := put(b, "7"); status != http.StatusOK || err != nil {
		t.Error(status, err)
	}
	if got := get(b); got != "7" {
		t.Errorf("%s, want 7", got)
	}
}

// TestB26WithoutGateAnUpdateIsLost is what the gate is for: the same story
// without it.
func TestB26WithoutGateAnUpdateIsLost(t *testing.T) {
	c := &http.Client{Transport: local{&store{value: "10"}}}
	for _, step := range []struct{ method, body, want string }{
		{http.MethodGet, "", "10"}, // A reads and is paused
		{http.MethodGet, "", "10"}, // B reads
		{http.MethodPut, "7", ""},  // B sells three
		{http.MethodPut, "9", ""},  // A wakes up and sells one
		{http.MethodGet, "", "9"},  // B's update is lost
	} {
		if got, err := call(c, step.method, step.body); got != step.want || err != nil {
			t.Fatal(step, got, err)
		}
	}
}

func TestAgainstModel(t *testing.T) {
	for seed := range uint64(10) {
		c := &http.Client{Transport: local{newGate(t, "stock", nil).Handler(&store{})}}
		gatemodel.Run(t, seed, 2000, func(claim fence.Claim) (*gatemodel.Opened, error) {
			open := httpgate.Open
			if claim.Shared {
				open = httpgate.OpenShared
			}
			c := open(c, "stock", claim.Token)
			_, err := call(c, http.MethodHead, "")
			o := &gatemodel.Opened{Read: func() (string, error) { return call(c, http.MethodGet, "") }}
			if !claim.Shared {
				o.Write = func(v string) error {
					_, err := call(c, http.MethodPut, v)
					return err
				}
			}
			return o, err
		})
	}
}

func TestRefusals(t *testing.T) {
	var told []int
	o := &httpgate.Options{OnRefuse: func(_ *http.Request, status int, err error) {
		if err == nil {
			t.Error("refused without a reason")
		}
		told = append(told, status)
	}}
	h := newGate(t, "a lock/100%", o).Handler(&store{})
	headers := func(kv ...string) http.Header {
		h := make(http.Header)
		for i := 0; i < len(kv); i += 2 {
			h.Add(kv[i], kv[i+1])
		}
		return h
	}
	const key, token, mode, name = httpgate.KeyHeader, httpgate.FenceHeader, httpgate.ModeHeader, "a%20lock/100%25"
	refused := 0
	for _, test := range []struct {
		method string
		header http.Header
		want   int
	}{
		{"PUT", headers(key, name, token, "6"), 200},
		{"PUT", headers(key, name, token, "6", mode, "exclusive"), 200},
		{"GET", headers(key, name, token, "7", mode, "shared"), 200},
		{"GET", headers(key, name, token, "6", mode, "shared"), 412},
		{"PUT", headers(key, name, token, "7"), 412},
		{"GET", headers(), 428},
		{"GET", headers(key, name), 428},
		{"GET", headers(token, "9"), 428},
		{"GET", headers(key, name, token, "-1"), 400},
		{"GET", headers(key, name, token, "9e1"), 400},
		{"GET", headers(key, name, token, "0"), 400},
		{"GET", headers(key, name, token, "9", token, "1"), 400},
		{"GET", headers(key, name, token, "9", mode, "Shared"), 400},
		{"GET", headers(key, "another", token, "9"), 400},
		{"GET", headers(key, "a%2", token, "9"), 400},
		{"PUT", headers(key, name, token, "9", mode, "shared"), 403},
	} {
		r := httptest.NewRequest(test.method, "/", nil)
		r.Header = test.header
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		if rec.Code != test.want {
			t.Errorf("%s %v: %d %s, want %d", test.method, test.header, rec.Code, rec.Body, test.want)
		}
		if test.want != 200 {
			refused++
		}
	}
	if len(told) != refused {
		t.Errorf("OnRefuse was told of %d of %d", len(told), refused)
	}
}

// through is a RoundTripper that somebody put around another.
type through struct{ http.RoundTripper }

// TestOpenReplacesTheClaim: a client that is opened again sends the new token only,
// and keeps nothing of the old one.
func TestOpenReplacesTheClaim(t *testing.T) {
	var sent http.Header
	base := &http.Client{Transport: local{http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { sent = r.Header })}}
	first := httpgate.OpenShared(base, "x", 5)
	second := httpgate.Open(first, "y", 6)
	wrapped := &http.Client{Transport: through{first.Transport}}
	for what, c := range map[string]*http.Client{"opened again": second, "opened again around a wrapper": httpgate.Open(wrapped, "y", 6)} {
		if _, err := call(c, "GET", ""); err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]string{httpgate.KeyHeader: "y", httpgate.FenceHeader: "6", httpgate.ModeHeader: "exclusive"} {
			if got := sent.Values(key); !slices.Equal(got, []string{want}) {
				t.Errorf("%s: %s is %q", what, key, got)
			}
		}
	}
	plain := &http.Client{Transport: local{&store{}}}
	if !reflect.DeepEqual(httpgate.Open(httpgate.Open(plain, "x", 5), "y", 6), httpgate.Open(plain, "y", 6)) {
		t.Error("claims are stacked")
	}
	if _, err := call(first, "GET", ""); err != nil || sent.Get(httpgate.FenceHeader) != "5" {
		t.Error("the first client has changed:", sent, err)
	}
}

// TestClaimsDoNotPassThroughContexts: a handler in this process that makes a
// request with the context of its own sends the claim of the client that it uses.
func TestClaimsDoNotPassThroughContexts(t *testing.T) {
	var sent http.Header
	inner := &http.Client{Transport: local{http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { sent = r.Header })}}
	outer := &http.Client{Transport: local{http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		again, err := http.NewRequestWithContext(r.Context(), "GET", "http://stock.example/", nil)
		if err != nil {
			t.Error(err)
			return
		}
		resp, err := httpgate.Open(inner, "y", 6).Do(again)
		if err != nil {
			t.Error(err)
			return
		}
		_ = resp.Body.Close()
	})}}
	if _, err := call(httpgate.Open(outer, "x", 5), "GET", ""); err != nil {
		t.Fatal(err)
	}
	if sent.Get(httpgate.KeyHeader) != "y" || sent.Get(httpgate.FenceHeader) != "6" {
		t.Error(sent)
	}
}

// TestRefusedWithoutRequest: there are RoundTrippers, and tests, that do not say
// which request a response is for.
func TestRefusedWithoutRequest(t *testing.T) {
	h := newGate(t, "x", nil).Handler(&store{})
	bare := &http.Client{Transport: noRequest{local{h}}}
	if resp, err := httpgate.Open(bare, "x", 6).Get("http://stock.example/"); err != nil || httpgate.Refused(resp) != nil {
		t.Fatal(resp, err)
	}
	resp, err := httpgate.Open(bare, "x", 5).Get("http://stock.example/")
	if err != nil {
		t.Fatal(err)
	}
	stale, ok := errors.AsType[*fence.StaleError](httpgate.Refused(resp))
	if !ok || stale.Seen.Token != 6 || stale.Claim.Token != 5 || stale.Resource != "x" {
		t.Errorf("the client of Open: %+v", stale)
	}
	resp.Request = nil
	stale, ok = errors.AsType[*fence.StaleError](httpgate.Refused(resp))
	if !ok || stale.Seen.Token != 6 {
		t.Errorf("another: %+v", stale)
	}
}

type noRequest struct{ http.RoundTripper }

func (n noRequest) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := n.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Request = nil
	}
	return resp, err
}

// TestNameIsAskedOnce: what was checked is what is entered.
func TestNameIsAskedOnce(t *testing.T) {
	asked := 0
	g, err := httpgate.New(func(*http.Request) string {
		asked++
		return fmt.Sprint("lock ", asked)
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := call(httpgate.Open(&http.Client{Transport: local{g.Handler(&store{})}}, "lock 1", 5), "GET", ""); err != nil {
		t.Error(err)
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

func TestOptions(t *testing.T) {
	if _, err := httpgate.New(named("x"), &httpgate.Options{MissingStatus: 200}); err == nil {
		t.Error("MissingStatus 200 would let clients believe that it was done")
	}
	if _, err := httpgate.New(nil, nil); err == nil {
		t.Error("a gate that cannot name its resources")
	}
	rec := httptest.NewRecorder()
	newGate(t, "x", &httpgate.Options{MissingStatus: 400}).Handler(&store{}).ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
	if rec.Code != 400 {
		t.Error(rec.Code)
	}
	// A request for which there is no name is not open to all.
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set(httpgate.KeyHeader, "")
	r.Header.Set(httpgate.FenceHeader, "5")
	rec = httptest.NewRecorder()
	newGate(t, "", nil).Handler(&store{}).ServeHTTP(rec, r)
	if rec.Code == 200 {
		t.Error("let through without a name")
	}
}

type brokenStore struct{ err error }

func (b brokenStore) Enter(context.Context, string, fence.Claim) (func(), error) { return nil, b.err }

// TestStoreThatFails: a gate that cannot tell does not let through, and does
// not tell clients why.
func TestStoreThatFails(t *testing.T) {
	h := newGate(t, "x", &httpgate.Options{Store: brokenStore{errors.New("secret host is down")}}).Handler(&store{})
	_, err := call(httpgate.Open(&http.Client{Transport: local{h}}, "x", 5), "GET", "")
	if err == nil || !strings.Contains(err.Error(), "500") || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

// TestNewHolderWaitsForRequestUnderWay: a newer holder is served when the older
// one's request is over, and no request of the older one after that.
func TestNewHolderWaitsForRequestUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		finish := make(chan struct{})
		var served []fence.Token
		h := newGate(t, "x", nil).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			c, ok := httpgate.ClaimOf(r.Context())
			if !ok {
				t.Error("no claim in the context")
			}
			if c.Token == 5 {
				<-finish
			}
			served = append(served, c.Token)
		}))
		serve := func(token fence.Token) <-chan error {
			done := make(chan error, 1)
			go func() {
				_, err := call(httpgate.Open(&http.Client{Transport: local{h}}, "x", token), "PUT", "")
				done <- err
			}()
			synctest.Wait()
			return done
		}
		first := serve(5)
		queued := serve(5)
		second := serve(6)
		if len(second) != 0 {
			t.Error("served beside the older request")
		}
		close(finish)
		if err := <-first; err != nil {
			t.Error(err)
		}
		if err := <-second; err != nil {
			t.Error(err)
		}
		if err := <-queued; !errors.Is(err, fence.ErrStale) {
			t.Error("a request that waited while a newer holder came:", err)
		}
		if fmt.Sprint(served) != "[5 6]" {
			t.Error(served)
		}
	})
}

func TestNamesOfAnyBytes(t *testing.T) {
	var all []byte
	for b := range 256 {
		all = append(all, byte(b))
	}
	name := string(all)
	server := httptest.NewServer(newGate(t, name, nil).Handler(&store{value: "10"}))
	defer server.Close()
	resp, err := httpgate.Open(nil, name, 5).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 {
		t.Error(resp.Status)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}
