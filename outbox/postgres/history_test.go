package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

const kept = "kept"

// past is a store with a history, whose helpers write messages and deliver them.
type past struct {
	*testing.T
	*Store

	conn *pgx.Conn
	dsn  string
}

func newPast(t *testing.T) *past {
	t.Helper()
	testenv.NeedSeconds(t)
	dsn := testenv.Postgres(t)
	store := openStore(t, dsn, kept, WithHistory())
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, store.Check(t.Context()))
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return &past{T: t, Store: store, conn: conn, dsn: dsn}
}

// write inserts messages of one key for a broker.
func (p *past) write(broker string, ids ...uuid.UUID) {
	p.Helper()
	for _, id := range ids {
		exec(p.T, p.conn, "INSERT INTO kept (message_id, target_broker, stream, type, ordering_key, payload) VALUES ($1, $2, 's', 't', 'k', 'x')", id, broker)
	}
}

// deliver claims what there is for a broker and completes it.
func (p *past) deliver(broker string) (ids []uuid.UUID) {
	p.Helper()
	for shard := range outbox.Shards {
		claim := claiming(shard, 100)
		claim.Broker, claim.Unordered = broker, false
		got, err := p.Exchange(p.Context(), nil, claim)
		require.NoError(p, err)
		if len(got.Batch.Messages) == 0 {
			continue
		}
		for i := range got.Batch.Messages {
			ids = append(ids, uuid.MustParse(got.Batch.Messages[i].MessageID))
		}
		answer, err := p.Exchange(p.Context(), confirmed(&got.Batch), nil)
		require.NoError(p, err)
		require.Zero(p, answer.Completed.Lost)
	}
	return ids
}

func (p *past) number(query string, args ...any) (n int) {
	p.Helper()
	require.NoError(p, p.conn.QueryRow(p.Context(), query, args...).Scan(&n))
	return n
}

// older makes a partition of some days ago, and what was published today to be of that day.
func (p *past) older(days int) {
	p.Helper()
	exec(p.T, p.conn, fmt.Sprintf(`DO $$
		DECLARE day date := (now() AT TIME ZONE 'UTC')::date - %d;
		BEGIN
			EXECUTE format('CREATE TABLE IF NOT EXISTS kept_day_%%s PARTITION OF kept_history FOR VALUES FROM (%%L) TO (%%L)', to_char(day, 'YYYYMMDD'), day || ' 00:00Z', day + 1 || ' 00:00Z');
		END $$`, days))
	exec(p.T, p.conn, fmt.Sprintf("UPDATE kept_history SET published_at = published_at - interval '%[1]d days', finished_at = finished_at - interval '%[1]d days' WHERE published_at > now() - interval '1 day'", days))
}

func (p *past) purgeHistory(of func(string) time.Duration) int {
	p.Helper()
	n, err := p.PurgeHistory(p.Context(), of, 2, 0, nil)
	require.NoError(p, err)
	return n
}

// ended delivers so many messages of the brokers a and b on a day that ended so many days ago.
func (p *past) ended(days, ofA, ofB int) {
	p.Helper()
	for broker, n := range map[string]int{"a": ofA, "b": ofB} {
		for range n {
			p.write(broker, uuid.New())
		}
		p.deliver(broker)
	}
	p.older(days)
}

const day = 24 * time.Hour

func week(string) time.Duration { return 7 * day }

// What is delivered stands in the history, and not in the outbox.
func TestHistoryOfADelivery(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t)
	p := newPast(t)
	ids := []uuid.UUID{uuid.Must(uuid.NewV7()), uuid.New()}
	p.write("a", ids...)
	require.ElementsMatch(t, ids, p.deliver("a"))
	assert.Equal(t, 0, p.number("SELECT count(*) FROM kept"))
	assert.Equal(t, 2, p.number("SELECT count(*) FROM kept_history WHERE status = 'published' AND attempts = 1 AND broker_message_id = '1-0' AND lock_token IS NULL"))
	assert.Equal(t, 2, p.number("SELECT count(*) FROM kept_all"))
}

// A message that was delivered is not delivered again where it is written again, whatever its id.
func TestHistoryKnowsMessages(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t)
	p := newPast(t)
	ids := []uuid.UUID{uuid.Must(uuid.NewV7()), uuid.New()}
	p.write("a", ids...)
	p.deliver("a")
	p.older(5)
	p.write("a", ids[1])
	assert.Equal(t, 0, p.number("SELECT count(*) FROM kept"), "an id without a time is looked for everywhere")
	p.write("b", ids...)
	assert.Equal(t, 2, p.number("SELECT count(*) FROM kept"), "another broker's row is another one")
	again := uuid.Must(uuid.NewV7())
	p.write("a", again)
	p.deliver("a")
	p.write("a", again)
	assert.Equal(t, 2, p.number("SELECT count(*) FROM kept"))
}

// A message that is written again while it is being moved to the history waits for the move, and is known then.
func TestHistoryKnowsWhatIsBeingMoved(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t)
	p := newPast(t)
	id := uuid.Must(uuid.NewV7())
	p.write("a", id)
	mover, err := p.conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = mover.Exec(t.Context(), `WITH moved AS (DELETE FROM kept RETURNING *)
		INSERT INTO kept_history (id, created_at, message_id, priority, shard, target_broker, stream, type, content_type, deferred, isolated, crashes, attempts, published_at, finished_at, status, payload)
		SELECT id, created_at, message_id, priority, shard, target_broker, stream, type, content_type, deferred, isolated, crashes, 1, created_at, now(), 'published', payload FROM moved`)
	require.NoError(t, err)
	db := openDB(t, p.dsn)
	written := make(chan int64, 1)
	go func() {
		result, err := db.ExecContext(context.Background(), "INSERT INTO kept (message_id, target_broker, stream, type, payload) VALUES ($1, 'a', 's', 't', 'x')", id)
		if !assert.NoError(t, err) {
			written <- -1
			return
		}
		n, err := result.RowsAffected()
		assert.NoError(t, err)
		written <- n
	}()
	require.Eventually(t, func() bool {
		var waiting bool
		err := p.pool.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND transactionid IS NOT NULL AND database IS NULL AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database()))").Scan(&waiting)
		return err == nil && waiting
	}, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, mover.Commit(t.Context()))
	assert.EqualValues(t, 1, <-written, "it is stored, and removed by the trigger")
	assert.Equal(t, 1, p.number("SELECT count(*) FROM kept_all"))
	assert.Equal(t, 0, p.number("SELECT count(*) FROM kept"))
}

// A day goes when it is old for each of its brokers; until then the rows of those for whom it is go by themselves.
func TestHistoryGoesByTheDay(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t)
	p := newPast(t)
	for _, broker := range []string{"a", "b"} {
		for range 5 {
			p.write(broker, uuid.Must(uuid.NewV7()))
		}
		p.deliver(broker)
	}
	p.older(5)
	assert.Equal(t, 0, p.purgeHistory(week))
	assert.Equal(t, 5, p.purgeHistory(func(broker string) time.Duration {
		if broker == "a" {
			return day
		}
		return 7 * day
	}))
	assert.Equal(t, 5, p.number("SELECT count(*) FROM kept_history WHERE target_broker = 'b'"))
	assert.Equal(t, 5, p.purgeHistory(func(string) time.Duration { return day }))
	assert.Equal(t, 0, p.number("SELECT count(*) FROM kept_all"))
	assert.Equal(t, 9, p.number("SELECT count(*) FROM pg_class WHERE relname ~ '^kept_day_[0-9]+$'"), "yesterday, today and a week")
	assert.Equal(t, 1, p.number("SELECT count(*) FROM pg_inherits WHERE inhparent = 'kept_history'::regclass AND inhrelid = ('kept_day_' || to_char(now() AT TIME ZONE 'UTC' - interval '1 day', 'YYYYMMDD'))::regclass"))
}

// A process that died has left a day that is no part of the history any more.
func TestHistoryDropsWhatIsLeft(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t)
	p := newPast(t)
	p.write("a", uuid.New())
	p.deliver("a")
	p.older(5)
	require.Equal(t, 1, p.number("SELECT CASE WHEN kept_history_detach((now() AT TIME ZONE 'UTC')::date - 5) THEN 1 ELSE 0 END"))
	exec(t, p.conn, "CREATE TABLE kept_day_20200101 (n int)")
	assert.Equal(t, 0, p.purgeHistory(week))
	assert.Equal(t, 0, p.number("SELECT count(*) FROM pg_class WHERE relname = 'kept_day_' || to_char(now() AT TIME ZONE 'UTC' - interval '5 days', 'YYYYMMDD')"))
	assert.Equal(t, 1, p.number("SELECT count(*) FROM pg_class WHERE relname = 'kept_day_20200101'"), "what is not ours stays")
}

// Delivery goes on where there is no day to move a row to: it is marked, and the day is made again.
func TestHistoryWithoutADay(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t)
	p := newPast(t)
	p.write("a", uuid.New())
	p.deliver("a") // and so the store knows of days
	exec(t, p.conn, "DROP TABLE kept_history CASCADE")
	p.write2(t)
	assert.Len(t, p.deliver("a"), 1)
	assert.Equal(t, 1, p.number("SELECT count(*) FROM kept WHERE status = 'published'"))
}

func (p *past) write2(t *testing.T) {
	t.Helper()
	exec(t, p.conn, "ALTER TABLE kept DISABLE TRIGGER kept_history_known")
	p.write("a", uuid.New())
}

// A replay and a drop of the day that has the message: it is delivered once more, or the replay says
// that there was nothing, and never is it gone from both places while the replay says that it was done.
func TestReplayBesideADrop(t *testing.T) {
	testenv.NeedLong(t)
	t.Parallel()
	p := newPast(t)
	for n := range 10 {
		id := uuid.New()
		p.write("a", id)
		p.deliver("a")
		p.older(5)
		replayed, purged := make(chan int, 1), make(chan error, 1)
		go func() {
			n, err := p.Replay(p.Context(), admin.Filter{Broker: "a", Statuses: []outbox.Status{outbox.StatusPublished}}, 10)
			assert.NoError(t, err)
			replayed <- n
		}()
		go func() {
			_, err := p.PurgeHistory(p.Context(), func(string) time.Duration { return day }, 2, 0, nil)
			purged <- err
		}()
		require.NoError(t, <-purged, n)
		assert.Equal(t, <-replayed, p.number("SELECT count(*) FROM kept WHERE message_id = $1 AND status = 'pending'", id))
		assert.Equal(t, 0, p.number("SELECT count(*) FROM kept_history"))
		p.deliver("a")
		exec(t, p.conn, "DELETE FROM kept_history")
	}
}

// Nothing that the purge does to the history waits for a transaction that writes messages, nor does it
// make one wait: one that has written is open all the time, and others write beside the drop.
func TestDropBesideWriters(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t)
	p := newPast(t)
	p.write("a", uuid.New())
	p.deliver("a")
	p.older(5)
	tx, err := p.conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "INSERT INTO kept (message_id, target_broker, stream, type, payload) VALUES ($1, 'a', 's', 't', 'x')", uuid.Must(uuid.NewV7()))
	require.NoError(t, err)
	require.NoError(t, p.conn.Ping(t.Context()))
	assert.Equal(t, 1, p.purgeHistory(func(string) time.Duration { return day }))
	require.NoError(t, tx.Commit(t.Context()))
	assert.Len(t, p.deliver("a"), 1)
}

var errStop = errors.New("stop")

// A purge that is stopped between two batches has told what it removed.
func TestHistoryPurgeIsStopped(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t)
	p := newPast(t)
	p.ended(5, 5, 1)
	n, err := p.PurgeHistory(context.Background(), func(broker string) time.Duration {
		if broker == "a" {
			return day
		}
		return 7 * day
	}, 2, 0, func() error { return errStop })
	require.ErrorIs(t, err, errStop)
	assert.Equal(t, 2, n)
	assert.Equal(t, 4, p.number("SELECT count(*) FROM kept_history"))
}

// Who wants a few rows to go loses no whole day.
func TestPurgeOfAFewRowsOfAHistory(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t)
	p := newPast(t)
	p.ended(9, 5, 5)
	for _, left := range []int{7, 4, 1, 0, 0} {
		before := p.number("SELECT count(*) FROM kept_history")
		n, err := p.PurgeHistory(t.Context(), week, 2, 3, nil)
		require.NoError(t, err)
		assert.Equal(t, before-left, n)
		assert.Equal(t, left, p.number("SELECT count(*) FROM kept_history"))
	}
}

// Each role does its part of the work on a history with the rights that docs/operations.md gives it.
func TestRolesOfAHistory(t *testing.T) {
	testenv.NeedLong(t)
	t.Parallel()
	dsn, owner := newStage(t, WithHistory())
	as := func(role string) *past {
		dsn := with(t, dsn, "role", documentedRole(t, owner, role))
		return &past{T: t, Store: openStore(t, dsn, "outbox_messages", WithHistory()), dsn: dsn}
	}
	relay, operator, writer := as("fanout_relay"), as("fanout_operator"), as("shop")
	inserter, err := outbox.NewInserter(outbox.Postgres, "outbox_messages")
	require.NoError(t, err)
	db := openDB(t, writer.dsn)
	rows := someRows(3)
	require.NoError(t, inserter.Insert(t.Context(), db, rows))

	require.NoError(t, relay.Check(t.Context()))
	require.Len(t, relay.deliver("b"), 3)
	_, err = relay.PurgeHistory(t.Context(), week, 10, 0, nil)
	require.NoError(t, err)
	browses(t, relay.Store, true)

	there, err := inserter.Written(t.Context(), db, []uuid.UUID{rows[0].MessageID, uuid.New()})
	require.NoError(t, err)
	assert.Equal(t, []uuid.UUID{rows[0].MessageID}, there, "also what was delivered")
	require.NoError(t, inserter.InsertMissing(t.Context(), db, rows), "which is there")
	require.NoError(t, inserter.Insert(t.Context(), db, rows), "which stores nothing")
	require.NoError(t, inserter.InsertMissing(t.Context(), db, someRows(1)))

	replayed, err := operator.Replay(t.Context(), admin.Filter{Broker: "b", MessageIDs: []string{rows[0].MessageID.String()}}, 10)
	require.NoError(t, err)
	assert.Equal(t, 1, replayed)
	browses(t, operator.Store, false)
	_, err = operator.PurgeHistory(t.Context(), week, 10, 0, nil)
	require.NoError(t, err)
	assert.Len(t, relay.deliver("b"), 2, "the one that was replayed, and the new one")

	for _, other := range []*past{relay, operator, writer} {
		refused(t, other.dsn, "DROP TABLE outbox_messages_history", "ALTER TABLE outbox_messages_history ADD COLUMN n int",
			"ALTER TABLE outbox_messages DISABLE TRIGGER outbox_messages_history_known", "TRUNCATE outbox_messages_history")
	}
	refused(t, operator.dsn, "SELECT payload FROM outbox_messages_all", "SELECT payload FROM outbox_messages_history", "INSERT INTO outbox_messages_history (id) VALUES (1)")
	refused(t, relay.dsn, "SELECT outbox_messages_history_restore('{}', '{}')")
	refused(t, writer.dsn, "SELECT outbox_messages_history_restore('{}', '{}')", "SELECT outbox_messages_history_detach('2020-01-01')", "SELECT outbox_messages_history_drop()",
		"SELECT outbox_messages_history_days()", "SELECT payload FROM outbox_messages_all", "DELETE FROM outbox_messages_history")
	require.NoError(t, owner.Check(t.Context()))
}
