package httpgate

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"example.com/redlock/fence"
)

// The headers.
const (
	KeyHeader   = "Redlock-Key"
	FenceHeader = "Redlock-Fence"
	ModeHeader  = "Redlock-Mode"
)

const (
	modeExclusive = "exclusive"
	modeShared    = "shared"
)

func setClaim(h http.Header, c fence.Claim) {
	h.Set(FenceHeader, c.Token.String())
	h.Set(ModeHeader, modeExclusive)
	if c.Shared {
		h.Set(ModeHeader, modeShared)
	}
}

// single returns the value of a header that may come once: two values are two
// claims.
func single(h http.Header, name string) (string, error) {
	switch values := h.Values(name); len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	default:
		return "", fmt.Errorf("httpgate: %s comes %d times", name, len(values))
	}
}

// encodeName makes a header value of the name of a lock, which may have any
// bytes. Names of visible ASCII stay as they are, so that they can be typed.
func encodeName(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c >= 0x7f || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func decodeName(value string) (string, error) { return url.PathUnescape(value) }
