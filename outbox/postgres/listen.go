package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
)

var _ driver.Listener = (*Store)(nil)

// closeTime bounds how long a connection beside the pool takes to say goodbye.
const closeTime = 2 * time.Second

// Listen implements driver.Listener. Its connection is none of the pool's: it is in use for as long
// as the relay runs.
func (s *Store) Listen(ctx context.Context, began func(), heard func(text string)) error {
	if err := s.listen(ctx, began, heard); err != nil {
		return fmt.Errorf("postgres: listen for rows in %s: %w", s.table, explain(redact(err)))
	}
	return nil
}

func (s *Store) listen(ctx context.Context, began func(), heard func(text string)) error {
	conn, hangUp, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer hangUp()
	if _, err := conn.Exec(ctx, s.sql.listen, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	began()
	for {
		notification, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		if notification.Channel == s.channel {
			heard(notification.Payload)
		}
	}
}

// dial makes a connection beside the pool, set up as the pool's are, for what keeps one for long:
// the pool may be small, or busy, and who waits for a connection must not wait for one that waits
// for him. hangUp closes it.
func (s *Store) dial(ctx context.Context) (conn *pgx.Conn, hangUp func(), err error) {
	pooled := s.pool.Config()
	config := pooled.ConnConfig
	config.OnNotification = nil // else a listener would wait in vain
	if pooled.BeforeConnect != nil {
		if err := pooled.BeforeConnect(ctx, config); err != nil {
			return nil, nil, err
		}
	}
	conn, err = pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	hangUp = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		_ = conn.Close(ctx) // the server notices
	}
	if pooled.AfterConnect != nil {
		if err := pooled.AfterConnect(ctx, conn); err != nil {
			hangUp()
			return nil, nil, err
		}
	}
	return conn, hangUp, nil
}

// Notify implements driver.Listener.
func (s *Store) Notify(ctx context.Context, text string) error {
	err := s.conn(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, s.sql.notify, s.channel, text)
		return err
	})
	if err != nil {
		return fmt.Errorf("postgres: notify the relays of %s: %w", s.table, err)
	}
	return nil
}

// changeTime bounds a notification of an operator's change.
const changeTime = 2 * time.Second

// Changed implements sqladmin.Database. It notifies relays after the commit, also when the operator's
// context has ended. It drops errors: the change stands, and polls find it.
func (d database) Changed(ctx context.Context, brokers ...string) {
	slices.Sort(brokers)
	var arrivals []wakeup.WakeUp
	for _, broker := range slices.Compact(brokers) {
		arrivals = append(arrivals, wakeup.WakeUp{Broker: broker, Shards: wakeup.Unknown})
	}
	if len(arrivals) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), changeTime)
	defer cancel()
	_ = d.Notify(ctx, wakeup.Text(arrivals))
}
