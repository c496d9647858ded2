//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package filegate

import (
	"context"
	"errors"
)

func lock(context.Context, string) (unlock func(), err error) { return nil, errors.ErrUnsupported }
