package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/gorm-fanout/fanout/outbox"
)

var _ outbox.Registry = (*Store)(nil)

// Heartbeat implements outbox.Registry.
func (s *Store) Heartbeat(ctx context.Context, instance outbox.Instance) error {
	work, err := json.Marshal(append([]outbox.Work{}, instance.Work...)) // none is an empty list, not null
	if err != nil {
		return fmt.Errorf("postgres: encode the work of instance %q: %w", instance.Name, err)
	}
	if err := s.instance(ctx, s.sql.heartbeat, instance.ID.String(), storable(instance.Name), storable(instance.Host),
		instance.PID, storable(instance.Version), string(work)); err != nil {
		return fmt.Errorf("postgres: enter instance %q in %s_instances: %w", instance.Name, s.table, err)
	}
	return nil
}

// Leave implements outbox.Registry.
func (s *Store) Leave(ctx context.Context, id uuid.UUID) error {
	if err := s.instance(ctx, s.sql.leave, id.String()); err != nil {
		return fmt.Errorf("postgres: remove an instance from %s_instances: %w", s.table, err)
	}
	return nil
}

// instance runs one statement, as a transaction of its own: heartbeats are most of what a relay says that has nothing to do. Only
// where the server's isolation level stands against it, it is said again in a transaction of ours.
func (s *Store) instance(ctx context.Context, text string, args ...any) error {
	err := s.conn(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, text, args...)
		return err
	})
	if !transient(err) {
		return err
	}
	return s.transaction(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, text, args...)
		return err
	})
}

// Instances implements outbox.Registry.
func (s *Store) Instances(ctx context.Context) ([]outbox.Instance, error) {
	var instances []outbox.Instance
	err := s.transaction(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.sql.forgetInstances); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, s.sql.instances)
		if err != nil {
			return err
		}
		instances, err = pgx.CollectRows(rows, readInstance)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: list %s_instances: %w", s.table, err)
	}
	return instances, nil
}

func readInstance(row pgx.CollectableRow) (outbox.Instance, error) {
	var (
		i             outbox.Instance
		id, work      string
		started, seen pgtype.Timestamptz // which may be infinity
	)
	if err := row.Scan(&id, &i.Name, &i.Host, &i.PID, &i.Version, &started, &seen, &work); err != nil {
		return i, err
	}
	for column, at := range map[string]pgtype.Timestamptz{"started_at": started, "seen_at": seen} {
		if at.InfinityModifier != pgtype.Finite {
			i.Spoil(column, "is "+at.InfinityModifier.String())
		}
	}
	i.StartedAt, i.SeenAt = started.Time, seen.Time
	i.SetRow(id, work)
	return i, nil
}
