package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/outbox"
)

var _ outbox.Registry = (*Store)(nil)

// forgetAfter is how long instances are listed that are not seen any more.
const forgetAfter = 24 * time.Hour

// Heartbeat implements outbox.Registry.
func (s *Store) Heartbeat(ctx context.Context, instance outbox.Instance) error {
	work, err := json.Marshal(append([]outbox.Work{}, instance.Work...)) // none is an empty list, not null
	if err != nil {
		return fmt.Errorf("sqlite: encode the work of instance %q: %w", instance.Name, err)
	}
	if err := s.instance(ctx, s.sql.heartbeat, sql.Named("id", instance.ID.String()), sql.Named("name", storable(instance.Name)),
		sql.Named("host", storable(instance.Host)), sql.Named("pid", instance.PID), sql.Named("version", storable(instance.Version)),
		sql.Named("work", string(work)), sql.Named("now", s.micros())); err != nil {
		return fmt.Errorf("sqlite: enter instance %q in %s_instances: %w", instance.Name, s.table, err)
	}
	return nil
}

// Leave implements outbox.Registry.
func (s *Store) Leave(ctx context.Context, id uuid.UUID) error {
	if err := s.instance(ctx, s.sql.leave, sql.Named("id", id.String())); err != nil {
		return fmt.Errorf("sqlite: remove an instance from %s_instances: %w", s.table, err)
	}
	return nil
}

func (s *Store) instance(ctx context.Context, text string, args ...any) error {
	return s.write(ctx, func(conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, text, args...)
		return err
	})
}

// Instances implements outbox.Registry. It takes the lock only when there is an instance to be removed.
func (s *Store) Instances(ctx context.Context) ([]outbox.Instance, error) {
	var instances []outbox.Instance
	err := s.read(ctx, func(rows *sql.Rows) error {
		instance, err := readInstance(rows)
		instances = append(instances, instance)
		return err
	}, s.sql.instances)
	if err != nil {
		return nil, fmt.Errorf("sqlite: list %s_instances: %w", s.table, err)
	}
	before := time.UnixMicro(s.micros()).Add(-forgetAfter)
	seen := slices.DeleteFunc(slices.Clone(instances), func(i outbox.Instance) bool {
		return i.SeenAt.Before(before) && !i.SeenAt.IsZero() // which it is where it cannot be read
	})
	if len(seen) < len(instances) {
		if err := s.instance(ctx, s.sql.forgetInstances, sql.Named("before", before.UnixMicro())); err != nil {
			return nil, fmt.Errorf("sqlite: forget old entries of %s_instances: %w", s.table, err)
		}
	}
	return seen, nil
}

func readInstance(rows *sql.Rows) (outbox.Instance, error) {
	var (
		i                  outbox.Instance
		id, work           string
		pid, started, seen any // SQLite takes anything in any column
	)
	if err := rows.Scan(&id, &i.Name, &i.Host, &pid, &i.Version, &started, &seen, &work); err != nil {
		return i, err
	}
	number := func(column string, value any) (n int64, ok bool) {
		if n, ok = value.(int64); !ok {
			i.Spoil(column, "is no whole number")
		}
		return n, ok
	}
	process, _ := number("pid", pid)
	i.PID = int(process)
	if micros, ok := number("started_at", started); ok {
		i.StartedAt = time.UnixMicro(micros)
	}
	if micros, ok := number("seen_at", seen); ok {
		i.SeenAt = time.UnixMicro(micros)
	}
	i.SetRow(id, work)
	return i, nil
}
