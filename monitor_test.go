package fanout_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/glebarez/sqlite"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/config"
	sqlitestore "github.com/gorm-fanout/fanout/outbox/sqlite"
)

// The tokens of the configuration are those of the handler, which is ready exactly while the relay
// runs.
func TestRelayMonitor(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer db.Close()
	store, err := sqlitestore.New(db, "")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	cfg, err := config.Parse([]byte("databases: {main: {driver: sqlite, dsn: '"+path+"'}}\nbrokers: {default: {type: memory}}\n"+
		"monitor: {viewer_tokens: {ann: 0123456789abcdef-viewer}, operator_tokens: {bob: 0123456789abcdef-operator}}\n"), "fanout.yaml")
	require.NoError(t, err)
	relay, err := fanout.Open(t.Context(), cfg, fanout.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	handler, err := relay.Monitor(fanout.MonitorOptions{})
	require.NoError(t, err)

	get := func(target, token string) (int, map[string]any) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		var body map[string]any
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body))
		return w.Code, body
	}
	status, _ := get("/api/outbox", "")
	assert.Equal(t, http.StatusUnauthorized, status)
	_, me := get("/api/me", "0123456789abcdef-operator")
	assert.Equal(t, []any{"bob", "operator"}, []any{me["name"], me["role"]})
	_, me = get("/api/me", "0123456789abcdef-viewer")
	assert.Equal(t, []any{"ann", "viewer"}, []any{me["name"], me["role"]})
	status, body := get("/readyz", "")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Equal(t, []any{"the engine does not run"}, body["reasons"])

	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- relay.Run(ctx) }()
	require.Eventually(t, func() bool {
		status, _ := get("/readyz", "")
		_, history := get("/api/outbox/history", "0123456789abcdef-viewer")
		return status == http.StatusOK && len(history["series"].([]any)) == 1
	}, 20*time.Second, 5*time.Millisecond)
	stop()
	require.NoError(t, <-done)
}
