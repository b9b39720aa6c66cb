package fanout_test

import (
	"bytes"
	"database/sql"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/outbox"
	sqlitestore "github.com/gorm-fanout/fanout/outbox/sqlite"
)

// TestOpenExamines: what a relay finds at its databases is logged when it works in spite of it, and
// otherwise an error.
func TestOpenExamines(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "outbox.db")
	open := func(parameters string) (log string, err error) {
		cfg, err := config.Parse([]byte("databases: {main: {driver: sqlite, dsn: 'file:"+file+"?"+parameters+"'}}\nbrokers: {default: {type: memory}}\n"), "fanout.yaml")
		require.NoError(t, err)
		var out bytes.Buffer
		relay, err := fanout.Open(t.Context(), cfg, fanout.WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
		if err == nil {
			require.NoError(t, relay.Close())
		}
		return out.String(), err
	}
	_, err := open("")
	require.ErrorIs(t, err, outbox.ErrSchema)
	require.ErrorContains(t, err, `fanout: database "main": sqlite: check outbox_messages: `)

	db, err := sql.Open("sqlite", file)
	require.NoError(t, err)
	defer db.Close()
	store, err := sqlitestore.New(db, "")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	log, err := open("")
	require.NoError(t, err)
	assert.NotContains(t, log, "level=WARN")

	log, err = open("_pragma=busy_timeout(0)")
	require.NoError(t, err)
	assert.Contains(t, log, `level=WARN msg="database settings need a change" database=main topic="busy timeout" problem="busy_timeout is 0:`)

	_, err = open("_pragma=query_only(1)")
	require.EqualError(t, err, `fanout: database "main": query_only is on, so nothing can be claimed: leave it out of the DSN`)
}
