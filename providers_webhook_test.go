package fanout_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/webhook"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/outbox"
)

// A relay delivers to an endpoint as the file says, and a message at which the endpoint fails forever
// is abandoned in the end, while the others go on.
func TestWebhookFromTheFile(t *testing.T) {
	t.Parallel()
	older, newer := webhook.NewSecret(), webhook.NewSecret()
	verifier, err := webhook.NewVerifier(0, older)
	require.NoError(t, err)
	arrived := make(chan string, 1000)
	endpoint := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		switch {
		case err != nil:
		case verifier.Verify(r.Header, body) != nil:
			w.WriteHeader(http.StatusUnauthorized)
		case strings.Contains(string(body), "poison"):
			w.WriteHeader(http.StatusInternalServerError)
		default:
			arrived <- string(body)
		}
	}))
	defer endpoint.Close()
	authority := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: endpoint.Certificate().Raw})
	require.NoError(t, os.WriteFile(authority, text, 0o600))
	cfg, err := config.Parse([]byte(`
databases: {default: {driver: sqlite}}
outbox:
  external_brokers: []
  retry: {max_attempts: 2, base_delay: 1ms, jitter: 0}
brokers:
  default:
    type: webhook
    url: `+endpoint.URL+`/hooks
    secrets: [`+newer+`, `+older+`]
    tls: {ca_file: `+authority+`}
    allow_private_networks: true
    concurrency: 2
`), "fanout.yaml")
	require.NoError(t, err)

	db, err := gorm.Open(sqlite.Open(filepath.Join(t.TempDir(), "shop.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)"), &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	require.NoError(t, fanout.Migrate(t.Context(), cfg, fanout.WithDB("default", db)))
	insert := func(n int, payload string) {
		row := map[string]any{
			"message_id": fmt.Sprintf("019746f0-0000-7000-8000-%012d", n), "target_broker": "default", "stream": "ordering::order", "type": "T.v1",
			"ordering_key": fmt.Sprint("ordering::order-", n), "payload": []byte(payload),
		}
		require.NoError(t, db.Table("outbox_messages").Create(row).Error)
	}
	const others = 60
	insert(0, "poison")
	for n := 1; n <= others; n++ {
		insert(n, fmt.Sprint(n))
	}
	relay, err := fanout.Open(t.Context(), cfg, fanout.WithDB("default", db), fanout.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	done := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { done <- relay.Run(ctx) }()
	seen := map[string]bool{}
	for n := others + 1; ; n++ {
		var statuses []string
		require.NoError(t, db.Table("outbox_messages").Where("message_id LIKE ?", "%-000000000000").Pluck("status", &statuses).Error)
		if statuses[0] == string(outbox.StatusAbandoned) {
			break
		}
		insert(n, fmt.Sprint(n)) // the proof that the endpoint takes others
		seen[<-arrived] = true
	}
	stop()
	require.NoError(t, <-done)
	assert.NotEmpty(t, seen)

	var lastError string
	require.NoError(t, db.Table("outbox_messages").Where("message_id LIKE ?", "%-000000000000").Pluck("last_error", &lastError).Error)
	assert.Contains(t, lastError, "it answered 500 Internal Server Error")
}
