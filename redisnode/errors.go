package redisnode

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"example.com/redlock/internal/node"
)

// ErrNotSent is what a Conn wraps in an error if it is certain that the
// command was not written.
var ErrNotSent = errors.New("not sent")

func notSent(err error) error {
	if errors.Is(err, ErrNotSent) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNotSent, err)
}

// The codes with which a server refuses a command, or a script before its
// first write. They are looked for anywhere in the text, because clients wrap
// errors; the blank behind them is part of what servers send.
var (
	deniedCodes  = []string{"NOPERM ", "NOAUTH ", "WRONGPASS ", "DENIED "}
	refusedCodes = []string{
		"NOSCRIPT ", "LOADING ", "READONLY ", "MASTERDOWN ", "MISCONF ", "BUSY ", "NOREPLICAS ", "OOM ",
		"CLUSTERDOWN ", "MOVED ", "ASK ", "TRYAGAIN ", "CROSSSLOT ",
	}
	clusterCodes = []string{"CLUSTERDOWN ", "MOVED ", "CROSSSLOT "}
	// What is said of a command of a script, by Redis up to 7.0 and from 7.2 on.
	deniedTexts  = []string{"can't run this command", "can't access at least one of the keys", "ACL failure in script"}
	unknownTexts = []string{"unknown command", "unsupported command"}
)

// callError says what is known of a call that got no reply.
func callError(err error) *node.CallError {
	text := err.Error()
	e := &node.CallError{Err: withoutAdvice(err), Denied: isDenied(text) || containsAny(text, unknownTexts)}
	if containsAny(text, clusterCodes) {
		e.Mode = "cluster"
	}
	var op *net.OpError
	dial := errors.As(err, &op) && op.Op == "dial"
	e.Sent = !(e.Denied || dial || errors.Is(err, ErrNotSent) || containsAny(text, refusedCodes))
	return e
}

// withoutAdvice shortens the refusal of a server in protected mode, which goes on
// for a thousand characters with ways to open it, to everybody.
func withoutAdvice(err error) error {
	if text, _, long := strings.Cut(err.Error(), " In this mode connections are only accepted"); long {
		return errors.New(text)
	}
	return err
}

// isDenied reports whether a server's text means that the user lacks a right.
func isDenied(text string) bool {
	return containsAny(text, deniedCodes) || containsAny(text, deniedTexts)
}

func isNoScript(err error) bool { return strings.Contains(err.Error(), "NOSCRIPT") }

func isUnknown(err error) bool { return containsAny(err.Error(), unknownTexts) }

// isRefusal reports whether the server does not let this user, or anybody,
// use a command.
func isRefusal(err error) bool {
	return strings.Contains(err.Error(), "NOPERM ") || isUnknown(err)
}

func containsAny(text string, parts []string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}
