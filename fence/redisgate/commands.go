package redisgate

import (
	"fmt"
	"strconv"
	"strings"
)

// The commands that the gate lets through, by where their keys are. The first key
// always comes right after the name. A command that is not here could touch keys
// that the gate does not see, as SORT does with BY, GET and STORE, or another
// database, as COPY and MOVE do.
const (
	firstIsKey = `
		APPEND BITCOUNT BITFIELD BITFIELD_RO BITPOS DECR DECRBY DUMP EXPIRE EXPIREAT EXPIRETIME
		GEOADD GEODIST GEOHASH GEOPOS GEORADIUS_RO GEORADIUSBYMEMBER_RO GEOSEARCH
		GET GETBIT GETDEL GETEX GETRANGE GETSET
		HDEL HEXISTS HGET HGETALL HINCRBY HINCRBYFLOAT HKEYS HLEN HMGET HMSET HRANDFIELD HSCAN HSET HSETNX HSTRLEN HVALS
		HEXPIRE HEXPIREAT HEXPIRETIME HPERSIST HPEXPIRE HPEXPIREAT HPEXPIRETIME HPTTL HTTL HGETDEL HGETEX HSETEX
		INCR INCRBY INCRBYFLOAT
		LINDEX LINSERT LLEN LPOP LPOS LPUSH LPUSHX LRANGE LREM LSET LTRIM RPOP RPUSH RPUSHX
		PERSIST PEXPIRE PEXPIREAT PEXPIRETIME PFADD PSETEX PTTL RESTORE
		SADD SCARD SET SETBIT SETEX SETNX SETRANGE SISMEMBER SMEMBERS SMISMEMBER SPOP SRANDMEMBER SREM SSCAN STRLEN SUBSTR
		TTL TYPE
		XACK XADD XAUTOCLAIM XCLAIM XDEL XLEN XPENDING XRANGE XREVRANGE XSETID XTRIM
		ZADD ZCARD ZCOUNT ZINCRBY ZLEXCOUNT ZMSCORE ZPOPMAX ZPOPMIN ZRANDMEMBER ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANK
		ZREM ZREMRANGEBYLEX ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE ZREVRANK ZSCAN ZSCORE`
	firstTwoAreKeys    = `GEOSEARCHSTORE LCS LMOVE RENAME RENAMENX RPOPLPUSH SMOVE ZRANGESTORE`
	allAreKeys         = `DEL EXISTS MGET PFCOUNT PFMERGE SDIFF SDIFFSTORE SINTER SINTERSTORE SUNION SUNIONSTORE TOUCH UNLINK`
	everyOtherIsKey    = `MSET MSETNX`
	numberTellsHowMany = `ZDIFFSTORE ZINTERSTORE ZUNIONSTORE` // destination, number of keys, keys
)

// moreKeys finds the keys among the arguments that come after the first key, for
// each command that has any.
type moreKeys func(args []string) ([]string, error)

var commands = func() map[string]moreKeys {
	m := make(map[string]moreKeys)
	for names, more := range map[string]moreKeys{
		firstIsKey:         func([]string) ([]string, error) { return nil, nil },
		firstTwoAreKeys:    func(args []string) ([]string, error) { return args[:min(1, len(args))], nil },
		allAreKeys:         func(args []string) ([]string, error) { return args, nil },
		everyOtherIsKey:    everyOther,
		numberTellsHowMany: counted,
	} {
		for _, name := range strings.Fields(names) {
			m[name] = more
		}
	}
	return m
}()

// everyOther gets a value, a key, a value, and so on.
func everyOther(args []string) (keys []string, err error) {
	for i := 1; i < len(args); i += 2 {
		keys = append(keys, args[i])
	}
	return keys, nil
}

// counted gets a number, and that many keys. It takes no number that the server
// might read otherwise.
func counted(args []string) ([]string, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("%w: the number of keys is missing", ErrBadKey)
	}
	n, err := strconv.Atoi(args[0])
	if err != nil || strconv.Itoa(n) != args[0] || n < 0 || n > len(args)-1 {
		return nil, fmt.Errorf("%w: %q is not the number of keys that follow", ErrBadKey, args[0])
	}
	return args[1 : 1+n], nil
}

// keys returns all keys of a command, if they are known and this gate guards
// them.
func (p pass) keys(command, key string, args []string) ([]string, error) {
	more, ok := commands[strings.ToUpper(command)]
	if !ok {
		return nil, fmt.Errorf("%w: which keys %q takes is not known", ErrBadKey, command)
	}
	rest, err := more(args)
	if err != nil {
		return nil, err
	}
	all := append([]string{key}, rest...)
	for _, k := range all {
		if tag, ok := hashTag(k); !ok || tag != p.gate.tag {
			return nil, fmt.Errorf("%w: %q does not have the hash tag {%s}", ErrBadKey, k, p.gate.tag)
		}
		// Who writes to it, or deletes it, makes the gate believe an old token.
		if k == p.key() {
			return nil, fmt.Errorf("%w: %q is where the gate keeps its tokens", ErrBadKey, k)
		}
	}
	return all, nil
}
