package difftest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/redlock/internal/node"
	"example.com/redlock/redisnode"
	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/faultproxy"
)

func inspect() node.Op { return node.Op{Kind: node.Inspect, Name: "x"} }

func TestOneSocketPerNode(t *testing.T) {
	f := setUp(t)
	var callers sync.WaitGroup
	for range 100 {
		callers.Go(func() {
			for range 10 {
				f.answers(inspect())
			}
		})
	}
	callers.Wait()
	f.hello()
	if n := strings.Count(f.do("CLIENT", "LIST"), "cmd=evalsha"); n != 1 {
		t.Errorf("%d connections:\n%s", n, f.do("CLIENT", "LIST"))
	}
}

// wantRecovery checks that calls succeed again soon.
func wantRecovery(f *fixture) {
	f.t.Helper()
	begin := time.Now()
	await.True(f.t, 2500*time.Millisecond, "the node answers again", func() bool {
		return try(f, f.node, 100*time.Millisecond, inspect()) == nil
	})
	f.t.Logf("recovered after %v", time.Since(begin))
}

// wantSilence checks for d that calls end when their ctx does.
func wantSilence(f *fixture, d time.Duration) {
	f.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		begin := time.Now()
		err := try(f, f.node, 50*time.Millisecond, inspect())
		if took := time.Since(begin); err == nil || took > 500*time.Millisecond {
			f.t.Fatalf("got %v after %v", err, took)
		}
	}
}

func TestFrozenServer(t *testing.T) {
	for _, d := range []time.Duration{200 * time.Millisecond, 4 * time.Second} {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			f.answers(inspect()) // loads the script
			if err := f.server.Freeze(); err != nil {
				t.Fatal(err)
			}
			err := try(f, f.node, 50*time.Millisecond, acquire(idA, 1900))
			wantCallError(t, err, true, false)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			wantSilence(f, d)
			if err := f.server.Thaw(); err != nil {
				t.Fatal(err)
			}
			wantRecovery(f)
			// The call of the caller who gave up was carried out all the same.
			if d < time.Second {
				f.want(node.Held, acquire(idB, 100))
			}
		})
	}
}

func TestBlackHole(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	proxy := f.throughProxy()
	for _, mode := range []faultproxy.Mode{faultproxy.Hold, faultproxy.Swallow} {
		proxy.SetMode(faultproxy.ToServer, mode)
		proxy.SetMode(faultproxy.ToClient, mode)
		wantSilence(f, 3*time.Second)
		proxy.SetMode(faultproxy.ToServer, faultproxy.Pass)
		proxy.SetMode(faultproxy.ToClient, faultproxy.Pass)
		wantRecovery(f)
	}
}

// throughProxy puts a proxy between the node and its server.
func (f *fixture) throughProxy() *faultproxy.Proxy {
	f.t.Helper()
	proxy, err := faultproxy.Start(f.server.Addr())
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { proxy.Close() })
	f.node = f.open(proxy.URL())
	f.answers(inspect())
	return proxy
}

func TestCutConnectionMayHaveRun(t *testing.T) {
	f := setUp(t)
	proxy := f.throughProxy()
	proxy.CutAfter(faultproxy.ToClient, 0)
	wantCallError(t, try(f, f.node, time.Second, acquire(idA, 1000)), true, false)
	proxy.CutAfter(faultproxy.ToClient, -1)
	// B06: nothing sent it again, and it is the caller's own when asked again.
	f.want(node.Granted, acquire(idA, 1000))
}

func TestB59DeadServerHoldsNobodyUp(t *testing.T) {
	f := setUp(t)
	callAll := func(wait time.Duration) (slowest time.Duration) {
		var callers sync.WaitGroup
		times := make(chan time.Duration, 200)
		for range cap(times) {
			callers.Go(func() {
				begin := time.Now()
				wantCallError(t, try(f, f.node, wait, inspect()), false, false)
				times <- time.Since(begin)
			})
		}
		callers.Wait()
		close(times)
		for d := range times {
			slowest = max(slowest, d)
		}
		return slowest
	}
	f.server.Kill()
	await.True(t, time.Second, "the connection's end is noticed", func() bool {
		var call *node.CallError
		return errors.As(try(f, f.node, time.Second, inspect()), &call) && !call.Sent
	})
	if d := callAll(5 * time.Second); d > 500*time.Millisecond {
		t.Errorf("a refused connection took %v", d)
	}
	// A server that takes connections and says nothing.
	if err := f.server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.server.Freeze()
	f.node = f.open(f.server.URL())
	if d := callAll(100 * time.Millisecond); d > 500*time.Millisecond {
		t.Errorf("a silent server took %v", d)
	}
	f.server.Thaw()
	wantRecovery(f)
}

func TestDownAtTheStart(t *testing.T) {
	server := startServer(t)
	server.Kill()
	f := &fixture{t: t, keys: node.Keyspace{Namespace: "redlock"}}
	f.node = f.open(server.URL())
	begin := time.Now()
	wantCallError(t, try(f, f.node, 5*time.Second, inspect()), false, false)
	if took := time.Since(begin); took > 500*time.Millisecond {
		t.Errorf("took %v", took)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantRecovery(f)
}

func TestUnansweredCommandsDoNotFillTheRing(t *testing.T) {
	f := setUp(t)
	f.answers(inspect())
	f.server.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begin := time.Now()
	var callers sync.WaitGroup
	for range 3000 {
		callers.Go(func() { f.node.Call(ctx, f.call(inspect())) })
	}
	callers.Wait()
	if took := time.Since(begin); took > 900*time.Millisecond {
		t.Errorf("calls with 300 ms returned after %v", took)
	}
	f.server.Thaw()
	wantRecovery(f)
}

func TestCloseEndsCallsUnderWay(t *testing.T) {
	f := setUp(t)
	proxy := f.throughProxy()
	proxy.SetMode(faultproxy.ToClient, faultproxy.Hold)
	ended := make(chan error, 1)
	begin := func(n *redisnode.Node) {
		commands := proxy.Stats().Commands
		go func() {
			_, err := n.Call(context.Background(), f.call(inspect()))
			ended <- err
		}()
		await.True(t, time.Second, "a command is under way", func() bool { return proxy.Stats().Commands > commands })
	}
	begin(f.node)
	start := time.Now()
	f.node.Close()
	wantCallError(t, <-ended, true, false)

	// Also while HELLO is unanswered.
	n := f.open(proxy.URL())
	begin(n)
	n.Close()
	wantCallError(t, <-ended, false, false)
	if took := time.Since(start); took > 500*time.Millisecond {
		t.Errorf("took %v", took)
	}
}

// The network lost a connection and told nobody; new ones it carries.
func TestConnectionLostInTheNetwork(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	lose := forward(t, l, f.server.Addr())
	f.node = f.open(l.Addr().String())
	f.answers(inspect())
	lose()
	begin := time.Now()
	await.True(t, 5*time.Second, "the node is reached over another connection", func() bool {
		return try(f, f.node, 100*time.Millisecond, inspect()) == nil
	})
	if took := time.Since(begin); took > 3500*time.Millisecond {
		t.Errorf("took %v", took)
	}
}

func TestUnixSocket(t *testing.T) {
	f := setUp(t)
	path := filepath.Join(t.TempDir(), "s@x")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	forward(t, l, f.server.Addr())
	n := f.open("unix://" + path)
	if err := try(f, n, time.Second, inspect()); err != nil {
		t.Error(err)
	}
	if n.Name() != path+"/0" {
		t.Error(n.Name())
	}
}

// forward carries connections from l to addr. What is sent over those that
// exist when lose is called is lost.
func forward(t *testing.T, l net.Listener, addr string) (lose func()) {
	var forwarding sync.WaitGroup
	t.Cleanup(forwarding.Wait)
	t.Cleanup(func() { l.Close() })
	var epoch atomic.Int64
	forwarding.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				client.Close()
				return
			}
			now := epoch.Load()
			lossy := writerFunc(func(p []byte) (int, error) {
				if epoch.Load() != now {
					return len(p), nil
				}
				return server.Write(p)
			})
			forwarding.Go(func() { io.Copy(lossy, client); server.Close() })
			forwarding.Go(func() { io.Copy(client, server); client.Close() })
		}
	})
	return func() { epoch.Add(1) }
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	roots := writeCertificate(t, dir)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().String()[len("127.0.0.1:"):]
	l.Close()
	startServer(t, "--tls-port", port, "--tls-cert-file", filepath.Join(dir, "cert"), "--tls-key-file", filepath.Join(dir, "key"),
		"--tls-ca-cert-file", filepath.Join(dir, "cert"), "--tls-auth-clients", "no")
	f := &fixture{t: t, keys: node.Keyspace{Namespace: "redlock"}}

	n, err := redisnode.Open("rediss://127.0.0.1:"+port, &redisnode.Options{TLS: &tls.Config{RootCAs: roots}})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if err := try(f, n, 2*time.Second, inspect()); err != nil {
		t.Error(err)
	}
	// Without the root it must not be trusted (F39), and the error is no silence.
	err = try(f, f.open("rediss://127.0.0.1:"+port), 2*time.Second, inspect())
	wantCallError(t, err, false, false)
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("%v does not say why", err)
	}
}

func writeCertificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: cert}, "key": {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(cert)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return roots
}

// BenchmarkCall measures acquire and release of batches, each in one call.
func BenchmarkCall(b *testing.B) {
	for _, size := range []int{1, 64} {
		b.Run(map[int]string{1: "batch1", 64: "batch64"}[size], func(b *testing.B) {
			f := setUp(b)
			var acquires, releases []node.Op
			for i := range size {
				name := string(rune('a'+i%26)) + string(rune('a'+i/26))
				acquires = append(acquires, node.Op{Kind: node.Acquire, Name: name, ID: idA, TTL: 1000, Proposal: uint64(time.Now().UnixMicro())})
				releases = append(releases, node.Op{Kind: node.Release, Name: name, ID: idA})
			}
			for b.Loop() {
				if a := f.answers(acquires...); a[0].Code != node.Granted {
					b.Fatal(a[0])
				}
				f.answers(releases...)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*2), "µs/call")
		})
	}
}
