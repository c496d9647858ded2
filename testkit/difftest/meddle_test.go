package difftest

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"example.com/redlock/internal/node"
	"example.com/redlock/internal/nodemodel"
)

// values are what other clients, operators and bugs may leave in a lease key:
// leases with odd deadlines, near misses of leases, foreign values.
func (w *world) value() string {
	id := pick(w.rnd, ids...)
	return pick(w.rnd,
		id+":5", id+":5 somebody else", id+":007 zeros", "~broken "+id+":5", "~broken "+id+":9 owner", id+":5 ",
		id+":", id+":5x", id+":12345678901234567", id+":9007199254740992", id+":9007199254740991", id+":-5",
		id[1:]+":5", id+"0:5", "ABCDEF"+id[6:]+":5", "~broken", "~broken ~broken "+id+":5", "~shared",
		"8f2d-foreign-client", "", "\x00\xff", "redlock:{a}",
	)
}

// meddle does to both what no call of ours does.
func (w *world) meddle(restartEvery int) {
	if w.rnd.IntN(restartEvery) == 0 {
		w.restart()
		w.deafenAll()
		w.model.Restart(w.runID(), false)
		w.hello()
		return
	}
	key := w.keys.Lease(pick(w.rnd, names...))
	switch w.rnd.IntN(20) {
	case 0:
		w.do("DEL", key)
		w.model.Delete(key)
	case 1:
		w.do("DEL", key)
		w.do("HSET", key, "x", "y")
		w.model.Delete(key)
		w.model.SetField(key, "x", "y")
	case 2:
		w.do("FLUSHALL")
		w.model.Flush()
		if w.rnd.IntN(8) > 0 {
			w.hello()
		}
	case 3:
		w.do("SCRIPT", "FLUSH")
	case 4:
		w.hello()
	case 5:
		w.spoilCounters()
	case 6:
		w.spoilGuard()
	case 7, 8, 9:
		w.watch()
	case 10:
		w.promote()
	case 13:
		w.restartDurable()
	case 11, 12:
		for range 1 + w.rnd.IntN(4) {
			w.configure()
			if w.rnd.IntN(3) > 0 {
				w.watch()
			}
		}
	default:
		w.setForeign(key, w.value())
	}
}

func (w *world) setForeign(key, text string) {
	sum := sha1.Sum([]byte(text))
	w.foreign[nodemodel.HolderOf(text)] = hex.EncodeToString(sum[:])
	v := nodemodel.Value{Text: text}
	// Below, above and far above what a lease may have; none.
	ttl := pick[int64](w.rnd, 0, 60, 800, maxTTL-100, maxTTL+node.ClockSlack-100, maxTTL+node.ClockSlack+100, 3_600_000)
	w.do("SET", key, text)
	if ttl > 0 {
		w.do("PEXPIRE", key, strconv.FormatInt(ttl, 10))
		_, v.Expires = w.deadline(key)
	}
	w.model.Set(key, v)
}

func (w *world) spoilCounters() {
	tokens := w.keys.Tokens()
	w.do("DEL", tokens)
	w.model.Delete(tokens)
	switch w.rnd.IntN(5) {
	case 0:
		w.do("SET", tokens, "no hash")
		w.model.Set(tokens, nodemodel.Value{Text: "no hash"})
	case 1:
		w.setField(tokens, node.FloorField, strconv.FormatInt(w.now()+1e6, 10))
	default:
		field := pick(w.rnd, node.FloorField, node.SinceField, strconv.Itoa(node.Shard(pick(w.rnd, names...))))
		w.setField(tokens, field, pick(w.rnd, "", "x", "-1", "12.5", "1e3", "0x10", " 7", "007", "9007199254740991",
			"9007199254740992", "99999999999999999999"))
	}
}

func (w *world) setField(key, field, text string) {
	w.do("HSET", key, field, text)
	w.model.SetField(key, field, text)
}

// spoilGuard stores a guard that is none, or one of another process: data
// that came from elsewhere.
func (w *world) spoilGuard() {
	text := pick(w.rnd, "junk", "", usualConf.Guard("another"), usualConf.Guard("another"), "quarantine:x", "quarantine:x|-",
		"quarantine:"+w.model.Life()+":|-", "quarantine:"+w.model.Life()+":5f|-", "quarantine:"+w.model.Life()+":5f|"+usualConf.String(),
		"quarantine:other:5f|-", "quarantine:other:5f|"+usualConf.String(), w.model.Life()+"|1|0|"+strings.SplitN(usualConf.String(), "|", 3)[2])
	w.do("SET", w.keys.Guard(), text)
	w.model.Set(w.keys.Guard(), nodemodel.Value{Text: text})
	if w.rnd.IntN(4) == 0 {
		return
	}
	w.hello()
}

// promote makes the server a replica of nothing, and a master again.
func (w *world) promote() {
	// An embedded server is never a replica, and one that was is never durable.
	if w.embedded || w.standings[node.StandingDurable] < 3 {
		return
	}
	w.do("REPLICAOF", "127.0.0.1", "1")
	w.do("REPLICAOF", "NO", "ONE")
	w.model.Promote(w.info("replication", "master_replid2"))
	w.promotions++
	w.hello()
}

// restartDurable gives the server, marked as durable, the guard of another
// process.
func (w *world) restartDurable() {
	w.declare()
	w.introduce(node.Vouch)
	w.shown = usualConf.Guard("another")
	w.do("SET", w.keys.Guard(), w.shown)
	w.model.Set(w.keys.Guard(), nodemodel.Value{Text: w.shown})
	w.introduce(pick(w.rnd, node.Greet, node.Look, node.Trust, node.Trust, node.Trust, node.Suspect, node.Vouch))
}

// compareState compares all keys and takes over the server's deadlines, so
// that small differences do not add up.
func (w *world) compareState() {
	for _, key := range append(w.leaseKeys(), w.keys.Guard(), w.keys.Durable(), w.keys.Clock()) {
		kind, text := w.text("TYPE", key), ""
		if kind == "string" {
			text = w.text("GET", key)
		}
		left, expires := w.deadline(key)
		v, ok := w.model.Get(key, 0)
		if ok && v.Expires != 0 && v.Expires-w.now()/1000 <= 2*toleranceMS {
			continue // expiring, or just expired
		}
		if ok != (kind == "string") || !ok && (left == -2) == w.isHash(key) {
			w.fail(key, fmt.Sprintf("type %s, model has a string: %v", kind, ok))
		}
		if !ok {
			continue
		}
		if text != v.Text {
			w.fail(key, fmt.Sprintf("server %q, model %q", text, v.Text))
		}
		if (left == -1) != (v.Expires == 0) {
			w.fail(key, fmt.Sprintf("remaining: server %d, model expires at %d", left, v.Expires))
		}
		if v.Expires != 0 {
			if delta := expires - v.Expires; max(delta, -delta) > toleranceMS {
				w.fail(key, fmt.Sprintf("deadline: server %d ms later than the model", delta))
			}
			v.Expires = expires
			w.model.Set(key, v)
		}
	}
	w.compareLines()
	w.compareHash(w.keys.Tokens(), counterFields())
	w.compareHash(w.keys.Quarantine(), []string{"nonce", "credit", "kept", "need", "was"})
}

// deadline returns what PTTL says, and the millisecond it means.
func (w *world) deadline(key string) (left, expires int64) {
	for {
		before := w.now()
		left = w.number("PTTL", key)
		// A pause in between would be taken for a difference.
		if w.now()-before < 2000 {
			return left, before/1000 + max(left, 0)
		}
	}
}

func (w *world) isHash(key string) bool {
	_, ok := w.model.Field(key, "x")
	return ok
}

func (w *world) compareHash(key string, fields []string) {
	if text, ok := w.model.Get(key, 0); ok {
		if got := w.text("GET", key); got != text.Text {
			w.fail(key, got)
		}
		return
	}
	m := w.do("HGETALL", key)
	got, err := m.AsStrMap()
	if err != nil {
		w.t.Fatal(err)
	}
	n := 0
	for _, field := range fields {
		text, ok := w.model.Field(key, field)
		if got[field] != text {
			w.fail(key, fmt.Sprintf("%s: server %q, model %q", field, got[field], text))
		}
		if ok {
			n++
		}
	}
	if len(got) != n {
		w.fail(key, fmt.Sprintf("server %q, model has %d", got, n))
	}
}

func counterFields() []string {
	fields := map[string]bool{node.FloorField: true, node.ClockField: true, node.SinceField: true}
	for _, name := range names {
		fields[strconv.Itoa(node.Shard(name))] = true
	}
	var list []string
	for f := range fields {
		list = append(list, f)
	}
	return list
}

func (w *world) fail(key, what string) {
	w.t.Helper()
	w.t.Fatalf("%q: %s\nafter %+v\non %q", key, what, w.called, w.before)
}

// adopt makes the model equal to the server after a batch that could not be
// compared.
func (w *world) adopt() {
	zsets, hashes := w.lineKeys()
	keys := append(append(w.leaseKeys(), w.keys.Guard(), w.keys.Durable(), w.keys.Clock(), w.keys.Tokens(), w.keys.Quarantine()), zsets...)
	for _, key := range append(keys, hashes...) {
		w.model.Delete(key)
		left, ends := w.deadline(key)
		if left < 0 {
			ends = 0
		}
		kind := w.text("TYPE", key)
		switch kind {
		case "string":
			w.model.Set(key, nodemodel.Value{Text: w.text("GET", key), Expires: ends})
		case "hash":
			for field, text := range w.hash(key) {
				w.model.SetField(key, field, text)
			}
		case "zset":
			for member, text := range w.zset(key) {
				score, _ := strconv.ParseUint(text, 10, 64)
				w.model.SetScore(key, member, score)
			}
		}
		if ends != 0 && (kind == "hash" || kind == "zset") {
			w.model.SetEnd(key, ends)
		}
	}
}
