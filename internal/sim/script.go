package sim

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Verb says what a fault does.
type Verb string

// The verbs, each with its arguments.
const (
	Partition Verb = "partition" // (c1->n2) or (n2->c1): nothing arrives
	Heal      Verb = "heal"      // (c1->n2): it arrives again, at once
	Slow      Verb = "slow"      // (c1->n2,30ms): it takes longer
	Drop      Verb = "drop"      // (0.1): each message is lost with this probability
	Dup       Verb = "dup"       // (0.05): each call is delivered twice
	Reorder   Verb = "reorder"   // (0.05): each call is overtaken by later ones
	Pause     Verb = "pause"     // (c0,3s): the process stands still
	Stall     Verb = "stall"     // (0.01): a process stands still with this probability each time it has sent a call
	Crash     Verb = "crash"     // (c0): the process dies and is started anew
	Freeze    Verb = "freeze"    // (n1): calls wait at the node
	Thaw      Verb = "thaw"      // (n1): it carries them out
	Down      Verb = "down"      // (n1): calls are refused
	Up        Verb = "up"        // (n1)
	Restart   Verb = "restart"   // (n1,keep): a new process; with forget, without data
	Restore   Verb = "restore"   // (n1,3s): a new process, with the data of 3 s ago
	Promote   Verb = "promote"   // (n1,3s): a master anew in the same process, with the data of 3 s ago
	Flush     Verb = "flush"     // (n1): all data is deleted
	Rate      Verb = "rate"      // (n1,+0.8%): the node's clock runs faster
	Step      Verb = "step"      // (n1,+200ms): the node's clock jumps
	Wall      Verb = "wall"      // (c0,-1h): the client's time of day jumps
	Break     Verb = "break"     // (x0): an operator has extensions refused
	Free      Verb = "free"      // (x0): an operator takes the name from its holder
)

// shapes says which arguments a verb has.
var shapes = map[Verb][]argument{
	Partition: {ways}, Heal: {ways}, Slow: {ways, length},
	Drop: {probability}, Dup: {probability}, Reorder: {probability}, Stall: {probability},
	Pause: {client1, length}, Crash: {client1},
	Freeze: {node1}, Thaw: {node1}, Down: {node1}, Up: {node1},
	Restart: {node1, memory}, Restore: {node1, length}, Promote: {node1, length}, Flush: {node1},
	Rate: {node1, percent}, Step: {node1, shift}, Wall: {client1, shift},
	Break: {name1}, Free: {name1},
}

// Fault is one thing that strikes at one time. Its verb says which fields
// count.
type Fault struct {
	At   time.Duration
	Verb Verb
	// From and To are the ends of a link; To alone is what is struck.
	From, To End
	// Much is a probability, or a part of a whole.
	Much float64
	For  time.Duration
	// Forget tells that a restart loses the data.
	Forget bool
}

// loses reports whether f has a node lose what it may have granted, and whether
// its configuration with that: it is blank then.
func (f Fault) loses() (loses, blank bool) {
	switch f.Verb {
	case Restart:
		return true, f.Forget
	case Flush:
		return true, true
	case Restore, Promote:
		return true, false
	}
	return false, false
}

// End is a client, a node or a name: "c0", "n1", "x0". Index -1, "c*", is all
// of them.
type End struct {
	Kind  byte
	Index int
}

func (e End) String() string {
	if e.Index < 0 {
		return string(e.Kind) + "*"
	}
	return string(e.Kind) + strconv.Itoa(e.Index)
}

// is reports whether e stands for number i of its kind.
func (e End) is(i int) bool { return e.Index < 0 || e.Index == i }

// Script is what strikes in a run.
type Script []Fault

func (s Script) String() string {
	texts := make([]string, len(s))
	for i, f := range s {
		texts[i] = f.String()
	}
	return strings.Join(texts, " ")
}

func (f Fault) String() string {
	var args []string
	for _, a := range shapes[f.Verb] {
		args = append(args, a.print(f))
	}
	return fmt.Sprintf("%s(%s)@%v", f.Verb, strings.Join(args, ","), f.At)
}

// Parse reads what String wrote, or an edited form of it.
func Parse(text string) (Script, error) {
	var s Script
	for _, word := range strings.Fields(text) {
		f, err := parseFault(word)
		if err != nil {
			return nil, fmt.Errorf("sim: %q: %w", word, err)
		}
		s = append(s, f)
	}
	sort.SliceStable(s, func(i, j int) bool { return s[i].At < s[j].At })
	return s, nil
}

func parseFault(word string) (Fault, error) {
	call, at, timed := strings.Cut(word, "@")
	verb, rest, opened := strings.Cut(call, "(")
	inside, closed := strings.CutSuffix(rest, ")")
	if !timed || !opened || !closed {
		return Fault{}, fmt.Errorf("want verb(arguments)@time")
	}
	f := Fault{Verb: Verb(verb)}
	shape, known := shapes[f.Verb]
	args := strings.Split(inside, ",")
	if !known || len(args) != len(shape) {
		return Fault{}, fmt.Errorf("no such verb with %d arguments", len(args))
	}
	for i, a := range shape {
		if err := a.parse(args[i], &f); err != nil {
			return Fault{}, err
		}
	}
	var err error
	f.At, err = time.ParseDuration(at)
	if f.At < 0 {
		err = fmt.Errorf("a time before the beginning")
	}
	return f, err
}

// argument is how one argument of a fault is written.
type argument struct {
	print func(Fault) string
	parse func(string, *Fault) error
}

var (
	node1   = ending('n')
	client1 = ending('c')
	name1   = ending('x')

	ways = argument{
		print: func(f Fault) string { return f.From.String() + "->" + f.To.String() },
		parse: func(s string, f *Fault) (err error) {
			from, to, _ := strings.Cut(s, "->")
			if f.From, err = parseEnd(from); err == nil {
				f.To, err = parseEnd(to)
			}
			if err == nil && (f.From.Kind == f.To.Kind || f.From.Kind == 'x' || f.To.Kind == 'x') {
				err = fmt.Errorf("a link is between a client and a node")
			}
			return err
		},
	}
	probability = argument{
		print: func(f Fault) string { return strconv.FormatFloat(f.Much, 'g', -1, 64) },
		parse: func(s string, f *Fault) (err error) {
			f.Much, err = strconv.ParseFloat(s, 64)
			if err == nil && !(f.Much >= 0 && f.Much <= 1) {
				err = fmt.Errorf("%v is no probability", f.Much)
			}
			return err
		},
	}
	percent = argument{
		print: func(f Fault) string { return fmt.Sprintf("%+.6g%%", f.Much*100) },
		parse: func(s string, f *Fault) error {
			number, ok := strings.CutSuffix(s, "%")
			if !ok {
				return fmt.Errorf("%q lacks a %%", s)
			}
			much, err := strconv.ParseFloat(number, 64)
			f.Much = much / 100
			return err
		},
	}
	length = argument{
		print: func(f Fault) string { return f.For.String() },
		parse: func(s string, f *Fault) (err error) { f.For, err = time.ParseDuration(s); return err },
	}
	shift = argument{
		print: func(f Fault) string {
			if f.For >= 0 {
				return "+" + f.For.String()
			}
			return f.For.String()
		},
		parse: length.parse,
	}
	memory = argument{
		print: func(f Fault) string {
			if f.Forget {
				return "forget"
			}
			return "keep"
		},
		parse: func(s string, f *Fault) error {
			f.Forget = s == "forget"
			if !f.Forget && s != "keep" {
				return fmt.Errorf("%q is neither keep nor forget", s)
			}
			return nil
		},
	}
)

func ending(kind byte) argument {
	return argument{
		print: func(f Fault) string { return f.To.String() },
		parse: func(s string, f *Fault) (err error) {
			f.To, err = parseEnd(s)
			if err == nil && f.To.Kind != kind {
				err = fmt.Errorf("%q should begin with %c", s, kind)
			}
			return err
		},
	}
}

func parseEnd(s string) (End, error) {
	if len(s) < 2 || !strings.ContainsRune("cnx", rune(s[0])) {
		return End{}, fmt.Errorf("%q is neither client, node nor name", s)
	}
	if s[1:] == "*" {
		return End{s[0], -1}, nil
	}
	i, err := strconv.Atoi(s[1:])
	if err != nil || i < 0 {
		return End{}, fmt.Errorf("%q has no number", s)
	}
	return End{s[0], i}, nil
}
