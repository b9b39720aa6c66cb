package relay_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// One broker takes no large messages: it alone gives them up, at once and with the reason, and
// everything else arrives at both.
func TestFault11TooLargeForOneBroker(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		large, narrow := memory.New(), &fake{publish: func(_ context.Context, m brokers.Message) error {
			if len(m.Payload) > 1000 {
				return brokers.Permanent(errors.New("10000 bytes, at most 1000"))
			}
			return nil
		}}
		r := newRig(t, path, large, outbox.Policy{})
		t.Cleanup(func() { _ = r.db.Close() })
		for i := range 60 {
			r.insert("k"+strconv.Itoa(i%6), strconv.Itoa(i))
		}
		_, err := r.db.ExecContext(t.Context(), "UPDATE outbox_messages SET payload = zeroblob(10000) WHERE id % 10 = 3")
		require.NoError(t, err)
		_, err = r.db.ExecContext(t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload)
			SELECT message_id, 'narrow', stream, type, ordering_key, payload FROM outbox_messages ORDER BY id`)
		require.NoError(t, err)
		engine, err := relay.NewEngine(relay.EngineConfig{
			Stores: map[string]driver.Delivery{"d": r.store}, Log: slog.New(slog.DiscardHandler),
			Brokers: map[string]relay.Target{"b": {Broker: large}, "narrow": {Broker: narrow}},
		})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- engine.Run(ctx) }()
		r.until(5*time.Second, func() bool { return r.open() == "0" }) // no backoff: at once
		stop()
		require.NoError(t, <-done)
		count := func(where string) string { return r.query("SELECT count(*) FROM outbox_messages WHERE " + where) }
		assert.Equal(t, "60", count("target_broker = 'b' AND status = 'published' AND attempts = 1"))
		assert.Equal(t, "54", count("target_broker = 'narrow' AND status = 'published' AND attempts = 1"))
		assert.Equal(t, "6", count("target_broker = 'narrow' AND status = 'abandoned' AND length(payload) = 10000 AND attempts = 1 AND last_error LIKE '%permanent%at most 1000%'"))
	})
}

// Whatever stands in a row, it comes to a clean end, and its neighbours arrive: nothing is stuck.
func TestFault33MalformedRows(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := newRig(t, path, memory.New(), outbox.Policy{})
		t.Cleanup(func() { _ = r.db.Close() })
		rows := map[string]string{ // how it ends
			`headers = '{"traceparent":"garbage","tracestate":"="}'`: outboxPublished, // consumers ignore what they cannot read
			`headers = '{"traceparent":"00-0-0-0"}'`:                 outboxPublished,
			`headers = '{"nested":{"a":1}}'`:                         outboxAbandoned,
			`headers = '["a"]'`:                                      outboxAbandoned,
			`headers = '{"a":1}'`:                                    outboxAbandoned,
			`headers = '{'`:                                          outboxAbandoned,
			`headers = 'null'`:                                       "",
			`headers = CAST(X'7B2261223A22FF227D' AS TEXT)`:          "", // {"a":"\xff"}
			`payload = X'FFFE00'`:                                    outboxPublished,
			`type = CAST(X'FF' AS TEXT)`:                             "",
			`ordering_key = CAST(X'FF' AS TEXT)`:                     "",
			`correlation_id = CAST(X'FF' AS TEXT), tenant_id = 'a'`:  "",
			`content_type = 'nonsense'`:                              outboxAbandoned,
			`content_type = 'text/plain; charset="'`:                 "",
			`stream = ''`:                                            outboxAbandoned,
			`type = ''`:                                              outboxAbandoned,
		}
		names := map[string]string{}
		for change := range rows {
			name := "row-" + strconv.Itoa(len(names))
			r.insert("", name)
			names[change] = r.query("SELECT max(id) FROM outbox_messages")
			_, err := r.db.ExecContext(t.Context(), "UPDATE outbox_messages SET "+change+" WHERE CAST(payload AS TEXT) = ?", name)
			require.NoError(t, err, change)
			r.insert("", "neighbour of "+name)
		}
		r.start()
		r.until(time.Minute, func() bool { return r.open() == "0" })
		r.stop()
		for change, want := range rows {
			got := r.query("SELECT status FROM outbox_messages WHERE id = ?", names[change])
			if want != "" {
				assert.Equal(t, want, got, change)
			}
			if got == outboxAbandoned {
				assert.NotEmpty(t, r.query("SELECT last_error ->> 'message' FROM outbox_messages WHERE id = ?", names[change]), change)
			}
		}
		assert.Equal(t, strconv.Itoa(len(rows)), r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published' AND CAST(payload AS TEXT) LIKE 'neighbour%'"))
	})
}

const (
	outboxPublished = string(outbox.StatusPublished)
	outboxAbandoned = string(outbox.StatusAbandoned)
)
