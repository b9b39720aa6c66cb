package fanout_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

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

// A database that does not answer is named alone: the others have been opened meanwhile, and are not said to be out of reach.
func TestOpenNamesTheSilentDatabase(t *testing.T) {
	t.Parallel()
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	examined := make(chan struct{}) // the other one
	served := make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		defer close(served)
		conn, err := silent.Accept()
		if err != nil {
			return
		}
		select {
		case <-examined:
		case <-ctx.Done():
		}
		_ = conn.Close()
		_ = silent.Close()
	}()

	file := filepath.Join(t.TempDir(), "outbox.db")
	db, err := sql.Open("sqlite", file)
	require.NoError(t, err)
	defer db.Close()
	store, err := sqlitestore.New(db, "")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	cfg, err := config.Parse(fmt.Appendf(nil, "databases: {a: {driver: postgres, dsn: 'postgres://ada:hunter2@%s/none?sslmode=disable'}, b: {driver: sqlite, dsn: 'file:%s?_pragma=busy_timeout(0)'}}\n"+
		"brokers: {default: {type: memory}}\n", silent.Addr(), file), "fanout.yaml")
	require.NoError(t, err)
	_, err = fanout.Open(ctx, cfg, fanout.WithLogger(slog.New(&onWarning{Handler: slog.DiscardHandler, call: sync.OnceFunc(func() { close(examined) })})))
	<-served
	require.ErrorContains(t, err, `fanout: database "a": postgres: cannot reach the database at `+silent.Addr().String()+": ")
	assert.NotContains(t, err.Error(), `database "b"`)
	assert.NotContains(t, err.Error(), "hunter2")
	assert.NotContains(t, err.Error(), "\n", "one problem is one line")
	assert.NotErrorIs(t, err, context.DeadlineExceeded)
}

// onWarning calls a function for each warning.
type onWarning struct {
	slog.Handler
	call func()
}

func (w *onWarning) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (w *onWarning) WithAttrs([]slog.Attr) slog.Handler               { return w }
func (w *onWarning) Handle(context.Context, slog.Record) error {
	w.call()
	return nil
}
