package postgres

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

// Whoever writes messages finds what was delivered by its key, also in a session that wrote the first one of a day,
// of which all that was known is that it is empty.
func TestHistoryKnowsMessagesByTheirKey(t *testing.T) {
	testenv.NeedLong(t)
	t.Parallel()
	for name, before := range map[string]string{"made": "", "counted": "ANALYZE kept_history", "vacuumed": "VACUUM (ANALYZE) kept_history"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			knowsByKey(t, before)
		})
	}
}

func knowsByKey(t *testing.T, before string) {
	t.Helper()
	p := newPast(t)
	exec(t, p.conn, `DO $$ DECLARE part regclass; BEGIN
		FOR part IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'kept_history'::regclass LOOP
			EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', part);
		END LOOP; END $$`)
	if before != "" {
		exec(t, p.conn, before)
	}
	p.writeSome(1)
	p.write("a", uuid.New())
	filler, err := pgx.Connect(t.Context(), p.dsn)
	require.NoError(t, err)
	defer filler.Close(context.WithoutCancel(t.Context()))
	const many = 20_000
	exec(t, filler, fmt.Sprintf(`INSERT INTO kept_history (id, message_id, created_at, priority, published_at, shard, finished_at, target_broker, stream, type, content_type,
			deferred, crashes, isolated, attempts, status, payload)
		SELECT n, gen_random_uuid(), now(), 0, now(), 0, now(), 'a', 's', 't', '', false, 0, n < 0, 1, 'published', 'x' FROM generate_series(1, %d) AS n`, many))
	for _, id := range []uuid.UUID{uuid.Must(uuid.NewV7()), uuid.New()} {
		exec(t, p.conn, "BEGIN")
		p.write("a", id)
		read := p.number("SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::int FROM pg_stat_xact_all_tables WHERE relname LIKE 'kept\\_day\\_%'")
		scans := p.number("SELECT coalesce(sum(seq_scan), 0)::int FROM pg_stat_xact_all_tables WHERE relname LIKE 'kept\\_day\\_%'")
		exec(t, p.conn, "COMMIT")
		assert.Less(t, read, 10, id)
		assert.Zero(t, scans, id)
	}
}

// Ids may have any time in front, also one that lies ahead.
func TestHistoryKnowsIdsOfTheFuture(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t)
	p := newPast(t)
	id := uuid.MustParse("7fffffff-ffff-7000-8000-000000000001")
	p.write("a", id)
	p.deliver("a")
	p.older(5)
	p.write("a", id)
	assert.Equal(t, 0, p.number("SELECT count(*) FROM kept"))
}
