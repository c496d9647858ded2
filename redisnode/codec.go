package redisnode

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"example.com/redlock/internal/node"
)

// kindLetters are the kinds as call.lua reads them: capitals are guarded.
var kindLetters = [...]string{
	node.Acquire: "A", node.Extend: "X", node.Join: "J", node.Raise: "R", node.Replace: "P",
	node.Release: "d", node.Break: "b", node.Inspect: "i", node.Wait: "W",
}

// fieldsPerOp is the stride of operations in ARGV.
const fieldsPerOp = 8

// encodeCall returns the arguments of call.lua behind two free places for the
// command and the script.
func encodeCall(c *node.Call) []string {
	keys := len(c.Ops) + 3
	args := make([]string, 3, 3+keys+5+fieldsPerOp*len(c.Ops))
	args[2] = strconv.Itoa(keys)
	args = append(args, c.Keys.Guard(), c.Keys.Tokens(), c.Keys.Waiting())
	for _, op := range c.Ops {
		args = append(args, c.Keys.Lease(op.Name))
	}
	args = append(args, c.Guard, formatInt(c.MaxTTL), formatInt(c.Assign), formatInt(c.Life), flag(c.Keys.Plain))
	for _, op := range c.Ops {
		args = appendOp(args, op)
	}
	return args
}

// appendOp appends the eight fields that call.lua documents.
func appendOp(args []string, op node.Op) []string {
	kind, amount, number, shard, extra, label, seen := kindLetters[op.Kind], "", "", "", "", "", ""
	switch op.Kind {
	case node.Acquire, node.Wait:
		amount, number, extra = formatInt(op.TTL), formatUint(op.Proposal), formatInt(op.NotAfter)
	case node.Replace:
		amount, number, extra = formatInt(op.TTL), formatUint(op.Proposal), op.NewID+formatInt(op.NotAfter)
	case node.Join:
		amount, number, extra = formatInt(op.TTL), formatUint(op.Token), formatInt(op.NotAfter)
	case node.Raise:
		amount, number = formatUint(op.Stored), formatUint(op.Token)
	case node.Extend:
		amount = formatInt(op.TTL)
	case node.Release:
		if op.Proposal != 0 {
			number = formatUint(op.Proposal)
		}
		if op.Place.Waiter != "" {
			extra = formatInt(op.Rest)
		}
	case node.Break:
		if op.Now {
			kind = "n"
		}
	}
	if op.Kind.Counts() || op.Kind == node.Release || op.Now {
		shard = strconv.Itoa(node.Shard(op.Name))
		if op.Seen != 0 {
			seen = formatUint(op.Seen)
		}
		if op.Owner != "" {
			label = " " + op.Owner
		}
	}
	return append(args, kind, op.ID, amount, number, shard, extra+queueing(op), label, seen)
}

// queueing is how op is to hold the name, and its place in the line; empty if it
// is alone and stands in none.
func queueing(op node.Op) string {
	mode := " x"
	if op.Mode == node.Shared {
		mode = " s"
	}
	p := op.Place
	switch {
	case p.Waiter != "":
		// Who only leaves needs no client, and the words are told apart by their places.
		text := mode + " " + p.Waiter + " " + cmp.Or(p.Client, "-") + " " + formatUint(p.Ticket) + " " + formatUint(p.Beat)
		if op.NewID != "" {
			text += " " + op.NewID
		}
		return text
	case op.Mode == node.Shared && (op.Kind == node.Acquire || op.Kind == node.Join):
		return mode
	}
	return ""
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }

func formatUint(n uint64) string { return strconv.FormatUint(n, 10) }

// intentLetters are the intents as hello.lua reads them.
var intentLetters = [...]string{node.Greet: "g", node.Look: "l", node.Declare: "d", node.Suspect: "s", node.Leapt: "c", node.Trust: "t", node.Vouch: "v", node.Unvouch: "u"}

// nobody is a client that no client is: what is published to it reaches nobody.
const nobody = ""

func encodeHello(h node.Hello) []string {
	return []string{
		"", "", "5", h.Keys.Guard(), h.Keys.Quarantine(), h.Keys.Tokens(), h.Keys.Durable(), h.Keys.Clock(),
		h.Conf.String(), intentLetters[h.Intent], h.Nonce, h.Suspect, h.Record, h.Former, h.Keys.Channel(nobody),
	}
}

func encodeWatch(w node.Watch) []string {
	need := ""
	if w.Lift {
		need = formatInt(w.Need)
	}
	return []string{
		"", "", "3", w.Keys.Guard(), w.Keys.Quarantine(), w.Keys.Tokens(),
		w.Guard, formatInt(w.Credit), need, w.Conf, formatUint(w.Floor), flag(w.ByClock),
	}
}

func encodeTokens(t node.Tokens) []string {
	return []string{"", "", "2", t.Keys.Guard(), t.Keys.Tokens(), t.Guard}
}

func encodeConfigure(c node.Configure) []string {
	need := ""
	if !c.Fence {
		need = formatInt(c.Need)
	}
	return []string{
		"", "", "4", c.Keys.Guard(), c.Keys.Quarantine(), c.Keys.Tokens(), c.Keys.Clock(),
		c.Conf.String(), c.Shown, c.Nonce, need, formatUint(c.Floor), flag(c.ByClock),
	}
}

func encodeLine(l node.Line) []string {
	return []string{"", "", "2", l.Keys.Line(l.Name), l.Keys.Waiters(l.Name), strconv.Itoa(l.Most)}
}

// decodeLine leaves out what nobody of ours stored.
func decodeLine(reply any) (node.LineReply, error) {
	texts, err := decodeList(reply)
	if err != nil || len(texts)%3 != 1 {
		return node.LineReply{}, malformed(fmt.Sprintf("%d entries for a line", len(texts)))
	}
	var r node.LineReply
	if r.Waiting, err = parseCount(texts[0]); err != nil {
		return node.LineReply{}, err
	}
	for place := range slices.Chunk(texts[1:], 3) {
		e, ok := node.ParseEntry(place[0], place[2])
		if e.Ticket, err = parseToken(place[1]); err != nil {
			return node.LineReply{}, err
		}
		if ok {
			r.First = append(r.First, e)
		}
	}
	return r, nil
}

// flag is how the scripts write what is true or not.
func flag(b bool) string {
	if b {
		return "1"
	}
	return ""
}

// firstCursor is what begins a scan, and ends it.
const firstCursor = "0"

func encodeScan(s node.Scan) []string {
	cursor := s.Cursor
	if cursor == "" {
		cursor = firstCursor
	}
	args := []string{"SCAN", cursor, "MATCH", s.Keys.Glob(s.Pattern), "COUNT", strconv.Itoa(s.Count)}
	if s.Keys.Plain {
		args = append(args, "TYPE", "string") // another type is the application's
	}
	return args
}

// encodeLeases returns the arguments of leases.lua behind two free places.
func encodeLeases(keys []string) []string {
	return append([]string{"", "", strconv.Itoa(len(keys))}, keys...)
}

func decodeScan(reply any) (keys []string, next string, err error) {
	page, ok := reply.([]any)
	if !ok || len(page) != 2 {
		return nil, "", malformed(fmt.Sprintf("%T for a page", reply))
	}
	if next, ok = page[0].(string); !ok {
		return nil, "", malformed(fmt.Sprintf("%T for a cursor", page[0]))
	}
	if next == firstCursor {
		next = ""
	}
	keys, err = decodeList(page[1])
	return keys, next, err
}

// decodeList reads strings, however many.
func decodeList(reply any) ([]string, error) {
	list, _ := reply.([]any)
	return decodeTexts(reply, len(list))
}

// decodeCall reads the reply of call.lua to c. Whatever the server sent, it
// returns a well-formed reply or an error.
func decodeCall(c *node.Call, reply any) (*node.Reply, error) {
	texts, err := decodeTexts(reply, 2+len(c.Ops))
	if err != nil {
		return nil, err
	}
	r := &node.Reply{Guard: texts[1], Answers: make([]node.Answer, len(c.Ops))}
	if r.Time, err = parseInt(texts[0]); err != nil {
		return nil, err
	}
	for i, text := range texts[2:] {
		if r.Answers[i], err = decodeAnswer(c.Ops[i].Kind, text); err != nil {
			return nil, err
		}
	}
	return r, nil
}

var errMalformed = errors.New("redisnode: malformed reply")

func malformed(text string) error { return fmt.Errorf("%w: %.100q", errMalformed, text) }

// decodeAnswer reads one answer: a code, and behind blanks the fields it has.
// The last field is the rest, blanks included.
func decodeAnswer(kind node.Kind, text string) (node.Answer, error) {
	head, rest, _ := strings.Cut(text, " ")
	if len(head) != 1 {
		return node.Answer{}, malformed(text)
	}
	a := node.Answer{Code: node.Code(head[0])}
	if head == "g" {
		a.Code, a.ByClock = node.Granted, true
	}
	switch a.Code {
	case node.Absent, node.Stale, node.NoGuard, node.WrongType, node.WentBack:
		return bare(a, text)
	case node.Failed:
		a.Err, a.Denied = rest, isDenied(rest)
		return a, nil
	case node.Done, node.Granted:
		numbered := kind == node.Acquire || kind == node.Wait || kind == node.Replace
		if numbered != (a.Code == node.Granted) {
			return node.Answer{}, malformed(text)
		}
		if !numbered {
			return bare(a, text)
		}
	case node.Held, node.Broken, node.Foreign, node.Waiting:
	default:
		return node.Answer{}, malformed(text)
	}
	var err error
	if kind == node.Wait {
		if rest, err = decodePlace(&a, rest); err != nil {
			return node.Answer{}, err
		}
	}
	if a.Code == node.Granted || a.Code == node.Waiting {
		a.Token, err = parseToken(rest)
		return a, err
	}
	return decodeHolder(a, text, rest)
}

// bare accepts an answer that has no fields.
func bare(a node.Answer, text string) (node.Answer, error) {
	if len(text) != 1 {
		return node.Answer{}, malformed(text)
	}
	return a, nil
}

// decodePlace reads the place in the line, and returns what comes behind it.
func decodePlace(a *node.Answer, text string) (rest string, err error) {
	fields := strings.SplitN(text, " ", 3)
	if len(fields) != 3 {
		return "", malformed(text)
	}
	if a.Ticket, err = parseToken(fields[0]); err != nil {
		return "", err
	}
	a.Ahead, err = parseCount(fields[1])
	return fields[2], err
}

func decodeHolder(a node.Answer, text, rest string) (node.Answer, error) {
	fields := strings.SplitN(rest, " ", 6)
	want := 6 // number, ms left, id, ticket, readers, owner
	if a.Code == node.Foreign {
		want = 3
	}
	if len(fields) != want || fields[2] == "" {
		return node.Answer{}, malformed(text)
	}
	var err error
	if a.Token, err = parseToken(fields[0]); err != nil {
		return node.Answer{}, err
	}
	if a.Remaining, err = parseInt(fields[1]); err != nil || a.Remaining < -1 {
		return node.Answer{}, malformed(text)
	}
	if a.Holder = fields[2]; a.Code == node.Foreign {
		return a, nil
	}
	if a.HolderTicket, err = parseToken(fields[3]); err != nil {
		return node.Answer{}, err
	}
	a.Readers, err = parseCount(fields[4])
	a.Owner = fields[5]
	return a, err
}

// decodePush reads what a node publishes to the client.
func decodePush(client, text string) (node.Push, error) {
	f := strings.SplitN(text, " ", 7) // letter, number, id, waiter, beat, ms, name
	if len(f) != 7 || f[0] != "G" && f[0] != "g" || f[2] == "" || f[3] == "" {
		return node.Push{}, malformed(text)
	}
	p := node.Push{Client: client, ByClock: f[0] == "g", ID: f[2], Waiter: f[3], Name: f[6]}
	var err error
	if p.Token, err = parseToken(f[1]); err != nil {
		return node.Push{}, err
	}
	if p.Beat, err = parseToken(f[4]); err != nil {
		return node.Push{}, err
	}
	p.Lease, err = parseInt(f[5])
	return p, err
}

func decodeHello(reply any) (node.HelloReply, error) {
	t, err := decodeTexts(reply, 21)
	if err != nil {
		return node.HelloReply{}, err
	}
	r := node.HelloReply{
		Standing: node.Standing(t[1]), Guard: t[2], Changed: t[3] == "1", Previous: t[4],
		Kept: t[6] == "1", ByClock: t[7] == "1", Life: t[8], RunID: t[9],
		Version: t[10], Role: t[11], Master: t[12], Mode: t[13], MaxMemoryPolicy: t[15], Was: t[17], Durable: t[18] == "1", Record: t[20],
	}
	switch r.Standing {
	case node.StandingOK, node.StandingNew, node.StandingDurable, node.StandingQuarantined, node.StandingMismatch:
	default:
		return node.HelloReply{}, malformed(t[1])
	}
	if r.RunID == "" {
		return node.HelloReply{}, malformed("no run_id")
	}
	if r.Time, err = parseInt(t[0]); err != nil {
		return node.HelloReply{}, err
	}
	if r.Credit, err = parseInt(t[5]); err != nil {
		return node.HelloReply{}, err
	}
	if r.MaxMemory, err = parseInt(t[14]); err != nil {
		return node.HelloReply{}, err
	}
	if r.Need, err = parseInt(t[16]); err != nil {
		return node.HelloReply{}, err
	}
	if r.Since, err = parseInt(t[19]); err != nil {
		return node.HelloReply{}, err
	}
	return r, nil
}

func decodeWatch(reply any) (node.WatchReply, error) {
	t, err := decodeTexts(reply, 4)
	if err != nil {
		return node.WatchReply{}, err
	}
	r := node.WatchReply{Known: t[1] == "1", Lifted: t[2] == "1"}
	if r.Time, err = parseInt(t[0]); err != nil {
		return node.WatchReply{}, err
	}
	if r.Credit, err = parseInt(t[3]); err != nil {
		return node.WatchReply{}, err
	}
	return r, nil
}

func decodeTokens(reply any) (node.TokensReply, error) {
	t, err := decodeTexts(reply, 4)
	if err != nil {
		return node.TokensReply{}, err
	}
	r := node.TokensReply{Voting: t[1] == "1", ByClock: t[3] == "1"}
	if r.Highest, err = parseToken(t[2]); err != nil {
		return node.TokensReply{}, err
	}
	if r.Time, err = parseInt(t[0]); err != nil {
		return node.TokensReply{}, err
	}
	return r, nil
}

func decodeConfigure(reply any) (node.ConfigureReply, error) {
	t, err := decodeTexts(reply, 7)
	if err != nil {
		return node.ConfigureReply{}, err
	}
	r := node.ConfigureReply{Done: t[1] == "1", Shown: t[2], Was: t[3], Whole: t[4] == "1", ByClock: t[6] == "1"}
	if r.Time, err = parseInt(t[0]); err != nil {
		return node.ConfigureReply{}, err
	}
	if r.Highest, err = parseToken(t[5]); err != nil {
		return node.ConfigureReply{}, err
	}
	return r, nil
}

func decodeTexts(reply any, n int) ([]string, error) {
	list, ok := reply.([]any)
	if !ok || len(list) != n {
		return nil, malformed(fmt.Sprintf("%T with %d of %d entries", reply, len(list), n))
	}
	texts := make([]string, n)
	for i, entry := range list {
		if texts[i], ok = entry.(string); !ok {
			return nil, malformed(fmt.Sprintf("entry %d is %T", i, entry))
		}
	}
	return texts, nil
}

func parseInt(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, malformed(text)
	}
	return n, nil
}

func parseCount(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, malformed(text)
	}
	return int(n), nil
}

func parseToken(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n >= node.MaxExact {
		return 0, malformed(text)
	}
	return n, nil
}
