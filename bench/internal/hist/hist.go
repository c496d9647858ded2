// Package hist counts durations in a histogram that can be merged over
// goroutines and processes: percentiles cannot be, and an average of them means
// nothing.
package hist

import (
	"math/bits"
	"time"
)

// A power of two is split into so many buckets, so that a bucket is at most
// 0.8 % wide.
const (
	splitBits = 7
	split     = 1 << splitBits
)

// Hist is a histogram of durations. The zero value is empty. Its fields are
// exported to be sent as JSON.
type Hist struct {
	Counts map[int]uint64 // by bucket
	Longest,
	Total time.Duration
}

// Add counts one duration. What is below zero counts as zero.
func (h *Hist) Add(d time.Duration) {
	d = max(d, 0)
	if h.Counts == nil {
		h.Counts = make(map[int]uint64)
	}
	h.Counts[bucket(d)]++
	h.Total += d
	h.Longest = max(h.Longest, d)
}

// AtLeast raises the maximum to a duration that was cut off before its end, and
// that no percentile knows of.
func (h *Hist) AtLeast(d time.Duration) { h.Longest = max(h.Longest, d) }

// Merge adds what other has counted.
func (h *Hist) Merge(other *Hist) {
	if h.Counts == nil {
		h.Counts = make(map[int]uint64)
	}
	for b, n := range other.Counts {
		h.Counts[b] += n
	}
	h.Total += other.Total
	h.Longest = max(h.Longest, other.Longest)
}

// Count returns how many durations were counted.
func (h *Hist) Count() uint64 {
	n := uint64(0)
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Max returns the longest duration, exactly.
func (h *Hist) Max() time.Duration { return h.Longest }

// Percentile returns a duration that p percent of those counted do not exceed,
// at most 0.8 % above the exact one; 0 if there are none.
func (h *Hist) Percentile(p float64) time.Duration {
	total := h.Count()
	if total == 0 {
		return 0
	}
	rank := max(1, uint64(float64(total)*p/100+0.999999))
	seen := uint64(0)
	for b := 0; ; b++ {
		if seen += h.Counts[b]; seen >= rank {
			return min(upper(b), h.Longest)
		}
		if b > lastBucket {
			return h.Longest
		}
	}
}

const lastBucket = 64 << splitBits

// bucket numbers durations: those below split ns one by one, then each power of
// two in split parts.
func bucket(d time.Duration) int {
	n := uint64(d)
	if n < split {
		return int(n)
	}
	shift := bits.Len64(n) - 1 - splitBits
	return (shift+1)<<splitBits + int(n>>shift) - split
}

// upper returns the longest duration in a bucket.
func upper(b int) time.Duration {
	if b < split {
		return time.Duration(b)
	}
	shift := b>>splitBits - 1
	low := uint64(b&(split-1)+split) << shift
	return time.Duration(low + 1<<shift - 1)
}
