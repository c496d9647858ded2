package redisnode

import (
	"crypto/tls"
	"strings"
	"testing"
)

func TestParseURL(t *testing.T) {
	tests := []struct {
		url, name, user, password string
		db                        int
	}{
		{url: "redis://host", name: "host:6379/0"},
		{url: "redis://HOST:7000/", name: "host:7000/0"},
		{url: "REDIS://Host.Example.:06379", name: "host.example.:6379/0"},
		{url: "host", name: "host:6379/0"},
		{url: "127.0.0.1:7101", name: "127.0.0.1:7101/0"},
		{url: "host:7000/3", name: "host:7000/3", db: 3},
		{url: "redis://host/03", name: "host:6379/3", db: 3},
		{url: "redis://host?db=3", name: "host:6379/3", db: 3},
		{url: "redis://host/3?db=3", name: "host:6379/3", db: 3},
		{url: "redis://[::1]", name: "[::1]:6379/0"},
		{url: "redis://[0:0::1]:7000/2", name: "[::1]:7000/2", db: 2},
		{url: "redis://:secret@host", name: "host:6379/0", password: "secret"},
		{url: "redis://bob:secret@host", name: "host:6379/0", user: "bob", password: "secret"},
		{url: "redis://b%3Aob:p%40ss%2Fw%3F%23@host/1", name: "host:6379/1", user: "b:ob", password: "p@ss/w?#", db: 1},
		{url: "redis://bob:p@ss/w?db=9#:%zz+@host/1", name: "host:6379/1", user: "bob", password: "p@ss/w?db=9#:%zz+", db: 1},
		{url: "redis://bob:two%20words@host", name: "host:6379/0", user: "bob", password: "two words"},
		{url: "unix:///run/Redis.sock", name: "/run/Redis.sock/0"},
		{url: "unix:///run//a@b.sock?db=2", name: "/run/a@b.sock/2", db: 2},
		{url: "unix://bob:p/w@d@/run/redis.sock", name: "/run/redis.sock/0", user: "bob", password: "p/w@d"},
	}
	for _, test := range tests {
		got, err := parseURL(test.url, nil)
		if err != nil {
			t.Errorf("%s: %v", test.url, err)
			continue
		}
		if got.name != test.name || got.user != test.user || got.password != test.password || got.db != test.db {
			t.Errorf("%s: got %+v", test.url, got)
		}
		if got.network != "tcp" {
			continue
		}
		if again, err := parseURL(got.name, nil); err != nil || again.name != got.name {
			t.Errorf("%s: the name %q is read as %q, %v", test.url, got.name, again.name, err)
		}
	}
}

func TestBadURLsDoNotQuoteSecrets(t *testing.T) {
	for _, url := range []string{
		"http://:s3cret@host", "redis://:s3cret@", "redis://s3cret@host", "redis://:@host", "redis://:s3cret@host:99999",
		"redis://:s3cret@host/s3cret", "redis://:s3cret@host?password=s3cret", "redis://:s3cret@host?db=x",
		"redis://:s3cret@host/1?db=2", "redis://:s3cret@host?db=1&db=1", "redis://:s3cret@ho st", "redis://:s3cret@::1",
		"redis://:s3cret@[host]", "redis://:s3cret@host:", "redis://:s3cret@host#s3cret", "rediss://:s3cret@[fe80::1%25eth0]:1", "redis://:s3cret@host/-1",
		"unix://:s3cret@", "unix://s3cret", "unix://", "unix:///", "unix://:s3cret@/sock?s3cret", "s3cret:", "", "redis://host?db=",
		"redis://:s3cret@a redis://:s3cret@b", "redis://:s3cret@a\nredis://:s3cret@b",
	} {
		_, err := Open(url, nil)
		if err == nil {
			t.Errorf("%s: no error", url)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error quotes the password: %v", url, err)
		}
	}
}

func TestTLS(t *testing.T) {
	got, err := parseURL("rediss://host:1", nil)
	if err != nil || got.tls.ServerName != "host" {
		t.Errorf("got %+v, %v", got, err)
	}
	config := &tls.Config{ServerName: "other", MinVersion: tls.VersionTLS13}
	if got, err = parseURL("rediss://[::1]", config); err != nil || got.tls.ServerName != "other" || got.tls == config {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err = parseURL("redis://host", config); err == nil {
		t.Error("TLS options for a plain connection are accepted")
	}
}

func FuzzParseURL(f *testing.F) {
	for _, seed := range []string{"redis://u:p@h:1/2?db=2", "unix://u:p@/s?db=1", "[::1]:1/0", "rediss://:%zz@h"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, url string) {
		got, err := parseURL(url, nil)
		if err != nil || got.network != "tcp" {
			return
		}
		if again, err := parseURL(got.name, nil); err != nil || again.name != got.name {
			t.Errorf("%q: the name %q is read as %q, %v", url, got.name, again.name, err)
		}
	})
}
