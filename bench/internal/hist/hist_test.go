package hist

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestPercentilesOfMergedPartsAreThoseOfTheWhole(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var parts [4]Hist
	var all []time.Duration
	for i := range 40_000 {
		d := time.Duration(rnd.ExpFloat64() * float64(time.Millisecond) * float64(1+i%4*i%4))
		parts[i%4].Add(d)
		all = append(all, d)
	}
	var whole Hist
	for i := range parts {
		whole.Merge(&parts[i])
	}
	slices.Sort(all)
	for _, p := range []float64{1, 50, 90, 99, 99.9, 100} {
		exact := all[max(0, int(float64(len(all))*p/100+0.999999)-1)]
		if got := whole.Percentile(p); got < exact || float64(got) > float64(exact)*1.008+1 {
			t.Errorf("p%v is %v, exactly %v", p, got, exact)
		}
	}
	if whole.Max() != all[len(all)-1] || whole.Count() != uint64(len(all)) {
		t.Errorf("max %v and count %d, want %v and %d", whole.Max(), whole.Count(), all[len(all)-1], len(all))
	}
}

func TestEveryDurationLiesInItsBucket(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 127, 128, 129, 255, 256, 1000, time.Hour, 1<<62 + 12345, 1<<63 - 1} {
		b := bucket(d)
		if d > upper(b) || (b > 0 && d <= upper(b-1)) {
			t.Errorf("%d is in bucket %d, which ends at %d and begins after %d", d, b, upper(b), upper(b-1))
		}
	}
}

func TestCutOffWaitsShowInTheMaximumOnly(t *testing.T) {
	var h Hist
	if h.Percentile(99) != 0 {
		t.Error("an empty histogram has a percentile")
	}
	h.Add(time.Millisecond)
	h.AtLeast(time.Second)
	if h.Max() != time.Second || h.Percentile(100) > 1008*time.Microsecond || h.Count() != 1 {
		t.Errorf("max %v, p100 %v, count %d", h.Max(), h.Percentile(100), h.Count())
	}
}
