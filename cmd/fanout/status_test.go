package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		s.badNight()
		s.write(20, "T", "k", "removed")
		status := s.does("status")
		assert.Contains(t, status, "removed (not configured!)")
		assert.NotContains(t, status, "\x1b", "no colour where nobody looks")
		partner := regexp.MustCompile(`(?m)^main +partner +8 +0 +2 +0 +3 +`)
		assert.Regexp(t, partner, status)
		assert.Regexp(t, partner, s.does("status", "--exact"))
		assert.Regexp(t, `ago: (retryable|permanent): `, status)

		var answer map[string]api.Database[wireBroker]
		require.NoError(t, json.Unmarshal([]byte(s.does("status", "--json")), &answer))
		assert.Equal(t, "ok", answer["main"].Status)
		assert.EqualValues(t, 13, answer["main"].Counts[outbox.StatusPublished])
		assert.False(t, answer["main"].Capped)
		brokers := answer["main"].Brokers
		assert.EqualValues(t, 3, brokers["partner"].Counts[outbox.StatusAbandoned])
		assert.Equal(t, 1, brokers["partner"].LastError.Attempt)
		assert.NotZero(t, brokers["default"].LastPublished)
		assert.Nil(t, brokers["default"].LastError)
		assert.Positive(t, brokers["partner"].OldestPendingSeconds)
		assert.True(t, brokers["removed"].Unknown)

		// What has nothing open is nobody's business.
		s.exec("UPDATE outbox_messages SET target_broker = 'gone' WHERE status = 'published'")
		assert.NotContains(t, s.does("status"), "gone (not configured!)")
		assert.Contains(t, s.does("status"), "gone ")
	})
}

// A writer may invent brokers. The status shows the configured broker first. Every database counts so, as
// the stores' suite checks.
func TestInventedBrokers(t *testing.T) {
	t.Parallel()
	s := newShop(t, "sqlite", filepath.Join(t.TempDir(), "outbox.db"))
	rows := []outbox.Row{message(1, "T", "k", "partner")}
	for i := range 60 {
		rows = append(rows, message(1, "T", "k", fmt.Sprintf("a-%03d", i)))
	}
	s.insert(rows...)
	status := s.does("status")
	assert.Regexp(t, `(?m)^main +partner +1 `, status)
	assert.Contains(t, status, "a-019 (not configured!)")
	assert.NotContains(t, status, "a-020")
	assert.Contains(t, status, "main: of brokers that are not configured, the first 20 by name are shown: there may be more")
	exact := s.does("status", "--exact")
	assert.Regexp(t, `(?m)^main +partner +1 `, exact)
	assert.Regexp(t, `(?m)^main +\(others\).* 40 `, exact)
	assert.Contains(t, s.does("messages", "list", "--broker", "partner"), "T")
	s.does("messages", "failures")
}

// Counts have an end unless the caller asks for more.
func TestStatusExact(t *testing.T) {
	t.Parallel()
	s := newShop(t, "postgres", newPostgres(t))
	s.exec(`INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload)
		SELECT gen_random_uuid(), 'default', 's', 'T', 'x' FROM generate_series(1, 10001)`)
	assert.Regexp(t, `main +default +10,000\+ +0`, s.does("status"))
	assert.Regexp(t, `main +default +10,001 +0 `, s.does("status", "--exact"))
	var answer map[string]api.Database[wireBroker]
	require.NoError(t, json.Unmarshal([]byte(s.does("status", "--json")), &answer))
	assert.True(t, answer["main"].Capped)
	assert.Contains(t, answer["main"].Brokers["default"].Capped, outbox.StatusPending)
	assert.Equal(t, "main: 10,001 rows would be abandoned\n", s.does("messages", "abandon", "--broker", "default", "--dry-run"))
}

// The second look has rates.
func TestStatusWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, "sqlite", t.TempDir()+"/outbox.db")
		for n := range 5 { // published before the first look
			s.write(50+n, "T", "", "default")
		}
		s.complete("default", func(string) *outbox.LastError { return nil })
		for n := range 30 {
			s.write(n, "T", "", "default")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		var stdout, stderr bytes.Buffer
		done := make(chan int)
		go func() {
			done <- run(ctx, []string{"status", "--watch", "--json", "--config", s.config}, strings.NewReader(""), &stdout, &stderr)
		}()
		time.Sleep(time.Second) // of the bubble's clock
		s.complete("default", func(id string) *outbox.LastError {
			if strings.HasSuffix(id, "1") {
				return &outbox.LastError{Class: "retryable", Message: "m"}
			}
			return nil
		})
		assert.Zero(t, <-done, stderr.String())
		looks := lines[map[string]api.Database[wireBroker]](t, stdout.String())
		require.Len(t, looks, 2)
		assert.Nil(t, looks[0]["main"].Brokers["default"].PublishedPerSecond)
		second := looks[1]["main"].Brokers["default"]
		require.NotNil(t, second.PublishedPerSecond)
		assert.InDelta(t, 27/2.0, *second.PublishedPerSecond, 0.01)
		require.NotNil(t, second.RetryRate)
		assert.InDelta(t, 0.1, *second.RetryRate, 0.001)
	})
}

func TestWorkers(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		code, stdout, stderr := s.run("workers")
		assert.Zero(t, code)
		assert.Empty(t, stdout)
		assert.Equal(t, "no relay runs: a relay that stops leaves the list\n", stderr)
		store, beats := s.store.(interface {
			Heartbeat(ctx context.Context, instance admin.Instance) error
		})
		require.True(t, beats)
		require.NoError(t, store.Heartbeat(t.Context(), admin.Instance{
			ID: uuid.New(), Name: "relay-1", Host: "node-7", PID: 4711, Version: "v1.2.3",
			Work: []admin.Work{{Worker: "w1", Broker: "partner", Rows: 40}, {Worker: "w2", Broker: "partner", Rows: 2}, {Worker: "w3", Broker: "default", Rows: 1}},
		}))
		assert.Regexp(t, `main +relay-1 +node-7 +4711 +v1.2.3 +\S+ ago +\S+ ago +partner: 42, default: 1\n`, s.does("workers"))
		instances := lines[api.Instance](t, s.does("workers", "--json"))
		require.Len(t, instances, 1)
		assert.False(t, instances[0].Silent)
		assert.Len(t, instances[0].Work, 3)
	})
}
