package nodemodel

import (
	"strings"

	"example.com/redlock/internal/node"
)

// A name that is held shared stores SharedHolder in place of a lease, for as long as
// the last of its readers has. The readers themselves are in a sorted set by the end
// of their leases, and their numbers in a hash.

// owned reports whether the attempt has the name, not broken, and its number.
func (r *run) owned(name, id string) (uint64, bool) {
	keys := r.keys(name)
	value, ok := r.node.get(keys.lease, r.now)
	if !ok || id == "" {
		return 0, false
	}
	if value.Text != node.SharedHolder {
		l, ours := parseLease(value.Text)
		return l.number, ours && l.id == id && !l.broken
	}
	end, ok := r.node.zsets[keys.readers][id]
	if !ok || int64(end) < r.now/1000 {
		return 0, false
	}
	number, _ := r.node.Field(keys.numbers, id)
	digits, _, _ := strings.Cut(number, " ")
	return node.ParseNumber(digits)
}

// give writes the lease of an attempt that may have the name.
func (r *run) give(name, id string, mode node.Mode, number uint64, owner string, ttl int64) {
	keys, text := r.keys(name), format(number)
	if owner != "" {
		text += " " + owner
	}
	if mode == node.Exclusive {
		r.node.Set(keys.lease, Value{Text: id + ":" + text, Expires: r.now/1000 + ttl})
		return
	}
	if _, held := r.node.get(keys.lease, r.now); !held {
		r.node.Delete(keys.readers)
		r.node.Delete(keys.numbers)
	}
	r.node.SetScore(keys.readers, id, uint64(r.now/1000+ttl))
	r.node.SetField(keys.numbers, id, text)
	r.fitShared(name)
}

// takeBack deletes the lease of an attempt, broken or not, and reports whether it was
// there. Readers whose time is over go as well.
func (r *run) takeBack(name, id string) bool {
	keys := r.keys(name)
	value, _ := r.node.get(keys.lease, r.now)
	if l, ours := parseLease(value.Text); ours && l.id == id {
		r.node.Delete(keys.lease)
		r.node.deleteField(keys.waiters, assignedField)
		return true
	}
	if _, reads := r.node.zsets[keys.readers][id]; !reads || !isShared(value.Text) {
		return false
	}
	r.removeReader(name, id)
	r.fitShared(name)
	return true
}

func (r *run) removeReader(name, id string) {
	keys := r.keys(name)
	r.node.deleteMember(keys.readers, id)
	r.node.deleteField(keys.numbers, id)
}

// isShared reports whether a value is that of a name that is held shared, broken or
// not.
func isShared(text string) bool {
	return text == node.SharedHolder || text == brokenPrefix+node.SharedHolder
}

// fitShared has the name be held for as long as the reader that has longest; with
// none left it is free.
func (r *run) fitShared(name string) {
	keys := r.keys(name)
	var last int64
	for _, id := range r.node.ordered(keys.readers) {
		end := int64(r.node.zsets[keys.readers][id])
		if end < r.now/1000 {
			r.removeReader(name, id)
			continue
		}
		if most := r.now/1000 + r.call.MaxTTL; end > most+node.ClockSlack { // the clock went back
			end = most
			r.node.SetScore(keys.readers, id, uint64(end))
		}
		last = max(last, end)
	}
	if len(r.node.zsets[keys.readers]) == 0 {
		r.node.Delete(keys.lease)
		r.node.deleteField(keys.waiters, assignedField)
		return
	}
	value, held := r.node.get(keys.lease, r.now)
	if !held {
		value.Text = node.SharedHolder
	}
	last = max(last, r.now/1000+1) // no server takes a remaining time of nothing
	r.node.Set(keys.lease, Value{Text: value.Text, Expires: last})
	r.node.SetEnd(keys.readers, last)
	r.node.SetEnd(keys.numbers, last)
}

// readers is how many share the name now.
func (r *run) readers(name string) int {
	count := 0
	for _, end := range r.node.zsets[r.keys(name).readers] {
		if int64(end) >= r.now/1000 {
			count++
		}
	}
	return count
}

// prolongReader raises the time at which the lease of a reader ends.
func (r *run) prolongReader(name, id string, end int64) {
	keys := r.keys(name)
	r.node.SetScore(keys.readers, id, max(r.node.zsets[keys.readers][id], uint64(end)))
	r.fitShared(name)
}
