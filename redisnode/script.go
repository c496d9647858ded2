package redisnode

import (
	"context"
	"embed"
	"fmt"
	"sync/atomic"
)

//go:embed scripts/*.lua
var scripts embed.FS

// source returns a script: the last of names, after what it shares with others.
func source(names ...string) string {
	var text []byte
	for _, name := range names {
		part, err := scripts.ReadFile("scripts/" + name + ".lua")
		if err != nil {
			panic(err) // it is part of this package
		}
		text = append(text, part...)
	}
	return string(text)
}

// script is a Lua script and the name by which this server knows it.
type script struct {
	source string
	// sha is what SCRIPT LOAD answered: computing it here would need SHA-1,
	// which FIPS forbids.
	sha atomic.Pointer[string]
}

// run runs s with args, which begins with two free places.
func (n *Node) run(ctx context.Context, s *script, args []string) (any, error) {
	if !n.evalOnly.Load() {
		reply, err := n.runLoaded(ctx, s, args)
		if err == nil || !isRefusal(err) {
			return reply, err
		}
	}
	args[0], args[1] = "EVAL", s.source
	reply, err := n.conn.Do(ctx, args...)
	if err == nil {
		// EVALSHA or SCRIPT is what was refused, and will be again.
		n.evalOnly.Store(true)
	}
	return reply, err
}

func (n *Node) runLoaded(ctx context.Context, s *script, args []string) (any, error) {
	for try := 1; ; try++ {
		sha := s.sha.Load()
		if sha == nil {
			var err error
			if sha, err = n.load(ctx, s); err != nil {
				return nil, err
			}
		}
		args[0], args[1] = "EVALSHA", *sha
		reply, err := n.conn.Do(ctx, args...)
		if err == nil || !isNoScript(err) || try == 2 {
			return reply, err
		}
		s.sha.Store(nil)
	}
}

func (n *Node) load(ctx context.Context, s *script) (*string, error) {
	reply, err := n.conn.Do(ctx, "SCRIPT", "LOAD", s.source)
	if err != nil {
		return nil, notSent(err)
	}
	sha, ok := reply.(string)
	if !ok {
		return nil, notSent(fmt.Errorf("redisnode: SCRIPT LOAD answered %T", reply))
	}
	s.sha.Store(&sha)
	return &sha, nil
}
