package filegate

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// step is one of the things that have to happen in order, with a crash possible
// between any two.
type step struct {
	name string
	do   func() error
}

func runAll(steps []step) error {
	for _, s := range steps {
		if err := s.do(); err != nil {
			return err
		}
	}
	return nil
}

// replace puts data in the place of the file at path, which is whole, the old
// one or the new one, at any time. The caller has the lock, which all that
// write FILE.new have.
func (g *Gate) replace(path string, data []byte) error {
	mode := fs.FileMode(0o666) // less what the umask takes away
	old, err := os.Stat(path)
	if err == nil {
		mode = old.Mode().Perm()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	name := path + ".new"
	var f *os.File
	err = g.run([]step{
		{"remove what a crash left", func() error { return removeIfAny(name) }},
		{"create", func() error {
			f, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
			if err != nil || old == nil {
				return err
			}
			return f.Chmod(mode)
		}},
		{"write", func() error {
			_, err := f.Write(data)
			return err
		}},
		// Before the rename, or a power cut may leave the new name with nothing in it.
		{"sync", func() error { return f.Sync() }},
		{"close", func() error { return f.Close() }},
		{"rename", func() error { return os.Rename(name, path) }},
		{"sync the folder", func() error { return syncFolder(filepath.Dir(path)) }},
	})
	if err != nil && f != nil {
		_ = f.Close() // of no account: what was written is not used
	}
	return err
}

func removeIfAny(name string) error {
	if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
