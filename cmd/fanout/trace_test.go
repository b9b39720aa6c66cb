package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox"
)

// consumers puts the consumer billing into the configuration, and makes its inbox beside the outbox.
func (s *shop) consumers() *gorm.DB {
	s.Helper()
	file, err := os.ReadFile(s.config)
	require.NoError(s, err)
	cfg, err := config.Load(s.config, config.WithUnsetVariables("brokers"))
	require.NoError(s, err)
	require.NoError(s, os.WriteFile(s.config, fmt.Appendf(file, "consumers: {billing: {driver: %s, dsn: '%s'}}\n", s.driver, cfg.Databases["main"].DSN.Reveal()), 0o600))
	s.does("inbox", "migrate")
	db, err := openHandle(cfg.Databases["main"])
	require.NoError(s, err)
	pool, err := db.DB()
	require.NoError(s, err)
	s.Cleanup(func() { assert.NoError(s, pool.Close()) })
	return db
}

// consumes has the nth message handled by the consumer of the default broker.
func (s *shop) consumes(db *gorm.DB, n int, handler func(*gorm.DB) error) error {
	s.Helper()
	m, err := inbox.Decode(fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"/orders","type":"Ordering.OrderPlaced.v1","data":{}}`, messageID(n)), nil)
	require.NoError(s, err)
	m.Consumer, m.Source = "billing", "ordering::order"
	_, err = inbox.Handle(s.Context(), db, m, handler)
	return err
}

// Where is order 42? An event is stopped at each step of its way, and the answer names the step.
func TestTrace(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		db := s.consumers()

		scheduled := message(7, "Ordering.OrderPlaced.v1", "order-7", "partner")
		scheduled.AvailableAt = time.Now().Add(time.Hour)
		s.insert(scheduled)
		for n, key := range map[int]string{1: "order-1", 3: "order-3", 4: "order-4", 5: "order-5"} {
			s.write(n, "Ordering.OrderPlaced.v1", key, "partner")
		}
		s.complete("partner", func(id string) *outbox.LastError {
			switch id {
			case messageID(1):
				return &outbox.LastError{Class: "permanent", Message: "schema mismatch \x1b[2J"}
			case messageID(3):
				return &outbox.LastError{Class: "retryable", Message: "deadline exceeded"}
			case messageID(4):
				return nil
			default:
				return &outbox.LastError{Class: "not_sent"}
			}
		})
		s.write(2, "Ordering.OrderShipped.v1", "order-1", "partner") // behind what was refused
		s.write(6, "Ordering.OrderShipped.v1", "order-3", "partner") // behind what is tried again
		for n := 11; n <= 15; n++ {
			s.write(n, "Ordering.OrderPlaced.v1", fmt.Sprintf("order-%d", n), "default")
		}
		s.complete("default", func(string) *outbox.LastError { return nil })
		s.write(16, "Ordering.OrderPlaced.v1", "order-16", "default")
		s.claim("default", false)

		require.NoError(t, s.consumes(db, 11, func(*gorm.DB) error { return nil }))
		require.NoError(t, s.consumes(db, 12, func(*gorm.DB) error { return inbox.Permanent(errors.New("no such customer")) }))
		require.Error(t, s.consumes(db, 13, func(*gorm.DB) error { return errors.New("later") }))
		entered, leave, left := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		running := s.driver != outbox.SQLite // whose file has one writer
		if running {
			go func() {
				left <- s.consumes(db, 14, func(*gorm.DB) error {
					close(entered)
					<-leave
					return nil
				})
			}()
			<-entered
		}

		step := func(term string) api.TracedRow {
			t.Helper()
			code, stdout, stderr := s.run("trace", term, "--json")
			require.Zero(t, code, stderr)
			var trace api.Trace
			require.NoError(t, json.Unmarshal([]byte(stdout), &trace))
			require.Empty(t, trace.Unasked)
			for _, m := range trace.Messages {
				if m.MessageID == term {
					require.Len(t, m.Rows, 1)
					return m.Rows[0]
				}
			}
			require.Fail(t, "the message is not there", stdout)
			return api.TracedRow{}
		}
		for n, want := range map[int]api.Step{
			1: api.StepAbandoned, 2: "blocked", 3: "backoff", 4: api.StepPublished, 5: "due", 6: "behind", 7: "scheduled",
			11: api.StepDone, 12: api.StepDeadLetter, 13: api.StepFailing, 14: api.StepRunning, 15: api.StepQueued, 16: "claimed",
		} {
			if n == 14 && !running {
				continue
			}
			row := step(messageID(n))
			for want == "due" && row.Step == "backoff" { // its pause is short
				row = step(messageID(n))
			}
			assert.Equal(t, want, row.Step, "message %d: %s", n, row.Says)
			assert.NotEmpty(t, row.Says)
		}
		assert.Contains(t, step(messageID(2)).Says, messageID(1), "which message blocks it")
		assert.NotEmpty(t, step(messageID(2)).Remedy)
		if running {
			close(leave)
			require.NoError(t, <-left)
			assert.Equal(t, api.StepDone, step(messageID(14)).Step)
		}

		// People read it, by the key alone, in either form of an id; a terminal obeys nothing of it.
		text := s.does("trace", "order-1")
		assert.Regexp(t, `(?s)Ordering\.OrderPlaced\.v1  `+messageID(1)+`.*partner: abandoned.*schema mismatch.*→ .*Ordering\.OrderShipped\.v1  `+messageID(2)+`.*partner: blocked`, text)
		assert.NotContains(t, text, "\x1b")
		assert.NotContains(t, text, "hunter2")
		assert.Contains(t, s.does("trace", messageID(12)), "consumer billing: dead_letter")

		// One that was requeued, or scheduled, has not waited for a worker since it was written.
		old := map[outbox.Dialect]string{
			outbox.Postgres: "now() - interval '5 hours'", outbox.MySQL: "UTC_TIMESTAMP(6) - INTERVAL 5 HOUR",
			outbox.SQLite: "created_at - 5 * 3600000000", outbox.SQLServer: "DATEADD(HOUR, -5, SYSUTCDATETIME())",
		}[s.driver]
		s.exec("UPDATE outbox_messages SET created_at = " + old)
		s.does("messages", "requeue", "--id", messageID(1))
		assert.Regexp(t, `it has waited for a worker for up to \d+s`, step(messageID(1)).Says)
		assert.Contains(t, step(messageID(5)).Says, "it has waited for a worker for 5h0m")

		// What is not there is said, with what it means; and what could not be asked.
		code, _, stderr := s.run("trace", messageID(99))
		assert.Equal(t, exitFailed, code)
		assert.Contains(t, stderr, `no row of database main has "`+messageID(99)+`" as its message, key, aggregate, correlation, causation, trace: its transaction was rolled back, or it was never raised, or its rows were purged (after 168h0m0s`)
		code, _, stderr = s.run("trace", "order-1", "--by", "colour")
		assert.Equal(t, exitUsage, code)
		assert.Contains(t, stderr, `--by is "colour": use message, key,`)
		file, err := os.ReadFile(s.config)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(s.config, bytes.Replace(file, []byte("consumers: {billing: {"), []byte("consumers: {billing: {table: gone, "), 1), 0o600))
		code, stdout, stderr := s.run("trace", messageID(11))
		assert.Equal(t, exitFailed, code)
		assert.Contains(t, stdout, "default: published")
		assert.Contains(t, stderr, "consumer billing was not asked: ")
	})
}
