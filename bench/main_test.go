package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.com/redlock/bench/internal/load"
	"example.com/redlock/testkit/redisserver"
)

func TestMain(m *testing.M) {
	if load.IsWorker() { // load.Run starts this test binary again
		os.Exit(load.Work())
	}
	goleak.VerifyTestMain(m)
}

// measure runs the command with -json and a short time, and returns its line.
func measure(t *testing.T, args ...string) load.Result {
	t.Helper()
	line := output(t, args...)
	var r load.Result
	if err := json.Unmarshal(line, &r); err != nil {
		t.Fatalf("%v in %s", err, line)
	}
	if r.Errors > 0 {
		t.Errorf("%d errors: %s", r.Errors, line)
	}
	return r
}

func output(t *testing.T, args ...string) []byte {
	t.Helper()
	requireServer(t)
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), append([]string{"-json", "-n", "3", "-d", "300ms"}, args...), &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	return stdout.Bytes()
}

func requireServer(t *testing.T) {
	t.Helper()
	if _, err := redisserver.Find(); err != nil {
		t.Fatal(err, "(`make test` installs redis-server)")
	}
}

// TestALockThatLocksNothingIsSeen: a benchmark that cannot see it would call
// every lock correct.
func TestALockThatLocksNothingIsSeen(t *testing.T) {
	for _, load := range [][]string{
		{"-c", "4", "-procs", "1"},
		{"-c", "1", "-procs", "2"}, // no two holders in one process
	} {
		r := measure(t, append(load, "-peer", "naive", "-workload", "hot", "-hold", "1ms")...)
		if r.Overlaps == 0 {
			t.Errorf("%v: no overlap in %.0f cycles a second", load, r.CyclesPerS)
		}
	}
}

func TestLocksDoNotOverlapOnAContendedName(t *testing.T) {
	for _, peer := range []string{"redlock", "redsync", "redsync-failfast", "raw"} {
		t.Run(peer, func(t *testing.T) {
			r := measure(t, "-peer", peer, "-workload", "hot", "-c", "2", "-procs", "2")
			if r.Overlaps > 0 || r.CyclesPerS == 0 {
				t.Errorf("%d overlaps at %.0f cycles a second", r.Overlaps, r.CyclesPerS)
			}
			if r.HoldUs != 1000 {
				t.Errorf("held for %d µs; 1 ms is the default here", r.HoldUs)
			}
		})
	}
}

func TestEveryPeerRunsOnOwnNames(t *testing.T) {
	for _, peer := range []string{"redlock", "redsync", "redsync-failfast", "raw"} {
		t.Run(peer, func(t *testing.T) {
			r := measure(t, "-peer", peer, "-c", "3", "-procs", "2")
			if r.Peer != peer || r.Workload != "solo" || r.Nodes != 3 || r.C != 3 || r.Procs != 2 || r.HoldUs != 0 {
				t.Errorf("%+v is another run", r)
			}
			if r.WorkerMin == 0 || r.LockP50Us <= 0 || r.LockP50Us > r.LockP99Us || r.LockP99Us > r.LockMaxUs ||
				r.UnlockP50Us <= 0 || r.UnlockP50Us > r.UnlockP99Us {
				t.Errorf("%+v makes no sense", r)
			}
		})
	}
}

func TestTheLineHasTheAgreedFields(t *testing.T) {
	line := output(t, "-peer", "naive")
	if bytes.Count(line, []byte("\n")) != 1 {
		t.Errorf("not one line: %q", line)
	}
	var got map[string]any
	if err := json.Unmarshal(line, &got); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"peer", "workload", "nodes", "c", "procs", "hold_us", "cycles_per_s", "lock_p50_us", "lock_p99_us",
		"lock_max_us", "unlock_p50_us", "unlock_p99_us", "worker_min", "worker_max", "errors", "overlaps",
	}
	for _, field := range want {
		if _, ok := got[field]; !ok {
			t.Errorf("no field %s", field)
		}
		delete(got, field)
	}
	if len(got) > 0 {
		t.Errorf("fields that are not agreed: %v", got)
	}
}

func TestABatchCountsEveryLock(t *testing.T) {
	r := measure(t, "-peer", "raw", "-batch", "50")
	if r.WorkerMin == 0 || r.WorkerMin%50 != 0 {
		t.Errorf("%d locks in batches of 50", r.WorkerMin)
	}
}

func TestFrozenServersStandStill(t *testing.T) {
	r := measure(t, "-peer", "redlock", "-freeze", "1", "-c", "2")
	if r.WorkerMin == 0 {
		t.Error("nothing was locked with one of three frozen")
	}
	var stdout, stderr bytes.Buffer
	args := []string{"-peer", "redsync", "-n", "3", "-freeze", "2", "-d", "300ms", "-json"}
	if code := run(t.Context(), args, &stdout, &stderr); code != 0 {
		t.Fatal(stderr.String())
	}
	if !strings.Contains(stdout.String(), `"cycles_per_s":0,`) {
		t.Errorf("locked without a quorum: %s", stdout.String())
	}
}

func TestLatencyIsThatOfARoundTrip(t *testing.T) {
	const added = 20 * time.Millisecond
	r := measure(t, "-peer", "raw", "-latency", added.String())
	if r.LockP50Us < float64(added.Microseconds()) {
		t.Errorf("lock p50 %v µs with %v added", r.LockP50Us, added)
	}
}

func TestServersOfOthersAreUsedAndKept(t *testing.T) {
	servers := redisserver.StartN(t, 3)
	urls := []string{servers[0].URL(), servers[1].Addr(), servers[2].URL()} // with scheme and without
	for _, peer := range []string{"redlock", "redsync", "raw"} {
		r := measure(t, "-peer", peer, "-nodes", strings.Join(urls, ","))
		if r.Nodes != 3 || r.WorkerMin == 0 {
			t.Errorf("%s: %+v", peer, r)
		}
	}
	for _, s := range servers {
		if !s.Alive() {
			t.Errorf("%s is gone", s.Addr())
		}
	}
}

// TestErrorsOfAPeerAreCounted uses a server that can lock and not unlock.
func TestErrorsOfAPeerAreCounted(t *testing.T) {
	server := redisserver.StartN(t, 1, "--rename-command", "EVALSHA", "")[0]
	for _, peer := range []string{"redsync", "raw"} {
		var stdout, stderr bytes.Buffer
		args := []string{"-json", "-peer", peer, "-nodes", server.URL(), "-d", "300ms"}
		if code := run(t.Context(), args, &stdout, &stderr); code != 0 {
			t.Fatal(stderr.String())
		}
		var r load.Result
		if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if r.Errors == 0 || r.WorkerMax > 0 || !strings.Contains(stderr.String(), "errors, the first: ") {
			t.Errorf("%s: %d errors and %d cycles; standard error: %s", peer, r.Errors, r.WorkerMax, stderr.String())
		}
	}
}

func TestWhatCannotBeRunIsSaid(t *testing.T) {
	for args, says := range map[string]string{
		"-peer etcd":             "not built yet",
		"-peer zookeeper":        "not built yet",
		"-peer redislock":        "not built yet",
		"-peer rueidislock":      "not built yet",
		"-peer chubby":           "there are naive, raw, redlock",
		"-workload warm":         "there are solo and hot",
		"-batch 2":               "only raw",
		"-peer raw -c 0":         "at least 1",
		"-freeze 6":              "cannot freeze 6 of 5",
		"-freeze 1 -nodes x:1":   "servers of its own",
		"-latency 1s -nodes u:/": "latency needs",
		"-d -1s":                 "not positive",
		"solo":                   "unexpected argument",
		"-rounds 0":              "0 rounds",
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &stdout, &stderr); code != exitUsage {
			t.Errorf("%s: exit code %d", args, code)
		}
		if !strings.Contains(stderr.String(), says) || stdout.Len() > 0 {
			t.Errorf("%s: said %q and %q, want %q", args, stdout.String(), stderr.String(), says)
		}
	}
}

// TestNothingIsLeftBehind: a server that was not stopped leaves its folder.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	measure(t, "-peer", "redlock", "-procs", "2")
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
