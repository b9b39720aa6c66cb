package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gorm-fanout/fanout/outbox"
)

var _ outbox.Listener = (*Store)(nil)

// closeTime bounds how long a listener takes to say goodbye.
const closeTime = 2 * time.Second

// Listen implements outbox.Listener. Its connection is none of the pool's: it is in use for as long as the relay runs.
func (s *Store) Listen(ctx context.Context, began func(), heard func(text string)) error {
	if err := s.listen(ctx, began, heard); err != nil {
		return fmt.Errorf("postgres: listen for rows in %s: %w", s.table, explain(redact(err)))
	}
	return nil
}

func (s *Store) listen(ctx context.Context, began func(), heard func(text string)) error {
	pooled := s.pool.Config()
	config := pooled.ConnConfig
	config.OnNotification = nil // else they would not be waited for
	if pooled.BeforeConnect != nil {
		if err := pooled.BeforeConnect(ctx, config); err != nil {
			return err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		_ = conn.Close(ctx) // the server notices
	}()
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

// Notify implements outbox.Listener.
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

// changeTime bounds how long telling the relays of an operator's change may take.
const changeTime = 2 * time.Second

// announceChange tells relays that an operator has made rows of brokers deliverable, after the commit and though the operator may have
// gone. An error is nobody's concern: what was changed is changed, and polling finds it.
func (s *Store) announceChange(ctx context.Context, brokers ...string) {
	slices.Sort(brokers)
	var arrivals []outbox.Arrival
	for _, broker := range slices.Compact(brokers) {
		arrivals = append(arrivals, outbox.Arrival{Broker: broker, Lanes: outbox.UnknownLanes})
	}
	if len(arrivals) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), changeTime)
	defer cancel()
	_ = s.Notify(ctx, outbox.Announcement(arrivals))
}

// listenSQL fills in the channel.
func listenSQL(table, channel string) string {
	return strings.ReplaceAll(readSQL("listen", table), "{{channel}}", channel)
}
