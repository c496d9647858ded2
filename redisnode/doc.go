// Package redisnode is a node of a lock on a Redis or Valkey server: one
// master, one ordered connection, one script call for many operations.
//
// Open connects by URL. New takes any client that can offer a Conn.
//
// The server must let its user run EVAL, and in scripts TIME, INFO, GET, SET,
// DEL, PTTL, PEXPIRE, HMGET, HSET, HDEL and HGETALL on the keys of the namespace.
// Lists need SCAN and, with plain keys, GETRANGE.
// EVALSHA and SCRIPT LOAD save bandwidth where they are allowed.
package redisnode
