package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox"
)

// An outbox that is partitioned by day later on: what was published before and after is found, counted and
// replayed alike by whoever is on call.
func TestPartitioned(t *testing.T) {
	t.Parallel()
	s := newShop(t, outbox.Postgres, newPostgres(t))
	delivered := func(string) *outbox.LastError { return nil }
	s.write(1, "Ordering.OrderPlaced.v1", "order-1", "default", "partner")
	s.complete("default", delivered)

	file, err := os.ReadFile(s.config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.config, []byte(strings.Replace(string(file), "on_abandon: block", "on_abandon: block, partition: day", 1)), 0o600))
	code, _, stderr := s.run("status")
	assert.NotZero(t, code)
	assert.Contains(t, stderr, "fanout migrate", "it says what to do")
	assert.Contains(t, s.does("migrate", "--print"), "CREATE TABLE outbox_messages_history (")
	assert.Contains(t, s.does("migrate"), "main: applied 1001_history")
	assert.Contains(t, s.does("migrate"), "main: up to date")
	require.NoError(t, s.store.Close())
	s.openStore()

	for n := 2; n <= 4; n++ {
		s.write(n, "Ordering.OrderPlaced.v1", "order-1", "default", "partner")
	}
	s.complete("default", delivered)
	var rows int
	require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT count(*) FROM outbox_messages WHERE target_broker = 'default'").Scan(&rows))
	require.Equal(t, 1, rows, "the others are in the history")

	var status map[string]api.Database[api.Broker]
	require.NoError(t, json.Unmarshal([]byte(s.does("status", "--json")), &status))
	assert.EqualValues(t, 4, status["main"].Brokers["default"].Counts[outbox.StatusPublished])
	for n := 1; n <= 4; n++ {
		assert.Contains(t, s.does("trace", messageID(n)), "published", n)
	}
	list := s.does("messages", "list", "--broker", "default", "--status", "published")
	assert.Equal(t, 4, strings.Count(list, "Ordering.OrderPlaced.v1"), list)
	found := s.does("trace", "order-1")
	assert.Equal(t, 8, strings.Count(found, "default")+strings.Count(found, "partner"), found)

	out := s.does("messages", "replay", "--broker", "default", "--id", messageID(1), "--id", messageID(3), "--yes")
	assert.Contains(t, out, "2")
	require.NoError(t, json.Unmarshal([]byte(s.does("status", "--json")), &status))
	assert.EqualValues(t, 2, status["main"].Brokers["default"].Counts[outbox.StatusPublished])
	assert.EqualValues(t, 2, status["main"].Brokers["default"].Counts[outbox.StatusPending])

	// A purge by hand takes days that have ended, and its trial run says so.
	_, err = s.db.ExecContext(t.Context(), `DO $$
		DECLARE day date := (now() AT TIME ZONE 'UTC')::date - 30;
		BEGIN
			EXECUTE format('CREATE TABLE outbox_messages_day_%s PARTITION OF outbox_messages_history FOR VALUES FROM (%L) TO (%L)', to_char(day, 'YYYYMMDD'), day || ' 00:00Z', day + 1 || ' 00:00Z');
			UPDATE outbox_messages_history SET published_at = day + time '12:00' AT TIME ZONE 'UTC', finished_at = day + time '12:00' AT TIME ZONE 'UTC' WHERE message_id::text = '`+messageID(2)+`';
		END $$`)
	require.NoError(t, err)
	s.complete("default", delivered) // the replayed ones, today
	assert.Contains(t, s.does("purge", "--published-before", "1s", "--dry-run"), "1 row would be removed")
	assert.Contains(t, s.does("purge", "--published-before", "1s", "--broker", "partner"), "0 rows removed")
	assert.Contains(t, s.does("purge", "--dry-run"), "1 row would be removed")
	assert.Contains(t, s.does("purge"), "1 row removed")
	assert.Contains(t, s.does("purge"), "0 rows removed")
	code, out, _ = s.run("trace", messageID(2))
	assert.NotContains(t, out, "default", code)
}
