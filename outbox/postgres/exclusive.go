package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Exclusive implements admin.Administration with a lock that lives in a transaction of its own, so
// that it also holds behind a pooler in transaction mode. The transaction reads nothing and holds
// back no vacuum. Its connection is none of the pool's, which f needs and which may have a single
// one.
func (s *Store) Exclusive(ctx context.Context, name string, f func(context.Context) error) (ran bool, err error) {
	conn, hangUp, err := s.dial(ctx)
	if err != nil {
		return false, fmt.Errorf("postgres: connect to run %q exclusively on %s: %w", name, s.table, explain(redact(err)))
	}
	defer hangUp()
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.sql.exclusiveSettings); err != nil {
			return err
		}
		// By the simple protocol: with the extended one the portal, and with it the statement's
		// snapshot, would stay until the transaction's next statement, and hold back vacuum and
		// pruning as long as f runs. Not by pgx's mode of that name either, which refuses to quote
		// arguments where the client's encoding is not UTF-8.
		text := strings.ReplaceAll(s.sql.exclusive, "{{lock}}", strconv.Itoa(int(hash("exclusive", name))))
		results, err := tx.Conn().PgConn().Exec(ctx, text).ReadAll()
		if err != nil {
			return err
		}
		ran = len(results) == 1 && len(results[0].Rows) == 1 && string(results[0].Rows[0][0]) == "t"
		if !ran {
			return nil
		}
		return f(ctx)
	})
	return ran, explain(err)
}
