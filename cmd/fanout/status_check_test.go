package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// beats says what a relay says in its heartbeat.
func (s *shop) beats(instance admin.Instance) {
	s.Helper()
	store, ok := s.store.(interface {
		Heartbeat(ctx context.Context, instance admin.Instance) error
	})
	require.True(s, ok)
	require.NoError(s, store.Heartbeat(s.Context(), instance))
}

// silence moves the last heartbeats of all relays ten minutes into the past.
func (s *shop) silence() {
	s.Helper()
	ago := map[outbox.Dialect]string{
		outbox.Postgres: "now() - interval '10 minutes'", outbox.MySQL: "UTC_TIMESTAMP(6) - INTERVAL 10 MINUTE",
		outbox.SQLite: "seen_at - 600000000", outbox.SQLServer: "DATEADD(MINUTE, -10, SYSUTCDATETIME())",
	}
	s.exec("UPDATE outbox_messages_instances SET seen_at = " + ago[s.driver])
}

// The status says that no relay runs, what is unavailable and what waits for a person; and so does its
// exit code, for whoever asks for that.
func TestStatusCheck(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		fails := func(want ...string) {
			t.Helper()
			code, stdout, stderr := s.run("status", "--check")
			assert.Equal(t, 1, code)
			assert.Empty(t, stdout)
			for _, text := range want {
				assert.Contains(t, stderr, text)
			}
		}
		fails("main: no relay runs: messages wait until one does (fanout relay)\n", "something needs a person")
		assert.Contains(t, s.does("status"), "main: no relay runs")
		relay := admin.Instance{ID: uuid.New(), Name: "relay-1", Host: "h", PID: 7}
		s.beats(relay)
		assert.Equal(t, "ok\n", s.does("status", "--check"))
		assert.NotContains(t, s.does("status"), "no relay")

		s.silence()
		fails("main: no relay runs: the last one was seen 10m")
		assert.Contains(t, s.does("workers"), "(gone: killed, or cut off)")
		other := admin.Instance{ID: uuid.New(), Name: "relay-2"}
		s.beats(other)
		assert.Equal(t, "ok\n", s.does("status", "--check"), "one that runs will do")
		assert.Contains(t, s.does("status"), "main: 1 of 2 relays are gone: killed, or cut off from the database")

		other.Unavailable = []admin.Unavailable{{Broker: "default"}, {Broker: "partner", Destination: "ordering::order"}, {Broker: "partner", Destination: "gone"}}
		s.beats(other)
		s.write(1, "Ordering.OrderPlaced.v1", "order-1", "default", "partner")
		fails("main: broker default: unavailable, as its relays say", "main: broker partner: unavailable: gone, ordering::order: create the stream or topic")
		assert.Contains(t, s.does("status"), "main: broker partner: unavailable: gone, ordering::order")
		rows := lines[api.Record](t, s.does("messages", "list", "--id", messageID(1), "--json"))
		require.Len(t, rows, 2)
		assert.Equal(t, []outbox.State{outbox.StateUnavailable, outbox.StateUnavailable}, []outbox.State{rows[0].State, rows[1].State}, "whatever the database knows")
		_, traced, _ := s.run("trace", messageID(1))
		assert.Contains(t, traced, "unavailable")
		var answer map[string]api.Database[wireBroker]
		require.NoError(t, json.Unmarshal([]byte(s.does("status", "--json")), &answer))
		assert.Equal(t, []int{1, 1}, []int{answer["main"].Relays, answer["main"].SilentRelays})
		assert.True(t, answer["main"].Brokers["default"].Unavailable)
		assert.Equal(t, []string{"gone", "ordering::order"}, answer["main"].Brokers["partner"].UnavailableDestinations)
		other.Unavailable = nil
		s.beats(other)

		s.does("broker", "pause", "partner", "--reason", "they move")
		assert.Equal(t, "ok\n", s.does("status", "--check"), "it was paused just now")
		s.exec("UPDATE outbox_messages_pauses SET since = " + map[outbox.Dialect]string{
			outbox.Postgres: "now() - interval '2 hours'", outbox.MySQL: "UTC_TIMESTAMP(6) - INTERVAL 2 HOUR",
			outbox.SQLite: "since - 7200000000", outbox.SQLServer: "DATEADD(HOUR, -2, SYSUTCDATETIME())",
		}[s.driver])
		fails("main: broker partner has been paused for 2h0m")
		s.does("broker", "resume", "partner")

		s.poison(2, 1)
		s.write(10, "Ordering.OrderShipped.v1", "poison-2", "partner")
		fails("main: broker partner: 1 ordering key is blocked, with 1 row behind: \"fanout messages blocked\"", "main: broker partner: 1 row abandoned and not acknowledged")
		s.does("messages", "acknowledge", "--broker", "partner")
		s.does("messages", "unblock", "poison-2", "--broker", "partner")
		assert.Equal(t, "ok\n", s.does("status", "--check"))

		s.exec("UPDATE outbox_messages SET deferred = " + map[bool]string{true: "true", false: "1"}[s.driver == outbox.Postgres] + " WHERE " + s.is(10))
		s.exec("DELETE FROM outbox_messages_key_blocks")
		fails("main: 1 row stranded: no rule can ever make them due; the first is " + messageID(10) + " of type Ordering.OrderShipped.v1 and key poison-2 for broker partner")
		assert.Contains(t, s.does("status"), "fanout messages requeue --id "+messageID(10)+" --broker partner")
		assert.Equal(t, "main: 1 row requeued\n", s.does("messages", "requeue", "--id", messageID(10), "--broker", "partner"))
		assert.Equal(t, "ok\n", s.does("status", "--check"))
		s.write(30, "T", "k", "removed")
		fails("main: broker removed: not configured, and 1 row wait for it")
	})
}

// Messages wait for a consumer that has died: its own metrics have died with it, and its inbox says so.
func TestStatusKnowsDeadConsumers(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		db := s.consumers()
		s.beats(admin.Instance{ID: uuid.New(), Name: "relay-1"})
		for n := 1; n <= 6; n++ {
			s.write(n, "Ordering.OrderPlaced.v1", fmt.Sprintf("order-%d", n), "default")
		}
		s.write(7, "Ordering.OrderShipped.v1", "order-7", "default") // which this consumer does not take
		s.complete("default", func(string) *outbox.LastError { return nil })
		console := func() string {
			code, stdout, stderr := s.run("status", "--check")
			return fmt.Sprint(code, " ", stdout, stderr)
		}
		published := func(ago time.Duration, conditions string) {
			old := map[outbox.Dialect]string{
				outbox.Postgres: "now() - interval '%d seconds'", outbox.MySQL: "UTC_TIMESTAMP(6) - INTERVAL %d SECOND", outbox.SQLite: "(CAST(unixepoch('subsec') * 1000000 AS INTEGER) - %d * 1000000)",
			}[s.driver]
			old = fmt.Sprintf(old, int(ago.Seconds()))
			s.exec("UPDATE outbox_messages SET published_at = " + old + ", finished_at = " + old + conditions)
		}
		published(time.Hour, "")
		assert.Equal(t, "0 ok\n", console(), "it may take other types")
		assert.Contains(t, s.does("status"), "consumer billing has recorded none of the newest messages of broker default")

		for n := 1; n <= 4; n++ {
			require.NoError(t, s.consumes(db, n, func(*gorm.DB) error { return nil }))
		}
		published(2*time.Hour, " WHERE "+s.is(1)+" OR "+s.is(2)+" OR "+s.is(3)+" OR "+s.is(4))
		want := "consumer billing has not recorded the last 2 rows of broker default, the first of which was published 1h0m"
		assert.Contains(t, console(), "1 "+want)
		assert.Contains(t, s.does("status"), want)
		require.NoError(t, s.consumes(db, 5, func(*gorm.DB) error { return nil }))
		require.Error(t, s.consumes(db, 6, func(*gorm.DB) error { return errors.New("later") }))
		assert.Equal(t, "0 ok\n", console(), "one that fails runs")
		assert.NotContains(t, s.does("status"), "consumer billing")

		s.exec("DROP TABLE inbox_messages")
		assert.Contains(t, console(), "1 consumer billing: whether it is behind is not known: the inbox of consumer billing does not answer")
	})
}

// However much was published since a consumer died, it is known as dead.
func TestStatusKnowsConsumersThatDiedLongAgo(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		s.thousands()
		db := s.consumers()
		s.beats(admin.Instance{ID: uuid.New(), Name: "relay-1"})
		const since = 10_001 // more than is looked at
		rows := make([]outbox.Row, since)
		for n := range rows {
			rows[n] = message(n+1, "Ordering.OrderPlaced.v1", "", "default")
		}
		s.insert(rows...)
		at := map[outbox.Dialect]string{
			outbox.Postgres: "now() - interval '1 hour'", outbox.MySQL: "UTC_TIMESTAMP(6) - INTERVAL 1 HOUR", outbox.SQLite: "(CAST(unixepoch('subsec') * 1000000 AS INTEGER) - 3600 * 1000000)",
		}[s.driver]
		s.exec("UPDATE outbox_messages SET status = 'published', published_at = " + at + ", finished_at = " + at)
		check := func() string {
			_, stdout, stderr := s.run("status", "--check")
			return stdout + stderr
		}
		assert.Equal(t, "ok\n", check(), "it may take other types")
		require.NoError(t, s.consumes(db, since+1, func(*gorm.DB) error { return nil })) // purged meanwhile, or of another order
		assert.Contains(t, check(), "consumer billing has not recorded the last 10,000+ rows of broker default, the first of which was published 1h0m")
		assert.Contains(t, s.does("status"), "consumer billing has not recorded the last 10,000+ rows of broker default")
	})
}

// A relay that runs is not taken for dead, nor a dead one for running, since the clocks of database and operator differ.
func TestStatusOfRelaysByAnotherClock(t *testing.T) {
	t.Parallel()
	for _, ahead := range []string{"+", "-"} {
		dsn := newPostgres(t)
		db, err := sql.Open("pgx", dsn)
		require.NoError(t, err)
		_, err = db.ExecContext(t.Context(), "CREATE SCHEMA off; CREATE FUNCTION off.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS "+
			"$$ SELECT pg_catalog.clock_timestamp() "+ahead+" interval '1 hour' $$")
		require.NoError(t, err)
		require.NoError(t, db.Close())
		separator := "?"
		if strings.Contains(dsn, "?") {
			separator = "&"
		}
		s := newShop(t, outbox.Postgres, dsn+separator+"search_path=off,public,pg_catalog")
		s.beats(admin.Instance{ID: uuid.New(), Name: "relay-1"})
		assert.Equal(t, "ok\n", s.does("status", "--check"), ahead)
		assert.NotContains(t, s.does("workers"), "gone")
		s.exec("UPDATE outbox_messages_instances SET seen_at = seen_at - interval '10 minutes'")
		code, _, stderr := s.run("status", "--check")
		assert.Equal(t, exitFailed, code)
		assert.Contains(t, stderr, "no relay runs: the last one was seen 10m")
	}
}
