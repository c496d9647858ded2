package sim

// register is what a name guards: a number that everybody adds to by reading
// it and writing one more. It is kept twice, behind a gate and without one.
type register struct {
	highest  uint64 // token that was opened
	value    int
	accepted int // writes
	loose    int // without the gate
	written  int // writes to loose
}

// open makes the gate refuse smaller tokens, before the first read, and reads.
func (r *register) open(token uint64) (value int, ok bool) {
	if token < r.highest {
		return 0, false
	}
	r.highest = token
	return r.value, true
}

// write stores a value, unless a larger token was opened meanwhile.
func (r *register) write(token uint64, value int) bool {
	if token < r.highest {
		return false
	}
	r.highest = token
	r.value = value
	r.accepted++
	return true
}

func (r *register) writeLoose(value int) {
	r.loose = value
	r.written++
}
