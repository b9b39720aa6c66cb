package relay_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
	"github.com/gorm-fanout/fanout/outbox/sqlite"
)

func TestNewEngineReportsEverything(t *testing.T) {
	t.Parallel()
	_, err := relay.NewEngine(relay.EngineConfig{})
	require.ErrorContains(t, err, "at least one database and one broker")
	store, err := sqlite.New(nil, "")
	require.NoError(t, err)
	_, err = relay.NewEngine(relay.EngineConfig{
		Stores:  map[string]driver.Delivery{"d": store},
		Brokers: map[string]relay.Target{"a": {Broker: memory.New(), Policy: outbox.Policy{Workers: -1}}, "b": {Broker: memory.New(), Policy: outbox.Policy{BatchSize: -1}}},
	})
	require.ErrorContains(t, err, `broker "a"`)
	require.ErrorContains(t, err, `broker "b"`)
}

// One processor for each pair of database and broker; a broker that hangs delays no other, in
// either database.
func TestEngine(t *testing.T) {
	t.Parallel()
	paths := []string{filepath.Join(t.TempDir(), "one.db"), filepath.Join(t.TempDir(), "two.db")}
	synctest.Test(t, func(t *testing.T) {
		good := memory.New()
		hung := &fake{publish: func(ctx context.Context, _ brokers.Message) error {
			<-ctx.Done()
			return brokers.Unreachable(brokers.ScopeBroker, ctx.Err())
		}}
		stores, rigs := map[string]driver.Delivery{}, []*rig{}
		for _, path := range paths {
			r := newRig(t, path, good, outbox.Policy{})
			defer r.db.Close()
			rigs = append(rigs, r)
			stores[filepath.Base(path)] = r.store
		}
		engine, err := relay.NewEngine(relay.EngineConfig{
			Stores: stores, Brokers: map[string]relay.Target{"b": {Broker: good}, "hung": {Broker: hung}}, Log: slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- engine.Run(ctx) }()
		for i := range 100 {
			for _, r := range rigs {
				r.insert("", strconv.Itoa(i))
				_, err := r.db.ExecContext(t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload)
					SELECT message_id, 'hung', stream, type, payload FROM outbox_messages ORDER BY id DESC LIMIT 1`)
				require.NoError(t, err)
			}
		}
		engine.Wake("one.db")
		for _, r := range rigs {
			r.until(5*time.Second, func() bool {
				return r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published' AND target_broker = 'b'") == "100"
			})
		}
		stop()
		require.NoError(t, <-done)
		require.Len(t, engine.Stats(), 4)
		for _, r := range rigs {
			assert.Equal(t, "100", r.query("SELECT count(*) FROM outbox_messages WHERE target_broker = 'hung' AND status = 'pending' AND attempts = 0"))
		}
	})
}

// What the process is called may be asked while the engine runs, by whoever looks after other databases.
func TestInstanceOfARunningEngine(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "one.db"), memory.New(), outbox.Policy{})
	defer r.db.Close()
	engine, err := relay.NewEngine(relay.EngineConfig{
		Stores: map[string]driver.Delivery{"d": r.store}, Brokers: map[string]relay.Target{"b": {Broker: memory.New()}}, Name: "me", Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- engine.Run(ctx) }()
	require.Eventually(t, func() bool {
		id := engine.Instance().ID
		instances, err := r.store.Instances(ctx)
		return err == nil && len(instances) == 1 && instances[0].ID == id && instances[0].Name == "me"
	}, 30*time.Second, time.Millisecond)
	stop()
	require.NoError(t, <-done)
}
