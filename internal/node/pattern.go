package node

import "errors"

// Pattern is a glob over lock names, with the meaning that Redis gives it: on
// bytes, * stands for any number of them and ? for one; [abc], [a-z] and [^a-z]
// for one that is, or is not, among those named; a backslash takes away the
// meaning of what follows it. No byte is special otherwise, the slash neither.
type Pattern []element

// element matches one byte, or any number of any bytes.
type element struct {
	star bool
	set  byteSet
}

type byteSet [4]uint64

func (s *byteSet) add(b byte)     { s[b/64] |= 1 << (b % 64) }
func (s byteSet) has(b byte) bool { return s[b/64]&(1<<(b%64)) != 0 }

func (s *byteSet) invert() {
	for i := range s {
		s[i] = ^s[i]
	}
}

// MaxPatternBytes is enough for any name with each of its bytes escaped.
const MaxPatternBytes = 1024

// Servers match these, but not all alike, or otherwise with a key around them.
var (
	errPatternLong  = errors.New("it is longer than 1,024 bytes")
	errPatternEnd   = errors.New("nothing follows its last backslash")
	errPatternClass = errors.New("it has a [ without a ]")
	errPatternRange = errors.New("it has a range in brackets that is not ASCII")
)

// ParsePattern reads a glob. What Redis takes without an end, such as a bracket
// that is not closed, is an error.
func ParsePattern(text string) (Pattern, error) {
	if len(text) > MaxPatternBytes {
		return nil, errPatternLong
	}
	var p Pattern
	for text != "" {
		var e element
		c := text[0]
		text = text[1:]
		switch c {
		case '*':
			e.star = true
		case '?':
			e.set.invert()
		case '[':
			var err error
			if e.set, text, err = parseClass(text); err != nil {
				return nil, err
			}
		case '\\':
			if text == "" {
				return nil, errPatternEnd
			}
			e.set.add(text[0])
			text = text[1:]
		default:
			e.set.add(c)
		}
		p = append(p, e)
	}
	return p, nil
}

// parseClass reads what follows a [, up to and with the ].
func parseClass(text string) (set byteSet, rest string, err error) {
	negated := text != "" && text[0] == '^'
	if negated {
		text = text[1:]
	}
	for {
		switch {
		case text == "":
			return set, "", errPatternClass
		case text[0] == '\\' && len(text) >= 2:
			set.add(text[1])
			text = text[2:]
		case text[0] == ']':
			if negated {
				set.invert()
			}
			return set, text[1:], nil
		case len(text) >= 3 && text[1] == '-':
			low, high := min(text[0], text[2]), max(text[0], text[2])
			if high >= 0x80 { // signed on some machines: lower than all others
				return set, "", errPatternRange
			}
			for b := low; b <= high; b++ {
				set.add(b)
			}
			text = text[3:]
		default:
			set.add(text[0])
			text = text[1:]
		}
	}
}

// Match reports whether p matches the whole of name.
func (p Pattern) Match(name string) bool {
	i, j := 0, 0
	star, mark := -1, 0 // the last star met, and where what it stands for ends
	for j < len(name) {
		switch {
		case i < len(p) && p[i].star:
			star, mark = i, j
			i++
		case i < len(p) && p[i].set.has(name[j]):
			i++
			j++
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(p) && p[i].star {
		i++
	}
	return i == len(p)
}
