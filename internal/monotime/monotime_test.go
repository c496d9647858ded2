package monotime

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestTimeAsleepCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asleep := 7 * time.Hour // since the machine started
		c := NewAsleep(func() time.Duration { return asleep })
		start := c.Now()
		if start == 0 {
			t.Error("a clock shows zero, which means never")
		}
		time.Sleep(time.Second)
		if got := c.Now().Sub(start); got != time.Second {
			t.Errorf("awake for 1 s: %v", got)
		}
		asleep += 50 * time.Millisecond // noise of reading two clocks
		if got := c.Check(); got != 0 {
			t.Errorf("noise counts as %v asleep", got)
		}
		asleep += time.Hour
		if got := c.Check(); got != time.Hour+50*time.Millisecond {
			t.Errorf("asleep for an hour: %v", got)
		}
		if got := c.Check(); got != 0 {
			t.Errorf("the same hour counts twice: %v", got)
		}
		if got := c.Now().Sub(start); got != time.Hour+1050*time.Millisecond {
			t.Errorf("a second awake and an hour asleep: %v", got)
		}
	})
}

func TestSkippedTimeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewAsleep(func() time.Duration { return 0 })
		end := c.Now().Add(time.Minute)
		if got := time.Until(c.Time(end)); got != time.Minute {
			t.Errorf("a minute ahead: %v", got)
		}
		c.Skip(20 * time.Second)
		if got := time.Until(c.Time(end)); got != 40*time.Second {
			t.Errorf("a minute ahead, 20 s skipped: %v", got)
		}
		if got := c.Awake(); got != 1 {
			t.Errorf("awake since %v", got)
		}
	})
}

func TestThisMachineIsAwake(t *testing.T) {
	c := New()
	before := c.Now()
	if slept := c.Check(); slept != 0 {
		t.Errorf("asleep for %v during this test", slept)
	}
	if c.Now() < before {
		t.Error("the clock went back")
	}
}
