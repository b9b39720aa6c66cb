package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A peer is another project's way from PostgreSQL to Redis Streams. Its tables stand in a schema of
// their own, to which the search path of the setup's pool leads.
type peer interface {
	// fill writes the backlog, as the project's own documentation says.
	fill(ctx context.Context, s *setup) error
	// drain returns when all of it is in the stream and noted as done in the database. The end of
	// what it has begun is for setup.stop.
	drain(ctx context.Context, s *setup) error
	// completed counts what is noted as done.
	completed(ctx context.Context, s *setup) (int64, error)
	// field is where an entry of the stream has the id of its message.
	field() string
}

// peers are the cases of other projects. Their backlogs are smaller, since they are slower, and it
// is rates that are compared.
func (b Backlog) peers() []*contest {
	tuned, asIs := b.Peers/b.Parts, b.PeersAsIs/b.Parts
	all := []*contest{
		{name: "river, tuned", kind: riverTuned, rows: tuned, peer: riverPeer{tuned: true}},
		{name: "river, default", kind: asDelivered, rows: asIs, peer: riverPeer{}},
		{name: "watermill, tuned", kind: watermillTuned, rows: tuned, peer: watermillPeer{tuned: true, topics: 1}},
		{name: "watermill, tuned, 4 topics", kind: asDelivered, rows: tuned, peer: watermillPeer{tuned: true, topics: 4}},
		{name: "watermill, default", kind: asDelivered, rows: asIs, peer: watermillPeer{topics: 1}},
	}
	for _, c := range all {
		c.drain = c.peer.drain
	}
	return all
}

// peerConnections are more than any of them uses.
const peerConnections = 20

// measurePeer is measure for another project's tables.
func (s *setup) measurePeer(ctx context.Context, name string) (m measured, err error) {
	s.stream = s.streams.New(name)
	if _, err := s.database.Admin.Exec(ctx, "CREATE SCHEMA "+name); err != nil {
		return m, err
	}
	if s.pool, err = poolIn(ctx, s.database.URL, name, peerConnections); err != nil {
		return m, err
	}
	defer s.pool.Close()
	if err := s.peer.fill(ctx, s); err != nil {
		return m, err
	}
	// As for the other cases: shortly after a checkpoint, and as autovacuum leaves tables.
	if _, err := s.pool.Exec(ctx, "VACUUM (ANALYZE)"); err != nil {
		return m, err
	}
	if err := s.database.Checkpoint(ctx, s.options.Log); err != nil {
		return m, err
	}
	m, err = s.timed(ctx)
	if s.stop != nil { // which is not part of the time
		err = errors.Join(err, s.stop())
	}
	if err != nil {
		return m, err
	}
	s.options.logf("drain: %s: %.0f msgs/s", s.name, m.rate())
	if err := s.checkPeer(ctx); err != nil {
		return m, err
	}
	if err := s.streams.Delete(ctx, s.stream); err != nil {
		return m, err
	}
	_, err = s.database.Admin.Exec(ctx, "DROP SCHEMA "+name+" CASCADE")
	return m, err
}

// poolIn connects to a schema of a database.
func poolIn(ctx context.Context, url, schema string, connections int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = connections
	config.ConnConfig.RuntimeParams["search_path"] = schema
	return pgxpool.NewWithConfig(ctx, config)
}

// checkPeer looks whether each message is noted as done, and in the stream exactly once.
func (s *setup) checkPeer(ctx context.Context) error {
	completed, err := s.peer.completed(ctx, s)
	if err != nil {
		return err
	}
	if completed != s.rows {
		return fmt.Errorf("scenario: %d of %d messages are noted as done", completed, s.rows)
	}
	expected := make(map[string]bool, s.rows)
	for n := range s.rows {
		expected[messageID(n)] = true
	}
	err = s.streams.Each(ctx, s.stream, s.peer.field(), func(id string) error {
		if !expected[id] {
			return fmt.Errorf("scenario: message %q is in the stream twice, or was never written", id)
		}
		delete(expected, id)
		return nil
	})
	if err == nil && len(expected) > 0 {
		err = fmt.Errorf("scenario: %d of %d messages are not in the stream", len(expected), s.rows)
	}
	return err
}

// messageID of the n-th message is as long as those of the outbox.
func messageID(n int64) string {
	var id uuid.UUID
	for i := len(id) - 1; n > 0; i-- {
		id[i] = byte(n)
		n >>= 8
	}
	return id.String()
}

// The other fields of a message, like those of the other cases.
const (
	peerType    = "Ordering.OrderPlaced.v1"
	peerHeaders = `{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`
)

// completeLook is how often the database is asked whether the last messages are noted as done, once
// all are in the stream.
const completeLook = 2 * time.Millisecond

var errTooSlow = fmt.Errorf("scenario: the backlog was not drained in %s", drainPatience)

// complete waits until all are sent, and then until what is open in the database is nothing.
func (s *setup) complete(ctx context.Context, sent <-chan struct{}, open string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, drainPatience, errTooSlow)
	defer cancel()
	select {
	case <-sent:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	look := time.NewTicker(completeLook)
	defer look.Stop()
	for {
		var left bool
		if err := s.pool.QueryRow(ctx, open).Scan(&left); err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		if !left {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
