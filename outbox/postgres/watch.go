package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gorm-fanout/fanout/internal/dbtable"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

const (
	// heldBack is how long a transaction may be open before it is reported. Every claim and every
	// outcome leaves a dead row, which the server may not remove while an older transaction could
	// still see it.
	heldBack = 15 * time.Minute
	// heldBackTransactions is how many transactions a replication slot or a standby may be behind:
	// nothing tells since when.
	heldBackTransactions = 100_000
)

// Watch implements driver.Delivery: it names who keeps vacuum from removing dead rows, which makes
// claims slower and slower, and tells of an identity that has begun anew.
func (s *Store) Watch(ctx context.Context) ([]admin.Finding, error) {
	var found []admin.Finding
	err := s.conn(ctx, func(conn *pgx.Conn) (err error) {
		found, err = s.watch(ctx, conn, s.sql.watch)
		var refused *pgconn.PgError
		if dbtable.Missing(err) || errors.As(err, &refused) && refused.Code == insufficientPrivilege { // which the schema check and the rights tell
			found, err = s.watch(ctx, conn, s.sql.horizon)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: look at who holds back vacuum, and at the identity: %w", err)
	}
	return found, nil
}

func (s *Store) watch(ctx context.Context, conn *pgx.Conn, text string) (found []admin.Finding, err error) {
	rows, err := conn.Query(ctx, text, s.heldBack, s.heldBackTransactions)
	if err != nil {
		return nil, err
	}
	var (
		h     holder
		since *time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&h.kind, &h.name, &h.role, &h.application, &since}, func() error {
		switch {
		case h.kind == kindIdentity:
			found = append(found, s.backwards())
			return nil
		case since != nil:
			h.since = *since
		}
		found = append(found, h.finding())
		return nil
	})
	return found, err
}

// kindIdentity is the line about an identity that has begun anew.
const kindIdentity = "identity"

func (s *Store) backwards() admin.Finding {
	return admin.Finding{Topic: "identity", Passing: true, Message: fmt.Sprintf("new messages get ids below those that are there, as the identity has begun anew: "+
		"they are delivered before older ones of their keys; set it above them: SELECT setval(pg_get_serial_sequence('%[1]s', 'id'), (SELECT max(id) FROM %[1]s))", s.table)}
}

// holder is one line of sql/horizon.sql.
type holder struct {
	kind, name, role, application string
	since                         time.Time // of sessions and prepared transactions
}

// finding says who it is and what to do, in words that stay the same while it lasts.
func (h *holder) finding() admin.Finding {
	const harm = "so dead rows of the outbox stay and claims get slower"
	var message string
	since := h.since.UTC().Format(time.RFC3339)
	switch h.kind {
	case "session":
		message = fmt.Sprintf("a transaction of session %s (role %s, application %q) is open since %s, %s: end it, with pg_terminate_backend(%s) if need be, "+
			"and set idle_in_transaction_session_timeout for that role", h.name, h.role, h.application, since, harm, h.name)
	case "prepared":
		message = fmt.Sprintf("transaction %q of role %s is prepared since %s and was not ended, %s: COMMIT PREPARED or ROLLBACK PREPARED", h.name, h.role, since, harm)
	case "slot":
		message = fmt.Sprintf("replication slot %q is far behind, %s: let its consumer catch up, or drop it with pg_drop_replication_slot", h.name, harm)
	default:
		message = fmt.Sprintf("standby %q reports a long query by hot_standby_feedback, %s: end the query there, or switch the feedback off", h.application, harm)
	}
	return admin.Finding{Topic: "vacuum", Message: message, Passing: true}
}
