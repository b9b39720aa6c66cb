package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/failure"
	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// logged is a rig with its log.
func logged(t *testing.T, path string, broker brokers.Broker, policy outbox.Policy, level slog.Level) (*rig, *lines) {
	t.Helper()
	r, log := newRig(t, path, broker, policy), &lines{}
	t.Cleanup(func() { _ = r.db.Close() })
	var err error
	r.proc, err = relay.NewProcessor(relay.ProcessorConfig{
		Database: "test", Broker: "b", Store: r.store, Target: broker, Policy: policy,
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: level})),
	})
	require.NoError(t, err)
	return r, log
}

// insertMany writes n rows without a key.
func (r *rig) insertMany(n int) {
	r.t.Helper()
	tx, err := r.db.BeginTx(r.t.Context(), nil)
	require.NoError(r.t, err)
	for i := range n {
		_, err := tx.ExecContext(r.t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload) VALUES (?, 'b', 's', 'T', ?)`,
			uuid.NewString(), []byte("m"+strconv.Itoa(i)))
		require.NoError(r.t, err)
	}
	require.NoError(r.t, tx.Commit())
}

// sum adds up what lines say of a key.
func sum(t *testing.T, lines []string, key string) (total int) {
	t.Helper()
	number := regexp.MustCompile(" " + key + `=(\d+)`)
	for _, line := range lines {
		found := number.FindStringSubmatch(line)
		require.NotNil(t, found, "%s in %s", key, line)
		n, err := strconv.Atoi(found[1])
		require.NoError(t, err)
		total += n
	}
	return total
}

var failing = outbox.Policy{
	PollMin: time.Second, PollMax: time.Minute, BatchSize: 500,
	Retry: outbox.Retry{MaxAttempts: 3, BaseDelay: 30 * time.Second, MaxDelay: 30 * time.Second, Jitter: -1},
}

// Ten thousand messages of one cause are three lines: that it begins, how many there were, and that
// it is over.
func TestManyAbandonedAreFewLines(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		const n = 10_000
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			return brokers.Permanent(failure.Advise(fmt.Errorf("no topic for %q", m.ID), "create the topic"))
		}}
		r, log := logged(t, path, broker, failing, slog.LevelInfo)
		r.insertMany(n)
		r.start()
		r.until(time.Hour, func() bool { return r.open() == "0" })
		time.Sleep(4 * time.Minute)
		r.stop()
		abandoned := log.with("level=ERROR", "message abandoned")
		require.Len(t, abandoned, 2, "%v", log.with(""))
		assert.Equal(t, n, sum(t, abandoned, "abandoned"))
		for _, line := range abandoned {
			fingerprint := monitor.Fingerprint("b", &outbox.LastError{Class: "permanent", Message: `permanent: no topic for "m1": create the topic`})
			assert.Contains(t, line, `msg="message abandoned" database=test broker=b remedy="create the topic, then fanout messages requeue --broker b --fingerprint `+fingerprint+`"`)
			assert.Contains(t, line, "type=T destination=s")
			assert.NotContains(t, strings.SplitN(line, " error=", 2)[1], "create the topic", "once is enough")
		}
		over := log.with("level=INFO", "failure over")
		require.Len(t, over, 1)
		assert.Equal(t, n, sum(t, over, "abandoned"))
		assert.Len(t, log.with("level="), 3)
	})
}

// A failure that is tried again is a warning, once a minute however many there are; that the attempts
// are used up is said at once.
func TestRetriesAreReported(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		const n = 700
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			return brokers.Retryable(fmt.Errorf("%s: no luck", m.ID))
		}}
		r, log := logged(t, path, broker, failing, slog.LevelInfo)
		r.insertMany(n)
		r.start()
		r.until(5*time.Second, func() bool {
			return len(log.with("level=WARN", "message failed", "remedy=", "class=retryable", `error="retryable: m`)) > 0
		})
		r.until(time.Hour, func() bool { return r.open() == "0" })
		time.Sleep(4 * time.Minute)
		r.stop()
		all := append(log.with("level=WARN"), log.with("level=ERROR")...)
		assert.Equal(t, 2*n, sum(t, all, "failed"), "each message twice")
		abandoned := log.with("level=ERROR", "message abandoned")
		assert.Equal(t, n, sum(t, abandoned, "abandoned"))
		// Three attempts within a minute: the first failure, the first abandoned message, and the rest.
		assert.LessOrEqual(t, len(all), 4, "%v", all)
		assert.Len(t, log.with("level=INFO", "failure over"), 1)
	})
}

// A failure that goes on is a line a minute, and another cause a line at once, after one that says how
// many the cause before had meanwhile.
func TestACauseThatChanges(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		cause := "no luck"
		broker := &fake{}
		broker.publish = func(context.Context, brokers.Message) error {
			broker.mu.Lock()
			defer broker.mu.Unlock()
			if cause == "" {
				return nil
			}
			return brokers.Retryable(errors.New(cause))
		}
		become := func(what string) {
			broker.mu.Lock()
			defer broker.mu.Unlock()
			cause = what
		}
		policy := failing
		policy.Retry.MaxAttempts = 1000
		policy.Retry.BaseDelay, policy.Retry.MaxDelay = 10*time.Second, 10*time.Second
		r, log := logged(t, path, broker, policy, slog.LevelInfo)
		r.insertMany(5)
		r.start()
		time.Sleep(5*time.Minute + 30*time.Second)
		lines := log.with("level=WARN", "message failed", "no luck")
		assert.InDelta(t, 6, len(lines), 1, "%v", lines)
		become("no room")
		r.until(time.Minute, func() bool { return len(log.with("message failed", "no room")) == 1 })
		all := log.with("message failed")
		require.Len(t, all, len(lines)+2)
		assert.Contains(t, all[len(all)-2], "no luck")
		assert.Positive(t, sum(t, all[len(all)-2:len(all)-1], "failed"))
		assert.Contains(t, all[len(all)-1], "no room")
		become("")
		r.until(2*time.Minute, func() bool { return r.open() == "0" })
		time.Sleep(3 * time.Minute)
		assert.Len(t, log.with("level=INFO", "failure over", "no luck"), 1)
		assert.Len(t, log.with("level=INFO", "failure over", "no room"), 1)
		become("no luck")
		r.insertMany(1)
		r.until(2*time.Minute, func() bool { return len(log.with("message failed", "no luck")) == len(lines)+2 })
		r.stop()
	})
}

// What was not reported yet is when the relay stops.
func TestTheLastFailuresAreReported(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		const n = 1100
		broker := &fake{publish: func(context.Context, brokers.Message) error { return brokers.Permanent(errors.New("no")) }}
		r, log := logged(t, path, broker, failing, slog.LevelInfo)
		r.insertMany(n)
		r.start()
		r.until(30*time.Second, func() bool { return r.open() == "0" })
		r.stop()
		assert.Equal(t, n, sum(t, log.with("message abandoned"), "abandoned"))
		assert.Len(t, log.with("message abandoned"), 2)
	})
}

// An outage is no message's failure: it is reported as one, with the remedy in front.
func TestAnOutageIsOneLine(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(context.Context, brokers.Message) error {
			return brokers.Unavailable(brokers.ScopeBroker, failure.Advise(errors.New("connection refused"), "start the server"))
		}}
		r, log := logged(t, path, broker, failing, slog.LevelInfo)
		r.insertMany(100)
		r.start()
		time.Sleep(20 * time.Minute)
		r.stop()
		require.Len(t, log.with("level="), 1)
		assert.Len(t, log.with("level=WARN", `msg="broker unavailable" database=test broker=b remedy="start the server" error="broker unavailable: connection refused"`), 1)
	})
}

// More causes than can be distinguished, from a broker that repeats the payload, say, are summed up.
func TestManyCauses(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		const n = 300
		word := strings.NewReplacer("0", "a", "1", "b", "2", "c", "3", "d", "4", "e", "5", "f", "6", "g", "7", "h", "8", "i", "9", "j")
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			return brokers.Permanent(errors.New("cannot parse " + word.Replace(m.ID)))
		}}
		r, log := logged(t, path, broker, failing, slog.LevelInfo)
		r.insertMany(n)
		r.start()
		r.until(time.Hour, func() bool { return r.open() == "0" })
		time.Sleep(5 * time.Minute)
		abandoned := log.with("level=ERROR", "message abandoned")
		assert.Equal(t, n, sum(t, abandoned, "abandoned"))
		assert.LessOrEqual(t, len(abandoned), 102)
		assert.NotEmpty(t, log.with("level=ERROR", "further causes", "fanout messages failures"))
		assert.Len(t, log.with("level=INFO", "failure over"), 101)
		r.insertMany(1)
		r.until(time.Minute, func() bool { return r.open() == "0" })
		assert.Len(t, log.with("message abandoned"), len(abandoned)+1, "there is room again")
		r.stop()
	})
}

// At level DEBUG each message is a line, whatever became of it.
func TestEachPublishIsALineAtDebug(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if m.ID == "bad" {
				return brokers.Permanent(errors.New("no"))
			}
			return nil
		}}
		r, log := logged(t, path, broker, failing, slog.LevelDebug)
		r.insert("k", "good")
		r.insert("", "bad")
		r.start()
		r.until(time.Minute, func() bool { return r.open() == "0" })
		r.stop()
		id := func(name string) string {
			return "message_id=" + r.query("SELECT message_id FROM outbox_messages WHERE CAST(payload AS TEXT) = ?", name)
		}
		assert.Len(t, log.with("level=DEBUG", `msg="message published"`, id("good"), "type=T", "ordering_key=k", "destination=s", "attempt=1", "broker_message_id=b-good"), 1)
		assert.Len(t, log.with("level=DEBUG", `msg="message not published"`, id("bad"), "type=T", "verdict=abandon", `error="permanent: no"`), 1)
	})
}
