package postgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

// A transaction that holds back vacuum is named, by Diagnose as well, until it ends. One that holds
// back nothing is not.
func TestWatchNamesWhoHoldsBackVacuum(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	store := openStore(t, dsn, "outbox")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	held, err := pgx.Connect(t.Context(), with(t, dsn, "application_name", "shop"))
	require.NoError(t, err)
	defer held.Close(t.Context())
	pid := held.PgConn().PID()
	watch := func() (messages []string) {
		found, err := store.Watch(t.Context())
		require.NoError(t, err)
		for _, finding := range found {
			assert.Equal(t, "vacuum", finding.Topic)
			assert.True(t, finding.Passing)
			assert.False(t, finding.Refused)
			messages = append(messages, finding.Message)
		}
		return messages
	}
	for name, begin := range map[string][]string{
		"a snapshot": {"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM outbox"},
		"a write":    {"BEGIN", "INSERT INTO outbox (message_id, target_broker, stream, type, payload) VALUES (gen_random_uuid(), 'b', 's', 'T', '')"},
	} {
		store.heldBack = 0
		for _, text := range begin {
			_, err := held.Exec(t.Context(), text)
			require.NoError(t, err)
		}
		got := watch()
		require.Len(t, got, 1, name)
		assert.Contains(t, got[0], fmt.Sprintf("session %d", pid))
		assert.Contains(t, got[0], `application "shop"`)
		assert.Contains(t, got[0], fmt.Sprintf("pg_terminate_backend(%d)", pid))
		assert.Equal(t, got, watch(), "the same words while it lasts")
		assert.Equal(t, []string{"vacuum: " + got[0]}, diagnose(t, store))
		store.heldBack = heldBack
		assert.Empty(t, watch(), "not for long yet")
		store.heldBack = 0
		_, err = held.Exec(t.Context(), "ROLLBACK")
		require.NoError(t, err)
		assert.Empty(t, watch(), "over")
	}
	_, err = held.Exec(t.Context(), "BEGIN")
	require.NoError(t, err)
	_, err = held.Exec(t.Context(), "SELECT count(*) FROM outbox")
	require.NoError(t, err)
	assert.Empty(t, watch(), "idle in a transaction without a snapshot: vacuum does not mind")
}

// Each kind says what to do. Slots, standbys and prepared transactions need a server that is set up
// for them.
func TestWatchSaysWhatToDo(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for kind, want := range map[string][]string{
		"session":  {"session x (role shop", "2026-01-02T03:04:05Z", "idle_in_transaction_session_timeout"},
		"prepared": {`transaction "x" of role shop`, "2026-01-02T03:04:05Z", "ROLLBACK PREPARED"},
		"slot":     {`replication slot "x"`, "pg_drop_replication_slot"},
		"standby":  {`standby "replica-2"`, "hot_standby_feedback"},
	} {
		finding := (&holder{kind: kind, name: "x", role: "shop", application: "replica-2", since: since}).finding()
		for _, text := range append(want, "dead rows of the outbox stay") {
			assert.Contains(t, finding.Message, text, kind)
		}
	}
}
