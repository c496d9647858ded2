package backendtest

import (
	"context"
	"errors"
	"strings"
	"time"

	"example.com/redlock/backend"
)

// resume runs b.Resume and watches Lost.
func (f *fixture) resume(b backend.Backend, handle string) (*holder, error) {
	return f.watch(f.request(f.lasting()), func(r backend.Request) (backend.Lease, error) {
		return b.Resume(f.Context(), handle, r)
	})
}

func resumeOnce(f *fixture) {
	a, b := f.client(), f.client()
	h := f.must(a, f.request(f.lasting()))
	handle, err := h.Handle()
	if err != nil {
		f.Fatalf("Handle: %v", err)
	}
	if name, err := backend.HandleName(handle); err != nil || name != f.name {
		f.Errorf("HandleName of the handle is %q, %v, want %q", name, err, f.name)
	}
	if err := h.Extend(f.Context()); err == nil {
		f.Error("Extend after Handle returned nil")
	}
	f.wantHeld(b)
	resumed, err := f.resume(b, handle)
	if err != nil {
		f.Fatalf("Resume: %v", err)
	}
	if resumed.Token() <= h.Token() {
		f.Errorf("the resumed lease has token %d, the one before had %d", resumed.Token(), h.Token())
	}
	for _, client := range []backend.Backend{a, b} {
		_, err := f.resume(client, handle)
		f.wantErr("the second Resume", err, backend.ErrLost)
	}
	f.wantHeld(a)
	f.mustExtend("Extend of the resumed lease", resumed)
	f.mustRelease(resumed)
	f.mustRelease(f.must(a, f.try()))
	f.wantQuiet(h)
}

// releaseHandle gives back moved leases, one of them broken meanwhile, and leaves
// their successors alone.
func releaseHandle(f *fixture) {
	a, b := f.client(), f.client()
	for _, broken := range []bool{false, true} {
		handle, err := f.must(a, f.request(f.lasting())).Handle()
		if err != nil {
			f.Fatalf("Handle: %v", err)
		}
		if broken {
			if err := b.Break(f.Context(), f.name, false); err != nil {
				f.Fatalf("Break: %v", err)
			}
		}
		f.wantHeld(b)
		if err := b.ReleaseHandle(f.Context(), handle); err != nil {
			f.Errorf("ReleaseHandle, broken %v: %v", broken, err)
		}
		successor := f.must(a, f.try())
		f.wantErr("the second ReleaseHandle", b.ReleaseHandle(f.Context(), handle), backend.ErrLost)
		f.wantHeld(b)
		f.mustRelease(successor)
	}
	f.wantErr("ReleaseHandle of a string that is no handle",
		a.ReleaseHandle(f.Context(), "no handle"), backend.ErrBadOption)
}

func resumeTooLate(f *fixture) {
	a, b := f.client(), f.client()
	h := f.must(a, f.request(f.fleeting()))
	handle, err := h.Handle()
	if err != nil {
		f.Fatalf("Handle: %v", err)
	}
	// Renewal has ended, so the rival gets the name without anybody's help.
	rival := f.must(b, f.request(f.lasting()))
	_, err = f.resume(a, handle)
	f.wantErr("Resume while a successor holds the name", err, backend.ErrLost)
	f.wantHeld(a)
	f.mustRelease(rival)
	_, err = f.resume(a, handle)
	f.wantErr("Resume of a lease that has ended", err, backend.ErrLost)
	f.mustRelease(f.must(b, f.try()))
	f.wantQuiet(h)
}

func badHandle(f *fixture) {
	a := f.client()
	for _, handle := range []string{"", "no handle", "rl1.", "rl1.AAAA"} {
		_, err := f.resume(a, handle)
		f.wantErr("Resume of a string that is no handle", err, backend.ErrBadOption)
	}
}

// anyBytesInNames holds names side by side that a careless encoding takes for
// the same, or cuts short, or reads as something else.
func anyBytesInNames(f *fixture) {
	a, b := f.client(), f.client()
	base := f.name
	suffixes := []string{
		"", " ", "\n", "\r\n", "\x00", "\x00\x00", "\xff\xfe", "\xc3\x28", "é", "e\u0301",
		"x", "X", "/", "//", "/x", "_x", ":x", "%2Fx", ".", "..", "*", "?", "{", "}", "{x}", "{x}y",
		"|", "~shared", "'", `"`, `\`, "$(x)", strings.Repeat("n", 512-len(base)),
	}
	var held []*holder
	for _, s := range suffixes {
		f.name = base + s
		if err := a.CheckName(f.name); err != nil {
			f.Errorf("CheckName(%q): %v", f.name, err)
			continue
		}
		held = append(held, f.must(a, f.try()))
		f.wantHeld(b)
	}
	for _, h := range held {
		f.mustRelease(h)
	}
}

func badArguments(f *fixture) {
	a := f.client()
	if f.limits.MinTTL <= 0 || f.limits.MaxTTL < f.limits.MinTTL {
		f.Fatalf("Limits are %+v", f.limits)
	}
	for _, name := range []string{"", strings.Repeat("n", 513)} {
		f.wantErr("CheckName of a bad name", a.CheckName(name), backend.ErrBadOption)
		r := f.try()
		r.Name = name
		_, err := f.acquire(f.Context(), a, r)
		f.wantErr("Acquire of a bad name", err, backend.ErrBadOption)
	}
	for _, ttl := range []time.Duration{
		-time.Second, 0, f.limits.MinTTL - time.Millisecond, f.limits.MaxTTL + time.Millisecond,
		f.limits.MinTTL + time.Microsecond,
	} {
		r := f.try()
		r.TTL, r.MinValidity = ttl, 0
		_, err := f.acquire(f.Context(), a, r)
		f.wantErr("Acquire with TTL "+ttl.String(), err, backend.ErrBadOption)
	}
	f.mustRelease(f.must(a, f.try()))
}

func sharedOrUnsupported(f *fixture) {
	a, b := f.client(), f.client()
	r := f.try()
	r.Mode = backend.Shared
	first, err := f.acquire(f.Context(), a, r)
	if errors.Is(err, errors.ErrUnsupported) {
		return
	}
	if err != nil {
		f.Fatalf("Acquire, shared: %v, want a lease or errors.ErrUnsupported", err)
	}
	second := f.must(b, r)
	f.wantHeld(a)
	f.mustRelease(first)
	f.wantHeld(a)
	f.mustRelease(second)
	f.mustRelease(f.must(a, f.try()))
}

func breakRefusesExtension(f *fixture) {
	a, b := f.client(), f.client()
	h := f.must(a, f.request(f.steady()))
	if err := b.Break(f.Context(), f.name, false); err != nil {
		f.Fatalf("Break: %v", err)
	}
	if err := h.Extend(f.Context()); err == nil {
		f.Error("Extend of a broken lease returned nil")
	}
	f.endsAlone(h, b)
}

func breakNowFrees(f *fixture) {
	a, b := f.client(), f.client()
	h := f.must(a, f.request(f.steady()))
	if err := b.Break(f.Context(), f.name, true); err != nil {
		f.Fatalf("Break: %v", err)
	}
	rival := f.must(b, f.try())
	if rival.Token() <= h.Token() {
		f.Errorf("token %d came after %d", rival.Token(), h.Token())
	}
	f.wantLost(h)
	f.wantErr("Release of a broken lease", h.Release(f.Context()), backend.ErrLost)
	f.wantHeld(a)
	f.mustRelease(rival)
}

func inspect(f *fixture) {
	a, b := f.client(), f.client()
	look := func() backend.Status {
		f.Helper()
		s, err := b.Inspect(f.Context(), f.name)
		if err != nil {
			f.Fatalf("Inspect: %v", err)
		}
		if s.Name != f.name {
			f.Errorf("Inspect of %q says it is about %q", f.name, s.Name)
		}
		return s
	}
	if s := look(); s.Held {
		f.Errorf("Inspect of a free name: %+v", s)
	}
	r := f.request(f.lasting())
	r.Owner = "somebody on host-7"
	h := f.must(a, r)
	s := look()
	if !s.Held || s.Foreign || s.Broken || s.Owner != r.Owner {
		f.Errorf("Inspect of a name held by %q: %+v", r.Owner, s)
	}
	if s.Token != 0 && s.Token != h.Token() {
		f.Errorf("Inspect says token %d, the holder's is %d", s.Token, h.Token())
	}
	if s.Remaining <= 0 || s.Remaining > r.TTL {
		f.Errorf("Inspect says %v remain of a TTL of %v", s.Remaining, r.TTL)
	}
	if len(s.Line) != 0 || s.Waiting != 0 {
		f.Errorf("Inspect of a name that nobody waits for: %+v", s)
	}
	r = f.request(f.lasting())
	r.Owner = "who waits"
	w := f.wait(f.Context(), f.client(), r)
	f.eventually("Inspect tells of who waits", func() bool { return len(look().Line) == 1 })
	if s := look(); s.Waiting != 1 || s.Line[0].Owner != r.Owner || s.Line[0].Mode != backend.Exclusive {
		f.Errorf("Inspect says of the line: %d, %+v", s.Waiting, s.Line)
	}
	f.mustRelease(h)
	next := w.result(f)
	if next.err != nil {
		f.Fatalf("who waited: %v", next.err)
	}
	f.mustRelease(next.h)
	if s := look(); s.Held || len(s.Line) != 0 {
		f.Errorf("Inspect after Release: %+v", s)
	}
}

// list holds names that a careless glob takes for each other.
func list(f *fixture) {
	a, b := f.client(), f.client()
	base := f.name
	held := make(map[string]*holder)
	for _, suffix := range []string{"", "*", "[x]", "x", "x/y", "\xff\x00\n", `\`} {
		f.name = base + suffix
		r := f.try()
		r.Owner = "owner of " + suffix
		held[f.name] = f.must(a, r)
	}
	f.wantList(b, base+"*", held)
	for pattern, suffixes := range map[string][]string{
		"": {""}, `\*`: {"*"}, "x*": {"x", "x/y"}, "x?y": {"x/y"}, "[x-z]": {"x"}, "[^x]": {"*", `\`}, `\[x\]`: {"[x]"}, `\\`: {`\`},
		"\xff*": {"\xff\x00\n"}, "nothing": nil,
	} {
		want := make(map[string]*holder)
		for _, suffix := range suffixes {
			want[base+suffix] = held[base+suffix]
		}
		f.wantList(b, base+pattern, want)
	}
	for _, pattern := range []string{"[", "[a-]", `\`, "[a-\xff]", strings.Repeat("?", 1025)} {
		_, err := b.List(f.Context(), base+pattern)
		f.wantErr("List of a pattern that cannot be read", err, backend.ErrBadOption)
	}
	for _, h := range held {
		f.mustRelease(h)
	}
	// A release goes on in the background once it is decided.
	f.eventually("the list is empty", func() bool {
		got, err := b.List(f.Context(), base+"*")
		return err == nil && len(got) == 0
	})
}

// wantList demands that the names that match pattern are those of want.
func (f *fixture) wantList(b backend.Backend, pattern string, want map[string]*holder) {
	f.Helper()
	got, err := b.List(f.Context(), pattern)
	if err != nil {
		f.Fatalf("List(%q): %v", pattern, err)
	}
	last := ""
	for _, s := range got {
		h, ok := want[s.Name]
		if !ok || s.Name <= last || !s.Held || s.Partial || s.Foreign || s.Broken || s.NoTTL {
			f.Errorf("List(%q) has, behind %q, %+v", pattern, last, s)
			continue
		}
		last = s.Name
		if s.Owner == "" || s.Remaining <= 0 || s.Token != 0 && s.Token != h.Token() {
			f.Errorf("List(%q) says of a lease with token %d: %+v", pattern, h.Token(), s)
		}
	}
	if len(got) != len(want) {
		f.Errorf("List(%q) has %d names, want %d: %+v", pattern, len(got), len(want), got)
	}
}

// nodes asks who the nodes are. To ask, and to declare nodes that are known
// already, must not touch what they keep.
func nodes(f *fixture) {
	a, b := f.client(), f.client()
	h := f.must(a, f.request(f.lasting()))
	for _, states := range [][]backend.NodeState{b.Nodes(f.Context()), b.Init(f.Context(), backend.InitOptions{})} {
		seen := make(map[string]bool)
		voting := 0
		for _, s := range states {
			if s.Node == "" || s.Standing == "" || seen[s.Node] {
				f.Errorf("Nodes has a node without a name or a standing, or twice: %+v", states)
			}
			seen[s.Node] = true
			if s.Err == nil {
				voting++
			}
		}
		if voting == 0 {
			f.Errorf("Nodes says that no node votes: %+v", states)
		}
	}
	f.wantHeld(b)
	f.wantQuiet(h)
	f.mustRelease(h)
}

// doctor examines a service that is well.
func doctor(f *fixture) {
	a, b := f.client(), f.client()
	h := f.must(a, f.request(f.lasting()))
	findings, err := b.Doctor(f.Context())
	if err != nil || len(findings) == 0 {
		f.Errorf("Doctor: %d findings, %v", len(findings), err)
	}
	seen := make(map[[2]string]bool)
	for _, fd := range findings {
		about := [2]string{fd.Node, fd.Check}
		well := fd.Severity == backend.SeverityOK || fd.Severity == backend.SeverityHint
		if fd.Check == "" || fd.Text == "" || !well || fd.Err != nil || seen[about] {
			f.Errorf("Doctor has, of a service that is well, or twice: %+v", fd)
		}
		seen[about] = true
	}
	f.wantHeld(b)
	f.wantQuiet(h)
	f.mustRelease(h)
}

func closeEnds(f *fixture) {
	a, b := f.client(), f.client()
	f.must(a, f.request(f.steady()))
	ctx, cancel := context.WithTimeout(f.Context(), patience)
	defer cancel()
	if err := a.Close(ctx); err != nil {
		f.Fatalf("Close: %v", err)
	}
	begin := time.Now()
	_, err := f.acquire(f.Context(), a, f.try())
	f.wantErr("Acquire after Close", err, backend.ErrClosed)
	if took := time.Since(begin); took > promptly {
		f.Errorf("Acquire after Close returned after %v", took)
	}
	// Nobody renews what was not released.
	f.mustRelease(f.must(b, f.request(f.lasting())))
}
