package integration_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/testservers"
	"github.com/gorm-fanout/fanout/outbox"
)

// ownServer is a database on a server of this test's own, which it may kill.
func ownServer(t *testing.T, driver outbox.Dialect) (*place, *testservers.Own) {
	t.Helper()
	start := testservers.OwnPostgres
	if driver == outbox.MySQL {
		start = func(ctx context.Context, options ...string) (*testservers.Own, error) {
			return testservers.OwnMySQL(ctx, append(options, "--log-bin=log", "--sync-binlog=1")...)
		}
	}
	own, err := start(t.Context())
	if errors.Is(err, testservers.ErrNoBinary) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Close()) })
	p := &place{T: t, driver: driver, dsn: own.URL}
	name, dsn := "pgx", own.URL
	if driver == outbox.MySQL {
		admin, err := sql.Open("mysql", own.URL)
		require.NoError(t, err)
		_, err = admin.ExecContext(t.Context(), "CREATE DATABASE shop")
		require.NoError(t, errors.Join(err, admin.Close()))
		p.dsn = own.URL + "shop"
		name, dsn = "mysql", p.dsn+"?parseTime=true"
	}
	p.db, err = sql.Open(name, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.db.Close() })
	return p, own
}

// The database's server is killed again and again while messages are written and two relays deliver
// them: all that was committed arrives, and the first copies of each key arrive in order.
func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	testenv.OnEach(t, []outbox.Dialect{outbox.Postgres, outbox.MySQL}, func(d outbox.Dialect) string { return string(d) }, func(t *testing.T, driver outbox.Dialect) {
		p, own := ownServer(t, driver)
		testServerIsKilled(t, p, own)
	})
}

func testServerIsKilled(t *testing.T, p *place, own *testservers.Own) {
	t.Helper()
	const kills, between = 3, 200
	b := newBench(p)
	// Rows whose claim was committed and never answered wait for the lease to end.
	b.configure(fmt.Sprintf("outbox: {external_brokers: [], lease: 3s, publish_timeout: 1s, batch_size: 100}\nbrokers:\n  default: {type: redis, url: %q}\n", testenv.Redis(t)))
	require.Zero(t, b.run("migrate").code)
	relays := []*relayProcess{b.relay(), b.relay()}
	for _, relay := range relays { // one that finds no database at its start ends
		eventually(t, func() bool { return strings.Contains(relay.log.String(), "relay started") })
	}

	ctx, stop := context.WithCancel(t.Context())
	written := make(chan int, 1)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			p.persist(ctx, numbered("default", b.stream, (n+1)%20, n+1))
		}
		written <- n
	}()
	for range kills {
		target := b.arrived() + between
		eventually(t, func() bool { return b.arrived() >= target })
		require.NoError(t, own.End(syscall.SIGKILL, time.Minute))
		require.NoError(t, own.Start(t.Context()))
	}
	target := b.arrived() + between
	eventually(t, func() bool { return b.arrived() >= target })
	stop()
	rows := <-written
	eventually(t, func() bool { return b.count("finished_at IS NULL") == 0 })
	for _, relay := range relays {
		eventually(t, func() bool {
			said := relay.log.String()
			return !strings.Contains(said, "database call failed") || strings.Contains(said, "database answers again")
		})
		code, _ := relay.stop()
		assert.Zero(t, code, relay.log.String())
	}
	total := b.count("status = 'published'")
	assert.Contains(t, []int{rows - 1, rows}, total, "the last one may have been given up before it was written")

	entries, err := b.redis.XRange(t.Context(), b.stream, "-", "+").Result()
	require.NoError(t, err)
	last, seen := map[int]int{}, map[int]bool{}
	for _, entry := range entries {
		var payload struct{ Key, N int }
		require.NoError(t, json.Unmarshal([]byte(entry.Values["data"].(string)), &payload))
		if !seen[payload.N] {
			require.Greater(t, payload.N, last[payload.Key], "order of key %d", payload.Key)
			last[payload.Key], seen[payload.N] = payload.N, true
		}
	}
	assert.Len(t, seen, total)
	t.Logf("%d messages, %d second copies", len(seen), len(entries)-len(seen))
}

// persist writes a row, however often it takes. A commit without an answer may have happened.
func (p *place) persist(ctx context.Context, row outbox.Row) {
	inserter, err := outbox.NewInserter(p.driver, outbox.DefaultTable)
	for err == nil && ctx.Err() == nil {
		if failed := inserter.InsertMissing(ctx, p.db, []outbox.Row{row}); failed == nil || strings.Contains(failed.Error(), "context canceled") {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}
