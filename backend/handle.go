package backend

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
)

// Handle is what a lease that was moved out of a process consists of.
type Handle struct {
	// Name of the lock.
	Name string `json:"n"`
	// ID is the secret that the nodes know the holder by.
	ID string `json:"i"`
	// Token of the lease.
	Token uint64 `json:"t"`
	// Shared tells that it is held together with others.
	Shared bool `json:"s,omitempty"`
}

const handlePrefix = "rl1."

// Encode returns the handle as one word without spaces.
func (h Handle) Encode() (string, error) {
	b, err := json.Marshal(struct {
		Handle
		Name []byte `json:"n"` // names may be any bytes; JSON strings may not
	}{h, []byte(h.Name)})
	if err != nil {
		return "", err
	}
	return handlePrefix + base64.RawURLEncoding.EncodeToString(b), nil
}

// DecodeHandle reads what Encode wrote. A string that is no handle is an
// ErrBadOption; the error does not repeat the string, which is a secret.
func DecodeHandle(s string) (Handle, error) {
	bad := fmt.Errorf("redlock: %w: not a handle", ErrBadOption)
	rest, ok := strings.CutPrefix(s, handlePrefix)
	if !ok {
		return Handle{}, bad
	}
	b, err := base64.RawURLEncoding.DecodeString(rest)
	if err != nil {
		return Handle{}, bad
	}
	var raw struct {
		Handle
		Name []byte `json:"n"`
	}
	if err := json.Unmarshal(b, &raw); err != nil || len(raw.Name) == 0 || raw.ID == "" {
		return Handle{}, bad
	}
	raw.Handle.Name = string(raw.Name)
	return raw.Handle, nil
}

// HandleName returns the name that a handle is for.
func HandleName(s string) (string, error) {
	h, err := DecodeHandle(s)
	return h.Name, err
}
