package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/monitor/api"
)

// screen is what a command prints while it runs.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) find(pattern *regexp.Regexp) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return pattern.FindStringSubmatch(s.text.String())
}

func monitored(t *testing.T, listen string) *place {
	t.Helper()
	p := newPlace(t, "sqlite", filepath.Join(t.TempDir(), "outbox.db"))
	source, err := os.ReadFile(p.config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(p.config, append(source, "monitor: {listen: '"+listen+"'}\n"...), 0o600))
	p.migrate()
	return p
}

// serveMonitor runs a relay with a monitor, until stop has returned.
func serveMonitor(t *testing.T) (url string, stop func()) {
	t.Helper()
	return serve(t, monitored(t, "127.0.0.1:0"))
}

func serve(t *testing.T, p *place) (url string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var out screen
	root := rootCommand()
	root.SetArgs([]string{"relay", "--config", p.config})
	root.SetOut(&out)
	root.SetErr(&out)
	done := make(chan error)
	go func() { done <- root.ExecuteContext(ctx) }()
	pattern := regexp.MustCompile(`monitor listens.* url=(http://\S+/)`)
	require.Eventually(t, func() bool { return out.find(pattern) != nil }, 20*time.Second, 5*time.Millisecond)
	return out.find(pattern)[1], func() { cancel(); require.NoError(t, <-done) }
}

func TestRelayServesTheMonitor(t *testing.T) {
	url, stop := serveMonitor(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path, host string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
		require.NoError(t, err)
		request.Host = host
		response, err := client.Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(body)
	}
	status, body := get("api/outbox", "")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, body, `"main":{"status":"ok"`)
	status, body = get("metrics", "")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, body, `fanout_outbox_database_up{database="main"} 1`)
	assert.Contains(t, body, `fanout_outbox_breaker_state{broker="default",database="main"} 0`)
	for host, want := range map[string]int{"localhost:1": 200, "[::1]": 200, "127.0.0.1": 200, "evil.example": 421, "evil.example:8088": 421} {
		status, _ = get("healthz", host)
		assert.Equal(t, want, status, host)
	}
	stop()
	_, err := new(net.Dialer).DialContext(t.Context(), "tcp", regexp.MustCompile(`[^/]+:\d+`).FindString(url))
	require.Error(t, err, "the port is free again")
}

// The interface of a relay asks the consumers of the configuration, as the command does.
func TestMonitorAsksConsumers(t *testing.T) {
	p := monitored(t, "127.0.0.1:0")
	cfg, err := config.Load(p.config)
	require.NoError(t, err)
	db, err := sql.Open("sqlite", cfg.Databases["main"].DSN.Reveal())
	require.NoError(t, err)
	defer db.Close()
	handled, id := uuid.NewString(), uuid.NewString()
	for one, ago := range map[string]time.Duration{handled: time.Hour, id: 10 * time.Minute} {
		at := time.Now().Add(-ago).UnixMicro()
		_, err = db.ExecContext(t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload, status, published_at, finished_at)
			VALUES (?, 'default', 's', 't', x'', 'published', ?, ?)`, one, at, at)
		require.NoError(t, err)
	}
	source, err := os.ReadFile(p.config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(p.config, append(source, "consumers: {billing: {driver: sqlite, dsn: '"+cfg.Databases["main"].DSN.Reveal()+"'}}\n"...), 0o600))
	code, _, stderr := p.run("inbox", "migrate")
	require.Zero(t, code, stderr)
	handle, err := openHandle(cfg.Databases["main"])
	require.NoError(t, err)
	pool, err := handle.DB()
	require.NoError(t, err)
	defer pool.Close()
	m, err := inbox.Decode(fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"/s","type":"t","data":{}}`, handled), nil)
	require.NoError(t, err)
	m.Consumer, m.Source = "billing", "s"
	_, err = inbox.Handle(t.Context(), handle, m, func(*gorm.DB) error { return nil })
	require.NoError(t, err)

	url, stop := serve(t, p)
	defer stop()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"api/outbox/main/trace?term="+id, nil)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	var trace api.Trace
	require.NoError(t, json.NewDecoder(response.Body).Decode(&trace))
	require.Len(t, trace.Messages, 1)
	row := trace.Messages[0].Rows[0]
	require.Len(t, row.Consumers, 1)
	assert.Equal(t, "billing", row.Consumers[0].Consumer)
	assert.Equal(t, api.StepQueued, row.Step, "its inbox has nothing of it")

	// It measures them, too, which a consumer that has died does not do itself.
	metrics, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"metrics", nil)
	require.NoError(t, err)
	scraped, err := client.Do(metrics)
	require.NoError(t, err)
	defer scraped.Body.Close()
	body, err := io.ReadAll(scraped.Body)
	require.NoError(t, err)
	assert.Regexp(t, `(?m)^fanout_inbox_up\{.*consumer="billing".*\} 1$`, string(body))
	assert.Regexp(t, `(?m)^fanout_inbox_behind_seconds\{.*consumer="billing".*\} 6\d\d\.`, string(body))
}

// However many connections somebody holds open, silent ones and ones that have begun to ask, there are
// descriptors left, and a probe is answered.
func TestCrowdAtTheMonitor(t *testing.T) {
	url, stop := serveMonitor(t)
	defer stop()
	at := regexp.MustCompile(`[^/]+:\d+`).FindString(url)
	const crowded = 3 * maxConnections
	var closed atomic.Int64
	for i := range crowded {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", at)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		if i%2 == 0 {
			_, _ = conn.Write([]byte("G")) // it may be gone
		}
		go func() {
			_, _ = conn.Read(make([]byte, 1))
			closed.Add(1)
		}()
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range 10 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"healthz", nil)
		require.NoError(t, err)
		response, err := client.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, http.StatusOK, response.StatusCode)
	}
	require.Eventually(t, func() bool { return closed.Load() >= crowded-maxConnections }, 20*time.Second, 5*time.Millisecond)
}

func TestMonitorPortTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is at once
	require.NoError(t, err)
	defer taken.Close()
	code, _, stderr := monitored(t, taken.Addr().String()).run("relay")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, stderr, "the monitor cannot listen on "+taken.Addr().String())
	assert.Contains(t, stderr, "monitor.listen")
}
