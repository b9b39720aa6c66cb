package sqlserver

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	mssql "github.com/microsoft/go-mssqldb"

	"github.com/gorm-fanout/fanout/outbox"
)

var _ outbox.Registry = (*Store)(nil)

// Heartbeat implements outbox.Registry.
func (s *Store) Heartbeat(ctx context.Context, instance outbox.Instance) error {
	work, err := json.Marshal(append([]outbox.Work{}, instance.Work...)) // none is an empty list, not null
	if err != nil {
		return fmt.Errorf("sqlserver: encode the work of instance %q: %w", instance.Name, err)
	}
	text := func(name, value string) any { return sql.Named(name, mssql.NVarCharMax(storable(value))) }
	args := []any{
		sql.Named("instance_id", instance.ID.String()), text("name", instance.Name), text("host", instance.Host),
		sql.Named("pid", instance.PID), text("version", instance.Version), text("work", string(work)),
	}
	_, err = s.number(ctx, s.sql.heartbeat, args, "fanout_seen")
	if numbered(err, 2627) { // somebody has entered it at the same moment
		_, err = s.number(ctx, s.sql.heartbeat, args, "fanout_seen")
	}
	if err != nil {
		return fmt.Errorf("sqlserver: enter instance %q in %s_instances: %w", instance.Name, s.table, err)
	}
	return nil
}

// Leave implements outbox.Registry.
func (s *Store) Leave(ctx context.Context, id uuid.UUID) error {
	if _, err := s.number(ctx, s.sql.leave, []any{sql.Named("instance_id", id.String())}, "fanout_left"); err != nil {
		return fmt.Errorf("sqlserver: remove an instance from %s_instances: %w", s.table, err)
	}
	return nil
}

// Instances implements outbox.Registry.
func (s *Store) Instances(ctx context.Context) ([]outbox.Instance, error) {
	var instances []outbox.Instance
	err := retry(func() error {
		instances = nil
		return s.query(ctx, s.sql.instances, nil, resultSets{"fanout_instance": func(rows *sql.Rows) error {
			instance, err := readInstance(rows)
			instances = append(instances, instance)
			return err
		}})
	})
	if err != nil {
		return nil, fmt.Errorf("sqlserver: list %s_instances: %w", s.table, explain(err))
	}
	return instances, nil
}

func readInstance(rows *sql.Rows) (i outbox.Instance, err error) {
	var id, work string
	if err := rows.Scan(&id, &i.Name, &i.Host, &i.PID, &i.Version, &i.StartedAt, &i.SeenAt, &work); err != nil {
		return i, err
	}
	i.SetRow(id, work)
	return i, nil
}
