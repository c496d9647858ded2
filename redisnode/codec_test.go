package redisnode

import (
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.com/redlock/internal/node"
)

const (
	idA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	idB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

var keyspace = node.Keyspace{Namespace: "redlock"}

func TestEncodeCall(t *testing.T) {
	shard := formatUint(uint64(node.Shard("x y")))
	place := node.Place{Waiter: "w", Client: "c", Ticket: 3, Beat: 4}
	c := &node.Call{Keys: keyspace, Guard: "g", MaxTTL: 30000, Assign: 2000, Life: 5000, Ops: []node.Op{
		{Kind: node.Acquire, Name: "x y", ID: idA, TTL: 10, Proposal: 7, NotAfter: 9, Owner: "o p", Seen: 6},
		{Kind: node.Acquire, Name: "x y", ID: idA, TTL: 10, Proposal: 7, NotAfter: 9, Mode: node.Shared},
		{Kind: node.Wait, Name: "x y", ID: idA, TTL: 10, Proposal: 7, NotAfter: 9, Place: place, Owner: "o"},
		{Kind: node.Extend, Name: "x y", ID: idA, TTL: 11},
		{Kind: node.Join, Name: "x y", ID: idA, TTL: 12, Token: 8},
		{Kind: node.Raise, Name: "x y", ID: idA, Stored: 7, Token: 8},
		{Kind: node.Replace, Name: "x y", ID: idA, NewID: idB, TTL: 13, Proposal: 9, NotAfter: 5},
		{Kind: node.Release, Name: "x y", ID: idA},
		{Kind: node.Release, Name: "x y", ID: idA, Place: place, Proposal: 5},
		{Kind: node.Release, Name: "x y", ID: idA, NewID: idB, Mode: node.Shared, Place: place, Rest: 6, Owner: "o"},
		{Kind: node.Break, Name: "x y", ID: idB},
		{Kind: node.Break, Name: "x y", ID: idB, Now: true},
		{Kind: node.Inspect, Name: "\x00"},
	}}
	want := []string{"", "", "16", "redlock:node", "redlock:tokens", "redlock:waiting"}
	for range len(c.Ops) - 1 {
		want = append(want, "redlock:{x y}")
	}
	want = append(want, "redlock:{\x00}",
		"g", "30000", "2000", "5000", "",
		"A", idA, "10", "7", shard, "9", " o p", "6",
		"A", idA, "10", "7", shard, "9 s", "", "",
		"W", idA, "10", "7", shard, "9 x w c 3 4", " o", "",
		"X", idA, "11", "", "", "", "", "",
		"J", idA, "12", "8", shard, "0", "", "",
		"R", idA, "7", "8", shard, "", "", "",
		"P", idA, "13", "9", shard, idB+"5", "", "",
		"d", idA, "", "", shard, "", "", "",
		"d", idA, "", "5", shard, "0 x w c 3 4", "", "",
		"d", idA, "", "", shard, "6 s w c 3 4 "+idB, " o", "",
		"b", idB, "", "", "", "", "", "",
		"n", idB, "", "", shard, "", "", "",
		"i", "", "", "", "", "", "", "",
	)
	if got := encodeCall(c); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	c.Keys.Plain = true
	if got := encodeCall(c); got[6] != "x y" || got[3+16+4] != "1" {
		t.Errorf("with plain keys %q", got[:3+16+5])
	}
}

func TestDecodeAnswers(t *testing.T) {
	tests := []struct {
		kind node.Kind
		text string
		want node.Answer
	}{
		{node.Acquire, "G 1785000000000000", node.Answer{Code: node.Granted, Token: 1785000000000000}},
		{node.Extend, "Y", node.Answer{Code: node.Done}},
		{node.Wait, "g 5 0 7", node.Answer{Code: node.Granted, Token: 7, ByClock: true, Ticket: 5}},
		{node.Acquire, "Q 7", node.Answer{Code: node.Waiting, Token: 7}},
		{node.Wait, "Q 5 2 7", node.Answer{Code: node.Waiting, Token: 7, Ticket: 5, Ahead: 2}},
		{node.Acquire, "H 7 100 " + idA + " 0 0 ", node.Answer{Code: node.Held, Token: 7, Remaining: 100, Holder: idA}},
		{node.Wait, "H 5 2 7 100 ~shared 3 4 ", node.Answer{
			Code: node.Held, Token: 7, Remaining: 100, Holder: node.SharedHolder, HolderTicket: 3, Readers: 4, Ticket: 5, Ahead: 2,
		}},
		{node.Wait, "F 5 2 7 0 0badcafe", node.Answer{Code: node.Foreign, Token: 7, Holder: "0badcafe", Ticket: 5, Ahead: 2}},
		{node.Wait, "S", node.Answer{Code: node.Stale}},
		{node.Acquire, "B 7 -1 " + idA + " 0 0  a b ", node.Answer{Code: node.Broken, Token: 7, Remaining: -1, Holder: idA, Owner: " a b "}},
		{node.Acquire, "F 7 0 0badcafe", node.Answer{Code: node.Foreign, Token: 7, Holder: "0badcafe"}},
		{node.Extend, "A", node.Answer{Code: node.Absent}},
		{node.Acquire, "S", node.Answer{Code: node.Stale}},
		{node.Acquire, "N", node.Answer{Code: node.NoGuard}},
		{node.Acquire, "W", node.Answer{Code: node.WrongType}},
		{node.Acquire, "E OOM command not allowed", node.Answer{Code: node.Failed, Err: "OOM command not allowed"}},
	}
	for _, test := range tests {
		if got, err := decodeAnswer(test.kind, test.text); err != nil || got != test.want {
			t.Errorf("%q: got %+v, %v", test.text, got, err)
		}
	}
	for _, text := range []string{
		"", " ", "G", "G ", "G x", "G -1", "G 1 2", "G 9007199254740992", "Y", "A 1", "S ", "Q", "GG 1", "\x00",
		"H", "H 1", "H 1 2", "H 1 2 ", "H 1 2 3", "H x 2 3 4", "H 1 x 3 4", "H 1 -2 3 4", "F 1 2", "F 1 2 3 4", "B 1 2  4",
		"H 1 2 3 4 5", "H 1 2 3 x 5 ", "H 1 2 3 4 -5 ", "H 1 2 3 4 4294967296 ", "Q x", "Q 1 2 3",
	} {
		if got, err := decodeAnswer(node.Acquire, text); !errors.Is(err, errMalformed) {
			t.Errorf("%q is read as %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"G 1", "Q 1", "Q 1 2", "Q x 2 3", "Q 1 -2 3", "H 1 2 3", "F 7 0 0badcafe"} {
		if got, err := decodeAnswer(node.Wait, text); !errors.Is(err, errMalformed) {
			t.Errorf("%q is read as %+v, %v", text, got, err)
		}
	}
	// B25: "granted" is not taken for "done" or the other way round.
	if got, err := decodeAnswer(node.Release, "G 1"); err == nil {
		t.Errorf("a granted release is read as %+v", got)
	}
}

func TestDecodePush(t *testing.T) {
	got, err := decodePush("c", "g 7 "+idA+" w 3 2000 any \x00 name ")
	want := node.Push{Client: "c", Waiter: "w", Name: "any \x00 name ", ID: idA, Token: 7, ByClock: true, Beat: 3, Lease: 2000}
	if err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, text := range []string{
		"", "G", "G 1 a w 3 4", "H 1 a w 3 4 n", "GG 1 a w 3 4 n", "G x a w 3 4 n", "G 1  w 3 4 n", "G 1 a  3 4 n", "G 1 a w x 4 n", "G 1 a w 3 x n",
	} {
		if got, err := decodePush("c", text); !errors.Is(err, errMalformed) {
			t.Errorf("%q is read as %+v, %v", text, got, err)
		}
	}
}

func TestDecodeCall(t *testing.T) {
	c := &node.Call{Ops: []node.Op{{Kind: node.Acquire}, {Kind: node.Release}}}
	got, err := decodeCall(c, []any{"1785", "guard", "G 1", "A"})
	want := &node.Reply{Time: 1785, Guard: "guard", Answers: []node.Answer{{Code: node.Granted, Token: 1}, {Code: node.Absent}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, reply := range []any{
		nil, "x", int64(1), []any{}, []any{"1", "g", "G 1"}, []any{"1", "g", "G 1", "A", "A"}, []any{"x", "g", "G 1", "A"},
		[]any{"1", nil, "G 1", "A"}, []any{"1", "g", int64(1), "A"}, []any{"1", "g", []any{"G 1"}, "A"}, []any{"1", "g", errors.New("x"), "A"},
	} {
		if got, err := decodeCall(c, reply); err == nil {
			t.Errorf("%v is read as %+v", reply, got)
		}
	}
}

func TestDecodeHello(t *testing.T) {
	reply := func() []any {
		return []any{"5", "quarantined", "quarantine:r2:n|c", "1", "r1|c", "7", "1", "1", "r2.e", "r2", "7.0.15", "slave", "h:1",
			"standalone", "1024", "noeviction", "9", "w", "1", "8", "5 6 7"}
	}
	want := node.HelloReply{
		Time: 5, Standing: node.StandingQuarantined, Guard: "quarantine:r2:n|c", Changed: true, Previous: "r1|c", Credit: 7,
		Kept: true, ByClock: true, Life: "r2.e", RunID: "r2", Version: "7.0.15", Role: "slave", Master: "h:1",
		Mode: "standalone", MaxMemory: 1024, MaxMemoryPolicy: "noeviction", Need: 9, Was: "w", Durable: true, Since: 8, Record: "5 6 7",
	}
	if got, err := decodeHello(reply()); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	for i, bad := range map[int]any{0: "x", 1: "OK", 5: "", 9: "", 14: "", 15: nil, 16: "", 19: "x", 20: nil} {
		r := reply()
		r[i] = bad
		if got, err := decodeHello(r); err == nil {
			t.Errorf("%q is read as %+v", r, got)
		}
	}
}

func TestDecodeConfigure(t *testing.T) {
	want := node.ConfigureReply{Time: 5, Done: true, Shown: "r1|c", Was: "c", Whole: true, Highest: 7, ByClock: true}
	reply := func() []any { return []any{"5", "1", "r1|c", "c", "1", "7", "1"} }
	if got, err := decodeConfigure(reply()); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	for i, bad := range map[int]any{0: "x", 2: nil, 5: "-1"} {
		r := reply()
		r[i] = bad
		if got, err := decodeConfigure(r); err == nil {
			t.Errorf("%q is read as %+v", r, got)
		}
	}
}

func TestDecodeScan(t *testing.T) {
	for _, test := range []struct {
		reply any
		keys  []string
		next  string
	}{
		{[]any{"0", []any{}}, []string{}, ""},
		{[]any{"18446744073709551615", []any{"a", "\xff"}}, []string{"a", "\xff"}, "18446744073709551615"},
	} {
		keys, next, err := decodeScan(test.reply)
		if err != nil || !reflect.DeepEqual(keys, test.keys) || next != test.next {
			t.Errorf("%v: got %q, %q, %v", test.reply, keys, next, err)
		}
	}
	for _, reply := range []any{
		nil, "0", []any{}, []any{"0"}, []any{"0", nil}, []any{"0", "a"}, []any{int64(0), []any{}}, []any{"0", []any{int64(1)}},
		[]any{"0", []any{}, []any{}},
	} {
		if keys, next, err := decodeScan(reply); !errors.Is(err, errMalformed) {
			t.Errorf("%v is read as %q, %q, %v", reply, keys, next, err)
		}
	}
}

func TestDecodeLine(t *testing.T) {
	got, err := decodeLine([]any{"7", "w1", "12", "3 1700 c " + idA + " s a label", "w2", "13", "junk", "w3", "14", "0 9 d " + idB + " x"})
	want := node.LineReply{Waiting: 7, First: []node.Entry{
		{Waiter: "w1", Client: "c", ID: idA, Ticket: 12, Beat: 3, Deadline: 1700, Mode: node.Shared, Owner: "a label"},
		{Waiter: "w3", Client: "d", ID: idB, Ticket: 14, Deadline: 9},
	}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, reply := range []any{nil, []any{}, []any{"x"}, []any{"1", "w"}, []any{"1", "w", "x", ""}, []any{"1", "w", "2", nil}} {
		if got, err := decodeLine(reply); !errors.Is(err, errMalformed) {
			t.Errorf("%v is read as %+v, %v", reply, got, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(uint8(1), "H 7 100 "+idA+" 0 2 a b")
	f.Add(uint8(8), "H 7 2 7 100 "+idA+" 0 2 a b")
	f.Add(uint8(8), "G 7 "+idA+" w 3 2000 name")
	f.Add(uint8(6), "Y")
	f.Add(uint8(1), "G 1\x00E x")
	f.Fuzz(func(t *testing.T, kind uint8, text string) {
		c := &node.Call{Ops: []node.Op{{Kind: node.Kind(1 + kind%9)}}}
		r, err := decodeCall(c, []any{"1", "", text})
		if err != nil {
			return
		}
		a := r.Answers[0]
		if a.Code.String() == "unknown" || a.Remaining < -1 || a.Token >= node.MaxExact {
			t.Errorf("%q is read as %+v", text, a)
		}
		decodePush("c", text)
		decodeHello(slices.Repeat([]any{text}, 21))
		decodeConfigure(slices.Repeat([]any{text}, 7))
		decodeWatch(slices.Repeat([]any{text}, 4))
		decodeTokens(slices.Repeat([]any{text}, 4))
	})
}

// The scripts say in their heads what they take and answer; the encoder is
// held to it here.
func TestScriptsStateTheirContract(t *testing.T) {
	for _, name := range []string{"call", "hello", "watch", "tokens", "configure", "leases"} {
		head, _, _ := strings.Cut(source(name), "\nlocal ")
		for _, part := range []string{"-- KEYS ", "-- ARGV ", "-- REPLY "} {
			if !strings.Contains(head, part) {
				t.Errorf("%s.lua does not begin with a contract: no %q", name, part)
			}
		}
	}
	head, _, _ := strings.Cut(source("call"), "\nlocal ")
	_, argv, _ := strings.Cut(head, "-- ARGV ")
	argv, _, _ = strings.Cut(argv, "-- REPLY ")
	if n := len(regexp.MustCompile(`\n--          \w`).FindAllString(argv, -1)); n != fieldsPerOp {
		t.Errorf("call.lua documents %d fields, the encoder sends %d", n, fieldsPerOp)
	}
}
