//go:build linux

package gatetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"example.com/redlock/fence"
	"example.com/redlock/fence/httpgate"
	"example.com/redlock/fence/internal/gatemodel"
	"example.com/redlock/fence/sqlgate"
	"example.com/redlock/testkit/await"
)

// database is one kind of database, with the table of the gates and a table of
// one value.
type database struct {
	name string
	gate *sqlgate.Gate
	db   *sql.DB
	set  string // a statement with the value as its argument
}

func eachDatabase(t *testing.T, test func(t *testing.T, d database)) {
	for _, kind := range []struct {
		name string
		open func(t *testing.T) *sql.DB
		o    *sqlgate.Options
		set  string
	}{
		{"postgresql", postgres, nil, "UPDATE stock SET value = $1"},
		{"sqlite", sqlite, &sqlgate.Options{Placeholders: sqlgate.Question}, "UPDATE stock SET value = ?"},
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			db := kind.open(t)
			for _, s := range []string{sqlgate.Schema, sqlgate.Schema, "CREATE TABLE stock (value TEXT)", "INSERT INTO stock VALUES ('')"} {
				if _, err := db.Exec(s); err != nil {
					t.Fatal(err)
				}
			}
			test(t, database{kind.name, sqlgate.New(kind.o), db, kind.set})
		})
	}
}

func sqlite(t *testing.T) *sql.DB {
	return openDB(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "db")+"?_pragma=busy_timeout(20000)&_pragma=synchronous(off)")
}

func readStock(tx *sql.Tx) (value string, err error) {
	err = tx.QueryRow("SELECT value FROM stock").Scan(&value)
	return value, err
}

func (d database) write(ctx context.Context, token fence.Token, value string) error {
	return d.gate.Do(ctx, d.db, "stock", token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, d.set, value)
		return err
	})
}

func (d database) read(ctx context.Context, c fence.Claim) (value string, err error) {
	do := d.gate.Do
	if c.Shared {
		do = d.gate.DoShared
	}
	err = do(ctx, d.db, "stock", c.Token, func(tx *sql.Tx) error {
		value, err = readStock(tx)
		return err
	})
	return value, err
}

// TestB26SQL: A reads and is paused; B, who has the lock now, reads; A's write
// comes too late, before B's.
func TestB26SQL(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d database) {
		ctx := bounded(t)
		if err := d.write(ctx, 5, "10"); err != nil {
			t.Fatal(err)
		}
		if got, err := d.read(ctx, fence.Claim{Token: 6}); got != "10" || err != nil {
			t.Fatal(got, err)
		}
		err := d.write(ctx, 5, "9")
		stale, ok := errors.AsType[*fence.StaleError](err)
		if !ok || stale.Claim.Token != 5 || stale.Seen.Token != 6 || stale.Resource != "stock" {
			t.Errorf("late write: %v", err)
		}
		if _, err := d.read(ctx, fence.Claim{Token: 5}); !errors.Is(err, fence.ErrStale) {
			t.Errorf("late read: %v", err)
		}
		if err := d.write(ctx, 6, "7"); err != nil {
			t.Error(err)
		}
		if got, err := d.read(ctx, fence.Claim{Token: 6}); got != "7" || err != nil {
			t.Error(got, err)
		}
	})
}

// TestB26SQLWithoutGateAnUpdateIsLost is what the gate is for: the same story
// without it.
func TestB26SQLWithoutGateAnUpdateIsLost(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d database) {
		for _, value := range []string{"10" /* A and B read this */, "7" /* B */, "9" /* A wakes up */} {
			if _, err := d.db.Exec(d.set, value); err != nil {
				t.Fatal(err)
			}
		}
		var got string
		if err := d.db.QueryRow("SELECT value FROM stock").Scan(&got); got != "9" || err != nil {
			t.Errorf("%q, %v: B's update was not lost", got, err)
		}
	})
}

func TestSQLAgainstModel(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d database) {
		ctx := bounded(t)
		gatemodel.Run(t, 1, 1000, func(c fence.Claim) (*gatemodel.Opened, error) {
			_, err := d.read(ctx, c)
			o := &gatemodel.Opened{Read: func() (string, error) { return d.read(ctx, c) }}
			if !c.Shared {
				o.Write = func(v string) error { return d.write(ctx, c.Token, v) }
			}
			return o, err
		})
	})
}

// TestSQLManyOpenFirst: sixteen transactions open a new resource at once. None
// fails but those that are stale, and the highest token has been admitted.
func TestSQLManyOpenFirst(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d database) {
		ctx := bounded(t)
		for round := range 10 {
			resource := fmt.Sprint("resource ", round)
			var mu sync.Mutex
			var admitted []fence.Token
			var all sync.WaitGroup
			start := make(chan struct{})
			for i := range 16 {
				all.Go(func() {
					<-start
					token := fence.Token(1 + i)
					err := d.gate.Do(ctx, d.db, resource, token, func(*sql.Tx) error {
						mu.Lock()
						defer mu.Unlock()
						admitted = append(admitted, token)
						return nil
					})
					if err != nil && !errors.Is(err, fence.ErrStale) {
						t.Errorf("token %d: %v", token, err)
					}
				})
			}
			close(start)
			all.Wait()
			if !slices.IsSorted(admitted) || !slices.Contains(admitted, 16) {
				t.Errorf("admitted, in this order: %v", admitted)
			}
		}
	})
}

// TestSQLOneInsideAtATime: until A's transaction ends, B's is not admitted; then
// B reads what A has written.
func TestSQLOneInsideAtATime(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d database) {
		ctx := bounded(t)
		for _, there := range []bool{false, true} { // the row
			read := make(chan string, 1)
			err := d.gate.Do(ctx, d.db, "stock", 5, func(tx *sql.Tx) error {
				go func() {
					got, err := d.read(ctx, fence.Claim{Token: 5})
					if err != nil {
						t.Error(err)
					}
					read <- got
				}()
				select {
				case <-read:
					t.Error("two are inside")
				case <-time.After(100 * time.Millisecond): // passes if it is too short, too
				}
				_, err := tx.ExecContext(ctx, d.set, fmt.Sprint("A", there))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := <-read; got != fmt.Sprint("A", there) {
				t.Errorf("B read %q", got)
			}
		}
	})
}

// TestSQLFailedWork: what work did is undone, but the gate stays open: what work
// has read is good for the next transaction. Also after an error of the database,
// which would fail all further statements of PostgreSQL.
func TestSQLFailedWork(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d database) {
		ctx := bounded(t)
		nothingToDo := errors.New("nothing to do")
		if err := d.write(ctx, 5, "10"); err != nil {
			t.Fatal(err)
		}
		fail := func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, d.set, "lost")
			return errors.Join(err, nothingToDo)
		}
		mistake := func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO nowhere VALUES (1)")
			return fmt.Errorf("%w: %w", nothingToDo, err)
		}
		token := fence.Token(6)
		for _, work := range []func(*sql.Tx) error{fail, mistake} {
			for _, do := range []doer{d.gate.Do, d.gate.DoShared} {
				if err := do(ctx, d.db, "stock", token, work); !errors.Is(err, nothingToDo) || strings.Contains(err.Error(), "sqlgate") {
					t.Error(err)
				}
				if err := d.write(ctx, token-1, "9"); !errors.Is(err, fence.ErrStale) {
					t.Errorf("between two of token %d: %v", token, err)
				}
				token++
			}
		}
		if got, err := d.read(ctx, fence.Claim{Token: token}); got != "10" || err != nil {
			t.Error(got, err)
		}
	})
}

// TestSQLSharedIsReadOnly: PostgreSQL itself refuses that a reader writes, and the
// opening is committed all the same.
func TestSQLSharedIsReadOnly(t *testing.T) {
	db := postgres(t)
	ctx := bounded(t)
	if _, err := db.Exec(sqlgate.Schema + "; CREATE TABLE stock (value TEXT)"); err != nil {
		t.Fatal(err)
	}
	gate := sqlgate.New(nil)
	for i, statements := range [][]string{{"INSERT INTO stock VALUES ('9')"}, {"SET TRANSACTION READ WRITE", "INSERT INTO stock VALUES ('9')"}} {
		token := fence.Token(6 + i)
		err := gate.DoShared(ctx, db, "stock", token, func(tx *sql.Tx) (err error) {
			for _, s := range statements {
				if _, err = tx.ExecContext(ctx, s); err != nil {
					return err
				}
			}
			return nil
		})
		if !hasCode(err, "25") {
			t.Errorf("%q: %v", statements, err)
		}
		if err := gate.Do(ctx, db, "stock", token, func(*sql.Tx) error { return nil }); !errors.Is(err, fence.ErrStale) {
			t.Errorf("after %q: %v", statements, err)
		}
	}
	// The connection is as before for whoever gets it next.
	db.SetMaxOpenConns(1)
	read := func(tx *sql.Tx) error { return tx.QueryRow("SELECT count(*) FROM stock").Scan(new(int)) }
	if err := gate.DoShared(ctx, db, "stock", 8, read); err != nil {
		t.Error(err)
	}
	if _, err := db.Exec("INSERT INTO stock VALUES ('10')"); err != nil {
		t.Error(err)
	}
}

type doer = func(context.Context, *sql.DB, string, fence.Token, func(*sql.Tx) error) error

// TestSQLRollback: if the transaction cannot go on after work has failed, all of
// it is undone, and the error says so. The rows of one resource do not open
// another.
func TestSQLRollback(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d database) {
		failure := errors.New("changed my mind")
		ctx, cancel := context.WithCancel(bounded(t))
		for what, end := range map[string]func(*sql.Tx){
			"the context ends":     func(*sql.Tx) { cancel() },
			"work ends it":         func(tx *sql.Tx) { _ = tx.Rollback() },
			"the connection fails": func(tx *sql.Tx) { _, _ = tx.Exec("SELECT pg_terminate_backend(pg_backend_pid())") },
		} {
			if d.name != "postgresql" && what == "the connection fails" {
				continue
			}
			err := d.gate.Do(ctx, d.db, "stock", 9, func(tx *sql.Tx) error { end(tx); return failure })
			if !errors.Is(err, failure) || !strings.Contains(err.Error(), "keep open") {
				t.Errorf("%s: %v", what, err)
			}
			ctx, cancel = context.WithCancel(bounded(t))
			if err := d.write(ctx, 5, "10"); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		cancel()
		ctx = bounded(t)
		if err := d.gate.Do(ctx, d.db, "another", 9, func(*sql.Tx) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if err := d.write(ctx, 5, "10"); err != nil {
			t.Error(err)
		}
		for _, bad := range []fence.Token{0, fence.MaxToken + 1} {
			if err := d.write(ctx, bad, "x"); !errors.Is(err, fence.ErrBadToken) {
				t.Error(bad, err)
			}
		}
		if err := d.write(ctx, fence.MaxToken, "x"); err != nil {
			t.Error(err)
		}
	})
}

// TestSQLErrorEndsTransaction: a caller who does not look at the error of Open
// changes nothing by what follows.
func TestSQLErrorEndsTransaction(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d database) {
		ctx := bounded(t)
		if err := d.write(ctx, 6, "7"); err != nil {
			t.Fatal(err)
		}
		for _, open := range []func(context.Context, *sql.Tx, string, fence.Token) error{d.gate.Open, d.gate.OpenShared} {
			for token, want := range map[fence.Token]error{5: fence.ErrStale, 0: fence.ErrBadToken} {
				tx, err := d.db.BeginTx(ctx, nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := open(ctx, tx, "stock", token); !errors.Is(err, want) {
					t.Errorf("token %d: %v", token, err)
				}
				_, err1 := tx.ExecContext(ctx, d.set, "9")
				err2 := tx.Commit()
				if !errors.Is(err1, sql.ErrTxDone) || !errors.Is(err2, sql.ErrTxDone) {
					t.Errorf("after token %d: %v, %v", token, err1, err2)
				}
			}
		}
		if got, err := d.read(ctx, fence.Claim{Token: 6}); got != "7" || err != nil {
			t.Error(got, err)
		}
	})
}

// TestSQLSerializationFailure: with a snapshot that is older than the gate's last
// change the database refuses, and the caller can tell that trying again helps.
func TestSQLSerializationFailure(t *testing.T) {
	db := postgres(t)
	ctx := bounded(t)
	gate := sqlgate.New(nil)
	if _, err := db.Exec(sqlgate.Schema); err != nil {
		t.Fatal(err)
	}
	nothing := func(*sql.Tx) error { return nil }
	for _, isolation := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		for _, there := range []bool{false, true} { // the row
			resource := isolation.String()
			tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: isolation})
			if err != nil {
				t.Fatal(err)
			}
			// Against the rule: something is read first, and fixes the snapshot.
			if _, err := tx.Exec("SELECT 1 FROM redlock_gate"); err != nil {
				t.Fatal(err)
			}
			if err := gate.Do(ctx, db, resource, 5, nothing); err != nil {
				t.Fatal(err)
			}
			if err := gate.Open(ctx, tx, resource, 6); !hasCode(err, "40001") {
				t.Errorf("%v, row there: %v: %v", isolation, there, err)
			}
			if err := tx.Rollback(); !errors.Is(err, sql.ErrTxDone) {
				t.Error("not rolled back:", err)
			}
			// As the first statement it waits, and is refused if that made it too old.
			tx, err = db.BeginTx(ctx, &sql.TxOptions{Isolation: isolation})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(gate.Open(ctx, tx, resource, 6), gate.OpenShared(ctx, tx, "other", 6), tx.Commit()); err != nil {
				t.Error(err)
			}
			if err := gate.Do(ctx, db, resource, 5, nothing); !errors.Is(err, fence.ErrStale) {
				t.Error(err)
			}
			if _, err := db.Exec("DELETE FROM redlock_gate WHERE resource <> $1 OR $2", resource, there); err != nil {
				t.Fatal(err)
			}
			if !there {
				if _, err := db.Exec("UPDATE redlock_gate SET exclusive_token = 1"); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestSQLContextEnds: a wait for another's transaction ends with the context.
func TestSQLContextEnds(t *testing.T) {
	db := postgres(t)
	gate := sqlgate.New(nil)
	if _, err := db.Exec(sqlgate.Schema); err != nil {
		t.Fatal(err)
	}
	nothing := func(*sql.Tx) error { return nil }
	err := gate.Do(bounded(t), db, "stock", 5, func(*sql.Tx) error {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- gate.Do(ctx, db, "stock", 6, nothing) }()
		await.True(t, time.Minute, "the other waits", func() bool {
			var n int
			err := db.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()").Scan(&n)
			return err == nil && n == 1
		})
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// sqlStore is a Store of httpgate that survives a restart: a first transaction
// opens the gate for good, and a request is inside as long as a second one is open.
type sqlStore struct{ d database }

func (s sqlStore) Enter(ctx context.Context, resource string, c fence.Claim) (func(), error) {
	entered, leave, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	do := s.d.gate.Do
	if c.Shared {
		do = s.d.gate.DoShared
	}
	if err := do(ctx, s.d.db, resource, c.Token, func(*sql.Tx) error { return nil }); err != nil {
		return nil, err
	}
	go func() {
		done <- do(ctx, s.d.db, resource, c.Token, func(*sql.Tx) error {
			close(entered)
			<-leave
			return nil
		})
	}()
	select {
	case <-entered:
		return func() { close(leave); <-done }, nil
	case err := <-done:
		return nil, err
	}
}

// TestHTTPGateOnSQL: the interface of a durable store can be filled, and the
// tokens survive the process.
func TestHTTPGateOnSQL(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d database) {
		serve := func() *httptest.Server {
			g, err := httpgate.New(func(*http.Request) string { return "stock" }, &httpgate.Options{Store: sqlStore{d}})
			if err != nil {
				t.Fatal(err)
			}
			return httptest.NewServer(g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				// The process may die here: what another transaction sees stays.
				var durable fence.Token
				claim, _ := httpgate.ClaimOf(r.Context())
				err := d.db.QueryRow("SELECT exclusive_token FROM redlock_gate").Scan(&durable)
				if err != nil || durable != claim.Token {
					t.Errorf("%v has entered, and the token that would survive is %d, %v", claim, durable, err)
				}
				_, _ = io.WriteString(w, "done")
			})))
		}
		status := func(server *httptest.Server, token fence.Token) int {
			resp, err := httpgate.Open(server.Client(), "stock", token).Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			return resp.StatusCode
		}
		server := serve()
		if got := status(server, 6); got != http.StatusOK {
			t.Error(got)
		}
		server.Close()
		server = serve() // as after a restart
		defer server.Close()
		if got := status(server, 5); got != http.StatusPreconditionFailed {
			t.Error(got)
		}
		if got := status(server, 6); got != http.StatusOK {
			t.Error(got)
		}
	})
}
