package main

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"example.com/redlock"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// config says where and what the nodes are: every field of redlock.Options
// that can be written down. The keys of the file are the names of the flags.
type config struct {
	Nodes       nodeList `yaml:"nodes"`
	Namespace   string   `yaml:"namespace"`
	Cluster     string   `yaml:"cluster"`
	PlainKeys   bool     `yaml:"plain-keys"`
	TTL         seconds  `yaml:"ttl"`
	MaxTTL      seconds  `yaml:"max-ttl"`
	Quorum      int      `yaml:"quorum"`
	NodeTimeout seconds  `yaml:"node-timeout"`
	ConnectWait seconds  `yaml:"connect-wait"`
	DriftRate   float64  `yaml:"drift-rate"`
	DriftFloor  seconds  `yaml:"drift-floor"`
	CounterOnly bool     `yaml:"counter-only"`
}

func (c config) options(log *slog.Logger) *redlock.Options {
	return &redlock.Options{
		Namespace: c.Namespace, Cluster: c.Cluster, PlainKeys: c.PlainKeys,
		TTL: c.leaseTTL(), MaxTTL: time.Duration(c.MaxTTL), Quorum: c.Quorum,
		NodeTimeout: time.Duration(c.NodeTimeout), ConnectWait: time.Duration(c.ConnectWait),
		DriftRate: c.DriftRate, DriftFloor: time.Duration(c.DriftFloor), CounterOnly: c.CounterOnly,
		Logger: log,
	}
}

// defaultTTL is longer than the library's: a command is stopped in the worst
// case, and a wrapper that dies hands over in seconds rather than in one.
const defaultTTL = 30 * time.Second

// leaseTTL is the TTL of a lease for which nobody says.
func (c config) leaseTTL() time.Duration {
	switch {
	case c.TTL != 0:
		return time.Duration(c.TTL)
	case c.MaxTTL != 0:
		return min(defaultTTL, time.Duration(c.MaxTTL))
	}
	return defaultTTL
}

// nodeList is a list of URLs, or one string with commas between them.
type nodeList []string

func (l *nodeList) parse(s string) error {
	var urls []string
	for url := range strings.SplitSeq(s, ",") {
		if url = strings.TrimSpace(url); url == "" {
			return errors.New("an empty URL between commas") // the list itself may hold passwords
		}
		urls = append(urls, url)
	}
	*l = urls
	return nil
}

// UnmarshalYAML never puts a value into an error: it may hold a password.
func (l *nodeList) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return l.parse(n.Value)
	}
	var urls []string
	if err := n.Decode(&urls); err != nil {
		return errors.New("nodes is not a list of URLs")
	}
	*l = urls
	return nil
}

// nodeFlags are the flags that every subcommand has.
type nodeFlags struct {
	config
	// nodes is parsed later: pflag repeats a value that it cannot parse.
	nodes string
	file  string
}

func (f *nodeFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.nodes, "nodes", "", "the nodes' `URLs`, comma-separated (or REDLOCK_NODES, or a file)")
	flags.StringVar(&f.file, "config", "", "configuration `file` (default ./redlock.yaml, then /etc/redlock.yaml)")
	flags.StringVar(&f.Namespace, "namespace", "", "prefix of all keys (default redlock)")
	flags.StringVar(&f.Cluster, "cluster", "", "name of the set of nodes (default made from their addresses)")
	flags.IntVar(&f.Quorum, "quorum", 0, "how many nodes must agree (default the majority)")
	flags.Var(&f.MaxTTL, "max-ttl", "longest TTL of any client of these nodes (default 30s)")
	flags.BoolVar(&f.PlainKeys, "plain-keys", false, "use NAME itself as the key, as other Redlock clients do")
	flags.Var(&f.ConnectWait, "connect-wait", "how long to go on while no quorum answers (default 10s)")
}

// configure returns the configuration: flags beat REDLOCK_NODES beats the file.
// set tells whether a flag was given.
func (a *app) configure(set func(flag string) bool) (config, error) {
	c, err := a.readConfig()
	if err != nil {
		return config{}, err
	}
	f := &a.flags
	from, nodes := "REDLOCK_NODES", getenv(a.env, "REDLOCK_NODES")
	if set("nodes") {
		from, nodes = "--nodes", f.nodes
	}
	if set("nodes") && nodes == "" {
		// An unset variable, most likely. The file may mean other nodes.
		return config{}, configf("--nodes is empty")
	}
	if nodes != "" {
		if err := c.Nodes.parse(nodes); err != nil {
			return config{}, configf("%s: %v", from, err)
		}
	}
	override(set("namespace"), &c.Namespace, f.Namespace)
	override(set("cluster"), &c.Cluster, f.Cluster)
	override(set("quorum"), &c.Quorum, f.Quorum)
	override(set("max-ttl"), &c.MaxTTL, f.MaxTTL)
	override(set("plain-keys"), &c.PlainKeys, f.PlainKeys)
	override(set("connect-wait"), &c.ConnectWait, f.ConnectWait)
	return c, nil
}

func override[T any](given bool, dst *T, v T) {
	if given {
		*dst = v
	}
}

// readConfig reads the file that was asked for, or else the first that is
// there and can be trusted.
func (a *app) readConfig() (config, error) {
	if a.flags.file != "" {
		text, distrust, err := readFile(a.flags.file)
		switch {
		case err != nil:
			return config{}, configf("%v", err)
		case distrust != "":
			// To ignore a file that was asked for would be to lock elsewhere.
			return config{}, configf("%s is not used: it is %s", a.flags.file, distrust)
		}
		return parseConfig(a.flags.file, text)
	}
	for _, path := range a.configPaths {
		text, distrust, err := readFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return config{}, configf("%v", err)
		case distrust != "":
			a.log.Warn("configuration file ignored", "file", path, "because", "it is "+distrust)
			continue
		}
		return parseConfig(path, text)
	}
	return config{}, nil
}

// readFile reads a configuration file, unless somebody else could have written
// it: who says where the nodes are decides whom the lock excludes.
func readFile(path string) (text []byte, distrust string, err error) {
	// Opening a pipe would wait for somebody to write to it.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrPermission) {
		if info, statErr := os.Stat(path); statErr == nil && distrustFile(info) != "" {
			return nil, distrustFile(info), nil
		}
	}
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, "", err
	case !info.Mode().IsRegular():
		return nil, "no regular file", nil
	case distrustFile(info) != "":
		return nil, distrustFile(info), nil
	}
	text, err = io.ReadAll(f)
	return text, "", err
}

func parseConfig(path string, text []byte) (config, error) {
	var c config
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:\n")
		return config{}, configf("%s: %s", path, strings.ReplaceAll(strings.TrimSpace(text), " in type main.config", ""))
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return config{}, configf("%s: more than one document", path)
	}
	return c, nil
}

// getenv returns the last value of a variable, which is the one that counts.
func getenv(env []string, key string) string {
	for _, kv := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(kv, key+"="); ok {
			return v
		}
	}
	return ""
}
