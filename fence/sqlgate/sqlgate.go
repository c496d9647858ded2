// Package sqlgate is a gate in an SQL database: a row of a small table that is
// checked and raised by the first statement of each transaction. It needs
// database/sql only, and a table made by Schema. It is tested on PostgreSQL and
// SQLite.
//
// It protects what is read and written in transactions that begin with it. A
// transaction that has opened the gate keeps all others of the same resource
// waiting until it ends, readers included, so it had better be short; and what
// it read is good until then, or, if it commits, as long as the token is not
// refused. After a rollback of the whole transaction, also of one that only read,
// nothing is protected: the gate may be as before, and what was read is to be
// read again. Do avoids that where work fails. It does not protect what is done
// without the gate or outside the database. Several transactions are not one:
// a holder that fails between two leaves what the first one did. A transaction
// that needs several resources opens all of them first, in a fixed order.
//
// It does not work with read-only transactions: opening writes.
package sqlgate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"example.com/redlock/fence"
)

// Schema makes the table, if it does not exist. Rows must not be deleted as long
// as somebody may come late.
const Schema = `CREATE TABLE IF NOT EXISTS redlock_gate (
	resource        VARCHAR(512) NOT NULL PRIMARY KEY,
	exclusive_token BIGINT       NOT NULL,
	shared_token    BIGINT       NOT NULL,
	opened          BIGINT       NOT NULL
)`

// Placeholders are how a database writes the arguments of a statement. Dollar
// stands for the dialect of PostgreSQL as well: see DoShared.
type Placeholders uint8

// The kinds of placeholders.
const (
	Dollar   Placeholders = iota // $1, $2: PostgreSQL
	Question                     // ?, ?: SQLite, MySQL
)

const openTries = 3

// Options are the choices of New. Nil means all defaults.
type Options struct {
	Placeholders Placeholders
	// Insert adds the row of a resource, its one argument, with three zeros, and
	// does nothing if there is one: also if another transaction, that this one
	// waits for, adds it. The default is an INSERT with ON CONFLICT DO NOTHING,
	// which PostgreSQL and SQLite have; MySQL would have INSERT IGNORE.
	Insert string
}

// Gate opens rows of the table. It has no state, so that one does for all
// databases of a kind.
type Gate struct {
	openExclusive, openShared, look, insert string
	readOnly                                string // for the rest of a transaction; may be empty
}

// New returns a gate. It does not touch the database.
func New(o *Options) *Gate {
	if o == nil {
		o = new(Options)
	}
	// opened makes every admission a change: there are databases that do not
	// count a row as affected, and may not lock it, if it stays as it was.
	g := &Gate{
		openExclusive: `UPDATE redlock_gate SET exclusive_token = ?, opened = opened + 1
			WHERE resource = ? AND exclusive_token <= ? AND shared_token < ?`,
		openShared: `UPDATE redlock_gate SET shared_token = CASE WHEN shared_token < ? THEN ? ELSE shared_token END, opened = opened + 1
			WHERE resource = ? AND exclusive_token < ?`,
		look: `SELECT exclusive_token, shared_token FROM redlock_gate WHERE resource = ?`,
		insert: `INSERT INTO redlock_gate (resource, exclusive_token, shared_token, opened) VALUES (?, 0, 0, 0)
			ON CONFLICT (resource) DO NOTHING`,
	}
	if o.Placeholders == Dollar {
		for _, s := range []*string{&g.openExclusive, &g.openShared, &g.look, &g.insert} {
			*s = dollars(*s)
		}
		g.readOnly = "SET TRANSACTION READ ONLY"
	}
	if o.Insert != "" {
		g.insert = o.Insert
	}
	return g
}

func dollars(query string) string {
	parts := strings.Split(query, "?")
	var b strings.Builder
	for i, p := range parts[:len(parts)-1] {
		b.WriteString(p + "$" + strconv.Itoa(i+1))
	}
	return b.String() + parts[len(parts)-1]
}

// Do runs work in a transaction of db that has opened the gate of resource for
// the holder of an exclusive lease, and commits it if work returns nil. resource
// is usually the name of the lock. If the token is stale, work does not run and
// the error is a *fence.StaleError. Errors of the database are wrapped, so that a
// caller finds out, with errors.As, whether to try again: serialization failures
// and deadlocks. ctx is for the whole; give it the lease's context, and the
// transaction is rolled back when the lease ends.
//
// If work returns an error, Do returns it as it is, undoes what work did and
// commits the opening: what work read stays good for the next Do. If that cannot
// be done (ctx has ended, work has ended the transaction, the connection is lost),
// the whole is rolled back, and the error is one of this package that wraps both.
// After it, after any other error of this package, and after a panic of work,
// the gate may be as before.
func (g *Gate) Do(ctx context.Context, db *sql.DB, resource string, token fence.Token, work func(tx *sql.Tx) error) error {
	return g.do(ctx, db, resource, fence.Claim{Token: token}, work)
}

// DoShared is Do for the holder of a shared lease. work must only read.
// PostgreSQL refuses what writes or locks rows, the opening of another gate
// included: the transaction is read-only once the gate is open. On other databases
// nothing stops work.
func (g *Gate) DoShared(ctx context.Context, db *sql.DB, resource string, token fence.Token, work func(tx *sql.Tx) error) error {
	return g.do(ctx, db, resource, fence.Claim{Token: token, Shared: true}, work)
}

// Open opens the gate in a transaction that the caller has begun, and has not
// read in yet. It is for transactions with an isolation level of their own and
// for several resources; Do is simpler. Its errors are those of Do. On each of
// them it rolls the transaction back, so that whatever the caller does with it
// afterwards, Commit included, ends in sql.ErrTxDone and changes nothing; other
// gates that the transaction had opened are then as before.
func (g *Gate) Open(ctx context.Context, tx *sql.Tx, resource string, token fence.Token) error {
	return g.open(ctx, tx, resource, fence.Claim{Token: token})
}

// OpenShared is Open for the holder of a shared lease. The transaction must only
// read: nothing else stops it.
func (g *Gate) OpenShared(ctx context.Context, tx *sql.Tx, resource string, token fence.Token) error {
	return g.open(ctx, tx, resource, fence.Claim{Token: token, Shared: true})
}

func (g *Gate) do(ctx context.Context, db *sql.DB, resource string, c fence.Claim, work func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return failed("begin", resource, err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after the commit
	if err := g.open(ctx, tx, resource, c); err != nil {
		return err
	}
	// An older holder must not get in between two transactions of this one only
	// because the first ended in an error: it may have read.
	if _, err := tx.ExecContext(ctx, "SAVEPOINT redlock_gate"); err != nil {
		return failed("open", resource, err)
	}
	if c.Shared && g.readOnly != "" {
		if _, err := tx.ExecContext(ctx, g.readOnly); err != nil {
			return failed("open", resource, err)
		}
	}
	if err := work(tx); err != nil {
		if lost := undo(ctx, tx); lost != nil {
			return fmt.Errorf("%w (sqlgate: keep open %q: %w)", err, resource, lost)
		}
		return err
	}
	return failed("commit", resource, tx.Commit())
}

// undo takes back what was done since the gate was opened, and commits the
// opening.
func undo(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT redlock_gate"); err != nil {
		return err
	}
	return tx.Commit()
}

// open leaves no transaction behind that is usable and has not opened the gate:
// a caller who forgets to look at the error would commit a stale write.
func (g *Gate) open(ctx context.Context, tx *sql.Tx, resource string, c fence.Claim) error {
	err := g.tryOpen(ctx, tx, resource, c)
	if err != nil {
		// Also if this fails, tx is done: at worst the connection is closed.
		_ = tx.Rollback()
	}
	return err
}

func (g *Gate) tryOpen(ctx context.Context, tx *sql.Tx, resource string, c fence.Claim) error {
	if !c.Token.Valid() {
		return fmt.Errorf("%w: %v", fence.ErrBadToken, c)
	}
	// A second try always tells, unless rows are deleted meanwhile.
	for range openTries {
		if ok, err := g.raise(ctx, tx, resource, c); ok || err != nil {
			return err
		}
		has, err := g.tokens(ctx, tx, resource)
		if errors.Is(err, sql.ErrNoRows) {
			_, err = tx.ExecContext(ctx, g.insert, resource)
			if err == nil {
				continue
			}
		}
		if err != nil {
			return failed("open", resource, err)
		}
		// No error: another transaction has added the row after raise had looked.
		_, err = has.Open(c)
		if stale, ok := errors.AsType[*fence.StaleError](err); ok {
			stale.Resource = resource
			return stale
		}
	}
	return failed("open", resource, errors.New("its row was deleted while it was being opened"))
}

// raise opens the row if there is one and it may be opened.
func (g *Gate) raise(ctx context.Context, tx *sql.Tx, resource string, c fence.Claim) (ok bool, err error) {
	t := int64(c.Token)
	query, args := g.openExclusive, []any{t, resource, t, t}
	if c.Shared {
		query, args = g.openShared, []any{t, t, resource, t}
	}
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return false, failed("open", resource, err)
	}
	n, err := result.RowsAffected()
	return n == 1, failed("open", resource, err)
}

func (g *Gate) tokens(ctx context.Context, tx *sql.Tx, resource string) (fence.Gate, error) {
	var w, r int64
	err := tx.QueryRowContext(ctx, g.look, resource).Scan(&w, &r)
	return fence.Gate{Exclusive: fence.Token(w), Shared: fence.Token(r)}, err
}

func failed(doing, resource string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("sqlgate: %s %q: %w", doing, resource, err)
}
