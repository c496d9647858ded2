package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock"
	"example.com/redlock/locktest"
)

// Close's ctx does not bound it.
func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		for i := range 2000 {
			acquire(t, lk, fmt.Sprint("n", i), nil)
		}
		for _, n := range s.Nodes {
			n.Freeze()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := lk.Close(ctx)
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("Close with a ctx of 1 s took %v", took)
		}
		_ = err
		for _, n := range s.Nodes {
			n.Thaw()
		}
	})
}

// TryAcquire with a flapping node never ends.
func TestTryAcquireFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, &redlock.Options{ConnectWait: time.Second})
		// split for ever: two nodes with different holders
		acquire(t, lk, "warm", nil)
		id := func(c string) string {
			r := ""
			for range 32 {
				r += c
			}
			return r + ":5"
		}
		s.Nodes[0].Set("redlock:{x}", id("a"), time.Hour)
		s.Nodes[1].Set("redlock:{x}", id("b"), time.Hour)
		stop := make(chan struct{})
		go func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(300 * time.Millisecond):
				}
				s.Nodes[1].Down(i%2 == 0)
				s.Nodes[2].Down(i%2 == 0)
				if i%2 == 0 {
					s.Nodes[1].Set("redlock:{x}", id("b"), time.Hour)
				}
				s.Nodes[2].Set("redlock:{x}", id("c"), time.Hour)
			}
		}()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := lk.TryAcquire(ctx, "x", &redlock.AcquireOptions{TTL: 2 * time.Second})
		took := time.Since(start)
		close(stop)
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("TryAcquire took %v: %v", took, err)
		} else {
			t.Logf("%v %v", took, err)
		}
		for _, n := range s.Nodes {
			n.Down(false)
		}
		time.Sleep(time.Second)
	})
}
