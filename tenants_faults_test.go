package fanout_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// slowBroker takes messages when it is released.
type slowBroker struct {
	*memory.Broker

	began, release chan struct{}
	once           sync.Once
	interrupted    atomic.Int64
}

func (b *slowBroker) Publish(ctx context.Context, messages []brokers.Message) []brokers.Result {
	b.once.Do(func() { close(b.began) })
	select {
	case <-b.release:
	case <-ctx.Done():
		b.interrupted.Add(1)
	}
	return b.Broker.Publish(ctx, messages)
}

// A tenant whose broker takes longer than idle_after is not put to sleep in the middle of it.
func TestSlowPublishKeepsATenantAwake(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	dsn, db := sqliteTenant(t)
	cfg, err := config.Parse([]byte("tenants: {idle_after: 1s, every: 1s, visit_every: 1s}\noutbox: {shutdown_timeout: 1s}\nbrokers: {default: {type: memory}}\n"), "fanout.yaml",
		config.WithBrokerTypes(fanout.BrokerTypes()...))
	require.NoError(t, err)
	slow := &slowBroker{Broker: memory.New(), began: make(chan struct{}), release: make(chan struct{})}
	tenants := &listed{list: map[string]config.Database{"acme": {Driver: outbox.SQLite, DSN: config.Secret(dsn)}}}
	r, err := fanout.Open(t.Context(), cfg, tenants.option(), fanout.WithBroker("default", slow), fanout.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	write(t, outbox.SQLite, db, "default", 1)
	<-slow.began
	assert.Never(t, func() bool { return slow.interrupted.Load() > 0 }, 4*time.Second, 50*time.Millisecond)
	close(slow.release)
	require.Eventually(t, func() bool { return len(r.Stats()) == 0 }, 30*time.Second, 20*time.Millisecond, "it sleeps when that is done")
	cancel()
	require.NoError(t, <-done)
	assert.Zero(t, slow.interrupted.Load())
}

// The relay makes no file for a tenant that has none: neither a visit, nor the last one when the
// tenant is removed after its file.
func TestTenantsFileIsNotMade(t *testing.T) {
	t.Parallel()
	dsn, _ := sqliteTenant(t)
	folder := t.TempDir()
	missing, asURL := filepath.Join(folder, "missing.db"), filepath.Join(folder, "url.db")
	tenants := &listed{list: map[string]config.Database{
		"dropped": {Driver: outbox.SQLite, DSN: config.Secret(dsn)},
		"missing": {Driver: outbox.SQLite, DSN: config.Secret(missing)},
		"url":     {Driver: outbox.SQLite, DSN: config.Secret("file:" + asURL)},
	}}
	l := runTenants(t, "{idle_after: 1s, every: 1s, visit_every: 30s}", tenants.option())
	l.says(`msg="tenant not opened" tenant=missing`)
	l.says(`msg="tenant not opened" tenant=url`)
	there := opened(t, "sqlite", dsn+"?_pragma=busy_timeout(10000)")
	l.eventually(func() bool { return count(t, there, "SELECT count(*) FROM outbox_messages_instances") == 1 }, "a visit leaves a heartbeat")
	require.NoError(t, there.Close())
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(dsn + suffix); err != nil {
			require.ErrorIs(t, err, os.ErrNotExist)
		}
	}
	tenants.set("dropped", nil)
	l.says(`msg="tenant removed" tenant=dropped`)
	l.end()
	for _, file := range []string{dsn, missing, asURL} {
		assert.NoFileExists(t, file)
	}
}

// Columns that were mixed up show no password.
func TestTenantNamesThatAreSecrets(t *testing.T) {
	t.Parallel()
	_, err := fanout.Tenants(t.Context(), &config.Config{}, fanout.WithTenants(func(context.Context) (map[string]config.Database, error) {
		return map[string]config.Database{
			"postgres://acme:s3cret@db/acme": {DSN: "acme"}, "postgres://other:s3cret@db/other": {DSN: "other", Driver: "postgres://x:s3cret@y"},
		}, nil
	}))
	require.ErrorContains(t, err, "use letters, digits")
	assert.NotContains(t, err.Error(), "s3cret")
}
