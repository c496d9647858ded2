package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// seconds is a duration as people write it: 30, 0.5, 30s, 1m30s. A number
// alone is in seconds, as flock(1) and sleep(1) have it.
type seconds time.Duration

// maxSeconds keeps the sum of a time and a duration far from overflow.
const maxSeconds = 100 * 365 * 24 * 3600

func parseSeconds(s string) (time.Duration, error) {
	if s != "" && strings.Trim(s, "0123456789.") == "" {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || f > maxSeconds {
			return 0, fmt.Errorf("%q is not a number of seconds", s)
		}
		return time.Duration(f * float64(time.Second)), nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > maxSeconds*time.Second {
		return 0, fmt.Errorf("%q is not a duration such as 30, 0.5 or 30s", s)
	}
	return d, nil
}

// Set, String and Type make it a flag.

func (d *seconds) Set(s string) error {
	v, err := parseSeconds(s)
	if err == nil {
		*d = seconds(v)
	}
	return err
}

func (d *seconds) String() string {
	if *d == 0 {
		return "" // not given
	}
	return time.Duration(*d).String()
}

func (d *seconds) Type() string { return "duration" }

// UnmarshalYAML makes it a value in the configuration file.
func (d *seconds) UnmarshalYAML(n *yaml.Node) error {
	var s string
	if err := n.Decode(&s); err != nil {
		return err
	}
	if err := d.Set(s); err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	return nil
}
