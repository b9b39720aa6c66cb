package watermill_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/glebarez/sqlite"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/watermill"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
	"github.com/gorm-fanout/fanout/outbox/sqlite"
)

// relay is a processor on a SQLite file with a broker of Watermill, in a bubble where hours pass in
// an instant.
type relayRig struct {
	t  *testing.T
	db *sql.DB
}

func newRelay(t *testing.T, path string, p *publisher) *relayRig {
	t.Helper()
	db, err := sql.Open("sqlite", path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	store, err := sqlite.New(db, "")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	broker := watermill.New(p)
	policy := outbox.Policy{PollMin: time.Second, PollMax: 10 * time.Second, Workers: 1, Retry: outbox.Retry{BaseDelay: time.Second}}
	processor, err := relay.NewProcessor(relay.ProcessorConfig{
		Database: "test", Broker: "b", Store: store, Target: broker, Policy: policy, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- processor.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-done)
		assert.NoError(t, broker.Close(context.Background()))
		assert.NoError(t, db.Close())
	})
	return &relayRig{t, db}
}

// insert writes a row; its payload is its name.
func (r *relayRig) insert(key, name string) {
	r.t.Helper()
	_, err := r.db.ExecContext(r.t.Context(),
		`INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload) VALUES (?, 'b', 's', 'T', nullif(?, ''), ?)`,
		uuid.NewString(), key, []byte(name))
	require.NoError(r.t, err)
}

// is tells status and attempts of a row.
func (r *relayRig) is(name string) (status string, attempts int) {
	r.t.Helper()
	row := r.db.QueryRowContext(r.t.Context(), `SELECT status, attempts FROM outbox_messages WHERE CAST(payload AS TEXT) = ?`, name)
	require.NoError(r.t, row.Scan(&status, &attempts))
	return status, attempts
}

func (r *relayRig) until(limit time.Duration, condition func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(limit); !condition(); time.Sleep(100 * time.Millisecond) { // of the bubble's time
		require.True(r.t, time.Now().Before(deadline), "not within %s", limit)
	}
}

func inBubble(t *testing.T, test func(t *testing.T, path string)) {
	t.Helper()
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	synctest.Test(t, func(t *testing.T) { test(t, path) })
}

// TestRelayOutlivesAnOutage: an outage longer than five attempts take, during which the publisher
// speaks in words of its own, costs no message an attempt.
func TestRelayOutlivesAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var down atomic.Bool
		down.Store(true)
		p := &publisher{publish: func(string, *message.Message) error {
			if down.Load() {
				return errors.New("not connected")
			}
			return nil
		}}
		r := newRelay(t, path, p)
		names := strings.Fields("a1 b1 a2 c1 b2 a3 d1 d2")
		for _, name := range names {
			r.insert("key-"+name[:1], name)
		}
		r.insert("", "alone")
		time.Sleep(2 * time.Minute)
		require.NotEmpty(t, p.ids())
		for _, name := range append(names, "alone") {
			status, attempts := r.is(name)
			assert.Equal(t, "pending", status, name)
			assert.Zero(t, attempts, name)
		}
		down.Store(false)
		r.until(time.Minute, func() bool {
			status, _ := r.is("d2")
			other, _ := r.is("a3")
			return status == "published" && other == "published"
		})
	})
}

// TestRelayFindsThePoison: a message that the publisher alone refuses is charged as soon as others
// get through, and abandoned in the end; while there are no others, nobody can tell it from an
// outage.
func TestRelayFindsThePoison(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := newRelay(t, path, &publisher{publish: func(_ string, m *message.Message) error {
			if string(m.Payload) == "poison" {
				return errors.New("bad record")
			}
			return nil
		}})
		r.insert("a", "poison")
		r.insert("a", "follower")
		time.Sleep(2 * time.Minute)
		status, attempts := r.is("poison")
		assert.Equal(t, "pending", status)
		assert.Zero(t, attempts)

		for i := range 20 { // one every twenty seconds
			r.insert("", strings.Repeat("i", i+1))
			time.Sleep(20 * time.Second)
		}
		status, _ = r.is("poison")
		assert.Equal(t, "abandoned", status)
		status, _ = r.is("follower")
		assert.Equal(t, "published", status)
		for i := range 20 {
			status, attempts := r.is(strings.Repeat("i", i+1))
			assert.Equal(t, "published", status)
			assert.Equal(t, 1, attempts, "its own; it paid for nobody")
		}
	})
}

// TestRelayGoesOnBesideAHang: a call that never returns costs the others a publish timeout once,
// and its own key the wait.
func TestRelayGoesOnBesideAHang(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		release := make(chan struct{})
		p := &publisher{publish: func(_ string, m *message.Message) error {
			if string(m.Payload) == "hangs" {
				<-release
			}
			return nil
		}}
		r := newRelay(t, path, p)
		r.insert("a", "hangs")
		r.insert("a", "next")
		for i := range 4 {
			r.insert("", strings.Repeat("i", i+1))
			time.Sleep(time.Minute)
			status, _ := r.is(strings.Repeat("i", i+1))
			assert.Equal(t, "published", status, "message %d", i)
		}
		status, _ := r.is("next")
		assert.Equal(t, "pending", status, "it would overtake")
		_, attempts := r.is("hangs")
		assert.Zero(t, attempts)
		close(release)
		r.until(time.Minute, func() bool {
			status, _ := r.is("next")
			return status == "published"
		})
		status, _ = r.is("hangs")
		assert.Equal(t, "published", status)
	})
}
