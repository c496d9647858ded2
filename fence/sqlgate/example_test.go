package sqlgate_test

import (
	"context"
	"database/sql"

	"example.com/redlock/fence"
	"example.com/redlock/fence/sqlgate"
)

// Work gets its transaction from the gate, so it cannot read before the gate is
// open. It needs a database, so it only compiles here.
func ExampleGate_Do() {
	sell := func(ctx context.Context, db *sql.DB, token fence.Token) error {
		if _, err := db.ExecContext(ctx, sqlgate.Schema); err != nil { // once
			return err
		}
		gate := sqlgate.New(nil)                                                // PostgreSQL
		return gate.Do(ctx, db, "stock/apples", token, func(tx *sql.Tx) error { // lease.Token()
			var left int
			if err := tx.QueryRowContext(ctx, "SELECT count FROM stock WHERE item = $1", "apples").Scan(&left); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "UPDATE stock SET count = $1 WHERE item = $2", left-3, "apples")
			return err
		})
	}
	_ = sell
}
