// Package redisgate is a gate around keys in Redis: each command is carried out
// in one script with the check of the fencing token. It needs Redis 7.0 or
// newer, and stands on any client.
//
// It protects keys with a hash tag, as {42} in stock:{42}, from late holders of
// a lock, as long as nobody uses these keys around the gate. It remembers the
// tokens in the hash redlock-gate:{42}, which must stay as long as the keys do:
// give it no expiry, use the eviction policy noeviction, and know that a server
// which forgets its last seconds (a crash without appendfsync always, a failover
// to a replica) forgets tokens and data alike: whoever opened the gate in those
// seconds is then refused, with fence.ErrNotOpen, until it opens it again.
// Each command is atomic, several are not: a holder that fails half-way leaves
// what it had done by then. A holder that needs several gates opens all of them,
// in a fixed order, before it reads from the first.
package redisgate

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"example.com/redlock/fence"
)

// Conn is a connection to the server, or a pool of them. That of a Redis
// Cluster sends a script to the node that has its keys.
type Conn interface {
	// Do sends one command and returns the reply: nil, int64, string, or []any
	// of these. A server's error reply is an error.
	Do(ctx context.Context, args ...string) (any, error)
}

// ErrBadKey: a key, a tag, or a command with its keys, that the gate cannot
// guard. Nothing was sent.
var ErrBadKey = errors.New("redisgate: not a key of this gate")

//go:embed scripts/common.lua
var common string

//go:embed scripts/open.lua
var openPart string

//go:embed scripts/do.lua
var doPart string

var openScript, doScript = common + openPart, common + doPart

// Gate guards the keys of one hash tag. Its methods may be called from any
// goroutine.
type Gate struct {
	conn Conn
	tag  string
}

// New returns the gate of all keys with the hash tag {tag}. tag is usually the
// name of the lock; it must not be empty or have a closing brace.
func New(conn Conn, tag string) (*Gate, error) {
	if tag == "" || strings.Contains(tag, "}") {
		return nil, fmt.Errorf("%w: %q cannot be a hash tag", ErrBadKey, tag)
	}
	return &Gate{conn, tag}, nil
}

// Open opens the gate for the holder of an exclusive lease. From then on older
// tokens are refused. The error is a *fence.StaleError if the gate was opened
// with a token that goes before this one, fence.ErrBadToken, or that of Conn: then
// the gate may or may not be open, and Open may be called again.
func (g *Gate) Open(ctx context.Context, token fence.Token) (*Writer, error) {
	p := pass{g, fence.Claim{Token: token}}
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	return &Writer{p}, nil
}

// OpenShared opens the gate for the holder of a shared lease, which may read
// beside others. Its errors are those of Open.
func (g *Gate) OpenShared(ctx context.Context, token fence.Token) (*Reader, error) {
	p := pass{g, fence.Claim{Token: token, Shared: true}}
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	return &Reader{p}, nil
}

// Writer is an opened gate that one may read and write through. It is for one
// lease, and needs no closing. Goroutines that share it, or the token, are let in
// alike: nothing keeps another's write out between a read and a write of one.
type Writer struct{ pass pass }

// Do carries out one command and returns its reply, as Conn gives it, a status
// included: Do(ctx, "HINCRBY", "stock:{42}", "apples", "-3"). It must be a
// command of Redis with a key right after its name, and one of which this package
// knows where all keys are: of those that Redis 7 lets scripts call, all but COPY,
// MOVE, SORT, SORT_RO, GEORADIUS and GEORADIUSBYMEMBER (use GEOSEARCH), SPUBLISH,
// those that wait, as BLPOP, and those of modules. If the token is stale by now,
// nothing is done and the error is a *fence.StaleError; fence.ErrNotOpen if the
// server has forgotten the tokens; ErrBadKey if the command is another one, or a
// key does not have the tag or is the gate's own. After another error the command
// may or may not have been carried out.
func (w *Writer) Do(ctx context.Context, command, key string, args ...string) (any, error) {
	return w.pass.do(ctx, "EVAL", command, key, args)
}

// Reader is an opened gate that one may read through.
type Reader struct{ pass pass }

// Do is like Writer.Do; the server refuses commands that write.
func (r *Reader) Do(ctx context.Context, command, key string, args ...string) (any, error) {
	return r.pass.do(ctx, "EVAL_RO", command, key, args)
}

type pass struct {
	gate  *Gate
	claim fence.Claim
}

func (p pass) key() string { return "redlock-gate:{" + p.gate.tag + "}" }

func (p pass) mode() string {
	if p.claim.Shared {
		return "shared"
	}
	return "exclusive"
}

func (p pass) open(ctx context.Context) error {
	if !p.claim.Token.Valid() {
		return fmt.Errorf("%w: %v", fence.ErrBadToken, p.claim)
	}
	reply, err := p.gate.conn.Do(ctx, "EVAL", openScript, "1", p.key(), p.mode(), p.claim.Token.String())
	if err != nil {
		return fmt.Errorf("redisgate: open %q: %w", p.gate.tag, err)
	}
	_, err = p.verdict(reply)
	return err
}

func (p pass) do(ctx context.Context, eval, command, key string, args []string) (any, error) {
	keys, err := p.keys(command, key, args)
	if err != nil {
		return nil, err
	}
	all := append([]string{eval, doScript, strconv.Itoa(1 + len(keys)), p.key()}, keys...)
	all = append(append(all, p.mode(), p.claim.Token.String(), command), args...)
	reply, err := p.gate.conn.Do(ctx, all...)
	if err != nil {
		return nil, fmt.Errorf("redisgate: %s %q: %w", command, key, err)
	}
	return p.verdict(reply)
}

// verdict reads the reply of either script.
func (p pass) verdict(reply any) (any, error) {
	parts, _ := reply.([]any)
	if len(parts) == 2 && parts[0] == "ok" {
		return parts[1], nil
	}
	if len(parts) != 3 {
		return nil, p.odd(reply)
	}
	if parts[0] == "ok" {
		return nil, nil
	}
	w, r := token(parts[1]), token(parts[2])
	// The gate's own decision, for the error that says what it was opened with.
	err := fence.Gate{Exclusive: w, Shared: r}.Check(p.claim)
	stale, isStale := errors.AsType[*fence.StaleError](err)
	switch {
	case parts[0] == "stale" && isStale:
		stale.Resource = p.gate.tag
		return nil, stale
	case parts[0] == "closed" && errors.Is(err, fence.ErrNotOpen):
		return nil, fmt.Errorf("redisgate: %q: %w", p.gate.tag, err)
	}
	return nil, p.odd(reply)
}

func (p pass) odd(reply any) error {
	return fmt.Errorf("redisgate: %q: the script answered %v", p.gate.tag, reply)
}

// token returns 0 for what is none: the gate was opened with no such token.
func token(v any) fence.Token {
	s, _ := v.(string)
	t, err := fence.ParseToken(s)
	if err != nil {
		return 0
	}
	return t
}

// hashTag finds what a Redis Cluster places key by: what is between the first
// opening brace and the next closing one, unless that is nothing.
func hashTag(key string) (tag string, ok bool) {
	_, rest, _ := strings.Cut(key, "{")
	tag, _, ok = strings.Cut(rest, "}")
	return tag, ok && tag != ""
}
