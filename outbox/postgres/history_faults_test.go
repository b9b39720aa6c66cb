package postgres

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// claim takes up to so many rows of a shard.
func (p *past) claim(shard, limit int) driver.Exchanged {
	p.Helper()
	got, err := p.Exchange(p.Context(), nil, claiming(shard, limit))
	require.NoError(p, err)
	return got
}

func claiming(shard, limit int) *driver.Claim {
	return &driver.Claim{Broker: "a", Shard: shard, Limit: limit, Window: limit, Unordered: true, Bytes: 1 << 20, Lease: time.Minute, Worker: "w"}
}

// confirmed is the completion of a batch that the broker has.
func confirmed(batch *driver.Batch) *driver.Completion {
	completion := &driver.Completion{Lease: batch.Lease}
	for i := range batch.Messages {
		completion.Published = append(completion.Published, driver.Delivered{ID: batch.Messages[i].ID, BrokerMessageID: "1-0"})
	}
	return completion
}

// fullest is the shard with the most rows.
func (p *past) fullest() int {
	p.Helper()
	return p.number("SELECT shard FROM kept GROUP BY 1 ORDER BY count(*) DESC LIMIT 1")
}

// writeSome writes messages without a key.
func (p *past) writeSome(n int) {
	p.Helper()
	for range n {
		exec(p.T, p.conn, "INSERT INTO kept (message_id, target_broker, stream, type, payload) VALUES ($1, 'a', 's', 't', 'x')", uuid.Must(uuid.NewV7()))
	}
}

// Several sessions write each message at once, while relays deliver: it is stored and delivered once.
func TestHistoryBesideRepeatedWrites(t *testing.T) {
	testenv.NeedLong(t)
	t.Parallel()
	p := newPast(t)
	const writers, at, each = 3, 3, 60
	var (
		done              atomic.Bool
		delivered         atomic.Int64
		relays, producers sync.WaitGroup
	)
	for shard := range outbox.Shards {
		relays.Go(func() {
			for last := false; !last; {
				last = done.Load() // once more when all is written
				got, err := p.Exchange(p.Context(), nil, claiming(shard, 50))
				if err != nil || len(got.Batch.Messages) == 0 {
					continue
				}
				last = false
				delivered.Add(int64(len(got.Batch.Messages)))
				_, err = p.Exchange(p.Context(), confirmed(&got.Batch), nil)
				assert.NoError(t, err)
			}
		})
	}
	db := openDB(t, p.dsn)
	for range at {
		producers.Go(func() {
			for range each {
				id := uuid.Must(uuid.NewV7())
				var group sync.WaitGroup
				for range writers {
					group.Go(func() {
						_, err := db.ExecContext(p.Context(), "INSERT INTO kept (message_id, target_broker, stream, type, payload) VALUES ($1, 'a', 's', 't', 'x') ON CONFLICT DO NOTHING", id)
						assert.NoError(t, err)
					})
				}
				group.Wait()
			}
		})
	}
	producers.Wait()
	done.Store(true)
	relays.Wait()
	assert.EqualValues(t, at*each, delivered.Load())
	assert.Equal(t, at*each, p.number("SELECT count(*) FROM kept_history"))
	assert.Equal(t, 0, p.number("SELECT count(*) FROM kept"))
}

// A transaction that writes a message again that is there already, and stays open, keeps no completion from it.
func TestHistoryBesideAnOpenRepetition(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t)
	p := newPast(t)
	p.writeSome(3)
	tx, err := p.conn.Begin(t.Context())
	require.NoError(t, err)
	for range 2 {
		_, err = tx.Exec(t.Context(), "INSERT INTO kept (message_id, target_broker, stream, type, payload) SELECT message_id, 'a', 's', 't', 'x' FROM kept ON CONFLICT DO NOTHING")
		require.NoError(t, err)
	}
	moved := 0
	for shard := range outbox.Shards {
		if got := p.claim(shard, 10); len(got.Batch.Messages) > 0 {
			answer, err := p.Exchange(t.Context(), confirmed(&got.Batch), nil)
			require.NoError(t, err)
			require.Zero(t, answer.Completed.Lost)
			moved += len(got.Batch.Messages)
		}
	}
	assert.Equal(t, 3, moved)
	require.NoError(t, tx.Commit(t.Context()))
}

// What the claim of an exchange meets is not taken for an error of its completion, which stands.
func TestHistoryOfAnExchangeWhoseClaimFails(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t)
	p := newPast(t)
	p.writeSome(40)
	shard := p.fullest()
	got := p.claim(shard, 2)
	for range 2 { // the plans are made
		var err error
		got, err = p.Exchange(t.Context(), confirmed(&got.Batch), claiming(shard, 2))
		require.NoError(t, err)
	}
	exec(t, p.conn, "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE check_violation; END $$")
	exec(t, p.conn, "CREATE TRIGGER no BEFORE UPDATE ON kept FOR EACH ROW EXECUTE FUNCTION no()")
	answer, err := p.Exchange(t.Context(), confirmed(&got.Batch), claiming(shard, 2))
	require.Error(t, err)
	require.NotNil(t, answer.Completed)
	assert.Zero(t, answer.Completed.Lost)
	assert.Equal(t, 6, p.number("SELECT count(*) FROM kept_history"))
}

// Why no days can be made is an error of the purge; what is old goes all the same, and a day that cannot go
// keeps none of the others.
func TestHistoryPurgeGoesOn(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t)
	p := newPast(t)
	for _, days := range []int{9, 8} {
		p.writeSome(1)
		require.Len(t, p.deliver("a"), 1)
		p.older(days)
	}
	exec(t, p.conn, "DO $$ BEGIN EXECUTE 'CREATE VIEW report AS SELECT id FROM kept_day_' || to_char(now() AT TIME ZONE 'UTC' - interval '9 days', 'YYYYMMDD'); END $$")
	exec(t, p.conn, "CREATE OR REPLACE FUNCTION kept_history_days() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE 'no permission for schema'; END $$")
	n, err := p.PurgeHistory(t.Context(), func(string) time.Duration { return day }, 10, 0, nil)
	require.ErrorContains(t, err, "make the days ahead of the history of kept: ERROR: no permission for schema")
	require.ErrorContains(t, err, "cannot drop table public.kept_day_")
	assert.Equal(t, 2, n)
	assert.Equal(t, 0, p.number("SELECT count(*) FROM kept_history"), "both were detached, and one of them was dropped")
	assert.Equal(t, 1, p.number("SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname IN (SELECT 'kept_day_' || to_char(now() AT TIME ZONE 'UTC' - n * interval '1 day', 'YYYYMMDD') FROM generate_series(8, 9) AS n)"))
}

// A relay that comes while another one makes the days marks rows until they are there, and no longer.
func TestHistoryWhileAnotherMakesTheDays(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t)
	p := newPast(t)
	exec(t, p.conn, `DO $do$ DECLARE f text := pg_get_functiondef('kept_history_known()'::regprocedure);
		BEGIN EXECUTE replace(f, to_char(now() AT TIME ZONE 'UTC', '-- YYYY-MM-DD'), '-- 2000-01-01'); END $do$`)
	tx, err := p.conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT kept_history_days()")
	require.NoError(t, err)
	completion, now := &driver.Completion{Published: make([]driver.Delivered, 1)}, time.Now()
	p.now = func() time.Time { return now }
	assert.False(t, p.moves(t.Context(), completion))
	require.NoError(t, tx.Commit(t.Context()))
	assert.False(t, p.moves(t.Context(), completion), "it is not asked each time")
	now = now.Add(daysAgain)
	assert.True(t, p.moves(t.Context(), completion))
}

// A column of the owner's may have any name.
func TestHistoryWithAnOwnersColumn(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t)
	p := newPast(t)
	exec(t, p.conn, "ALTER TABLE kept ADD COLUMN confirmed text, ADD COLUMN n int DEFAULT 1")
	p.writeSome(2)
	require.Len(t, p.deliver("a"), 2)
	assert.Equal(t, 2, p.number("SELECT count(*) FROM kept_history"))
}

// Another outbox may have the name of what would be the view of this one's history.
func TestWrittenBesideAnotherOutbox(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t)
	dsn := testenv.Postgres(t)
	for _, name := range []string{"box", "box_all"} {
		_, err := openStore(t, dsn, name).Migrate(t.Context())
		require.NoError(t, err)
	}
	inserter, err := outbox.NewInserter(outbox.Postgres, "box")
	require.NoError(t, err)
	db, rows := openDB(t, dsn), someRows(1)
	require.NoError(t, inserter.Insert(t.Context(), db, rows))
	for _, more := range []string{"", "DROP TABLE box_all", "CREATE VIEW box_all AS SELECT 1 AS n"} { // also a view of the owner's
		_, err := db.ExecContext(t.Context(), more)
		require.NoError(t, err)
		there, err := inserter.Written(t.Context(), db, []uuid.UUID{rows[0].MessageID})
		require.NoError(t, err)
		assert.Equal(t, []uuid.UUID{rows[0].MessageID}, there)
	}
}

// Who may make functions beside the outbox, and temporary tables, has none of them run with the owner's rights.
func TestHistoryRunsNothingOfOthers(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t)
	p := newPast(t)
	for _, arguments := range []string{
		"name, int", "text, int", "name, text", "date, text", "regclass, text", "text", "name", strings.Repeat("text, ", 1) + "text", strings.Repeat("text, ", 2) + "text", strings.Repeat("text, ", 3) + "text",
	} {
		for _, name := range []string{"left", "right", "format", "strpos", "to_char", "quote_ident", "obj_description", "lpad", "substr", "to_regclass", "clock_timestamp"} {
			exec(t, p.conn, "CREATE FUNCTION public."+name+"("+arguments+") RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'of another one'; END $$")
		}
	}
	exec(t, p.conn, "CREATE TEMPORARY TABLE kept_history (message_id uuid, target_broker text, n int)")
	exec(t, p.conn, "CREATE TEMPORARY TABLE pg_inherits (inhparent oid, inhrelid oid)")
	exec(t, p.conn, "SELECT kept_history_days(), kept_history_detach('2020-01-01'), kept_history_drop(), kept_history_restore('{}', '{}')")
	p.writeSome(1)
	assert.Len(t, p.deliver("a"), 1)
	assert.Equal(t, 1, p.number("SELECT count(*) FROM public.kept_history"))
}

// A message can stand in the history and, written in a transaction whose snapshot was older, in the outbox, too. A
// replay of as many rows as were counted leaves the one of the outbox alone, and ends.
func TestReplayOfAMessageThatIsOpenAgain(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t)
	p := newPast(t)
	id := uuid.Must(uuid.NewV7())
	writer, err := pgx.Connect(t.Context(), p.dsn)
	require.NoError(t, err)
	defer writer.Close(context.WithoutCancel(t.Context()))
	exec(t, writer, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	exec(t, writer, "SELECT count(*) FROM kept")
	p.write("a", id)
	require.Len(t, p.deliver("a"), 1)
	exec(t, writer, fmt.Sprintf("INSERT INTO kept (message_id, target_broker, stream, type, payload) VALUES ('%s', 'a', 's', 't', 'x')", id))
	exec(t, writer, "COMMIT")
	require.Equal(t, 2, p.number("SELECT count(*) FROM kept_all"))
	filter := admin.Filter{Broker: "a", Statuses: []outbox.Status{outbox.StatusPublished}}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	matched, err := p.Matches(ctx, filter, 10)
	require.NoError(t, err)
	replayed, err := p.Replay(ctx, filter, matched)
	require.NoError(t, err)
	assert.Zero(t, replayed)
	p.writeSome(1)
	require.NotEmpty(t, p.deliver("a"))
	replayed, err = p.Replay(ctx, filter, 3)
	require.NoError(t, err)
	assert.Equal(t, 2, replayed, "of one that the history has twice, one")
}

// That the rows of a day cannot be counted, say in the time that a role has, keeps the day from nothing but the sum.
func TestHistoryGoesWithoutACount(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t)
	p := newPast(t)
	p.writeSome(1)
	require.Len(t, p.deliver("a"), 1)
	p.older(5)
	p.Replace("history_rows", "count(*)", "count(*) / (count(*) - count(*))")
	n, err := p.PurgeHistory(t.Context(), func(string) time.Duration { return day }, 10, 0, nil)
	require.ErrorContains(t, err, "division by zero")
	assert.Zero(t, n)
	assert.Equal(t, 0, p.number("SELECT count(*) FROM kept_history"))
}

// Payloads that are kept beside the row move as they are.
func TestHistoryOfLargePayloads(t *testing.T) {
	testenv.NeedLong(t)
	t.Parallel()
	p := newPast(t)
	exec(t, p.conn, "INSERT INTO kept (message_id, target_broker, stream, type, payload) SELECT gen_random_uuid(), 'a', 's', 't', string_agg(sha256(n::text::bytea), '') FROM generate_series(1, 50000) AS n")
	require.Len(t, p.deliver("a"), 1)
	exec(t, p.conn, "VACUUM kept")
	assert.Equal(t, 1, p.number("SELECT count(*) FROM kept_history WHERE payload = (SELECT string_agg(sha256(n::text::bytea), '') FROM generate_series(1, 50000) AS n)"))
}

// What keeps a row from being moved, such as a foreign key of the owner's on the outbox, does not keep it from being marked: it
// would be sent again and again.
func TestHistoryOfRowsThatCannotBeMoved(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t)
	p := newPast(t)
	exec(t, p.conn, "CREATE TABLE orders (message_id uuid, broker text, FOREIGN KEY (message_id, broker) REFERENCES kept (message_id, target_broker))")
	p.writeSome(1)
	exec(t, p.conn, "INSERT INTO orders SELECT message_id, target_broker FROM kept")
	require.Len(t, p.deliver("a"), 1)
	assert.Equal(t, 1, p.number("SELECT count(*) FROM kept WHERE status = 'published'"))
}
