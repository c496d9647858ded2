// Package gatetest tests the gates that need servers: on a real PostgreSQL, on
// SQLite and on a real Redis; and all gates with a holder whose process was
// stopped. It is a module of its own because of the drivers, and runs on Linux.
package gatetest
