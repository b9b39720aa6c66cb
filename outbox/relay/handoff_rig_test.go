package relay_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/driver"
	"github.com/gorm-fanout/fanout/outbox/relay"
	"github.com/gorm-fanout/fanout/outbox/sqlite"
)

// watchedStore counts claims and verifications, and lets a test do something before the latter.
type watchedStore struct {
	*sqlite.Store
	claims, verified atomic.Int64
	before           func()
	spoil            func([]driver.HandedRow)
	fail             atomic.Pointer[error]
}

func (s *watchedStore) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	if claim != nil {
		s.claims.Add(1)
	}
	return s.Store.Exchange(ctx, completion, claim)
}

func (s *watchedStore) Verify(ctx context.Context, v *driver.Verification) ([]driver.HandedRow, error) {
	s.verified.Add(1)
	if err := s.fail.Load(); err != nil {
		return nil, *err
	}
	if s.before != nil {
		s.before()
	}
	found, err := s.Store.Verify(ctx, v)
	if s.spoil != nil {
		s.spoil(found)
	}
	return found, err
}

// handRig is an engine with one processor that takes rows by hand-off and polls so seldom that only
// wake-ups make it claim.
type handRig struct {
	*rig
	engine   *relay.Engine
	watched  *watchedStore
	inserter *outbox.Inserter
}

func newHandRig(t *testing.T, path string, broker brokers.Broker, policy outbox.Policy) *handRig {
	t.Helper()
	policy.HandOff, policy.PollMin, policy.PollMax = true, time.Hour, time.Hour
	h := &handRig{rig: newRig(t, path, broker, policy)}
	t.Cleanup(func() { _ = h.db.Close() })
	h.watched = &watchedStore{Store: h.store}
	var err error
	h.engine, err = relay.NewEngine(relay.EngineConfig{
		Stores: map[string]driver.Delivery{"d": h.watched}, Brokers: map[string]relay.Target{"b": {Broker: broker, Policy: policy}},
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	require.NoError(t, err)
	require.True(t, h.engine.HandsOff("d"))
	h.inserter, err = outbox.NewInserter(outbox.SQLite, outbox.DefaultTable)
	require.NoError(t, err)
	return h
}

func (h *handRig) begin() {
	var ctx context.Context
	ctx, h.cancel = context.WithCancel(h.t.Context())
	go func() { h.done <- h.engine.Run(ctx) }()
	time.Sleep(time.Second) // the look at the start, and the claims from all shards
	synctest.Wait()
	h.watched.claims.Store(0)
}

// row has its name in the test as payload.
func handed(key, name string) outbox.Row {
	return outbox.Row{MessageID: uuid.New(), TargetBroker: "b", Stream: "s", Type: "T", OrderingKey: key, Payload: []byte(name)}
}

// write does what the plugin does up to the commit.
func (h *handRig) write(rows ...outbox.Row) *outbox.Reservation {
	h.t.Helper()
	reservation := h.engine.Reserve("d", outbox.SQLite, rows)
	require.NoError(h.t, h.inserter.InsertReserved(h.t.Context(), h.db, rows, reservation))
	return reservation
}

// commit writes rows and hands them over, or wakes the processor where there is no room.
func (h *handRig) commit(rows ...outbox.Row) (given bool) {
	h.t.Helper()
	reservation := h.write(rows...)
	reservation.Commit()
	if reservation == nil {
		h.engine.Wake("d", outbox.WakeUp{Broker: "b", Shards: outbox.ShardSetOf(0)})
	}
	return reservation != nil
}

func (h *handRig) stats() relay.HandOffStats { return h.engine.Stats()[0].HandOff }
