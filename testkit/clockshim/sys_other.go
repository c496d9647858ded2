//go:build !linux

package clockshim

import "errors"

// Other systems load a library before others as well, but none of those is
// tested here.
func library() ([]byte, error) { return nil, errors.ErrUnsupported }

func (*Clock) open(string) error { return errors.ErrUnsupported }

func monotonic() int64 { return 0 }
