package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/failure"
	"github.com/gorm-fanout/fanout/internal/fingerprint"
	"github.com/gorm-fanout/fanout/outbox"
)

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

// threeTries is a policy whose retries are not left to chance.
func threeTries() outbox.Policy {
	return outbox.Policy{
		PollMin: time.Second, PollMax: time.Minute, BatchSize: 200,
		Retry: outbox.Retry{MaxAttempts: 3, BaseDelay: 30 * time.Second, MaxDelay: 30 * time.Second, Jitter: -1},
	}
}

// Many messages of one cause are three lines: that it begins, how many there were, and that it is
// over.
func TestManyAbandonedAreFewLines(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		const n = 500
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			return brokers.Permanent(failure.Advise(fmt.Errorf("no topic for %q", m.ID), "create the topic"))
		}}
		r := newRig(t, path, broker, threeTries())
		r.fill(n, loose("m"))
		r.start()
		r.drained(time.Hour)
		time.Sleep(4 * time.Minute)
		abandoned := r.log.with("level=ERROR", "message abandoned")
		require.Len(t, abandoned, 2)
		assert.Equal(t, n, sum(t, abandoned, "abandoned"))
		group := fingerprint.Of("b", "permanent", `permanent: no topic for "m1": create the topic`)
		for _, line := range abandoned {
			assert.Contains(t, line, `msg="message abandoned" database=test broker=b `+
				`remedy="create the topic, then fanout messages requeue --broker b --fingerprint `+group+`"`)
			assert.Contains(t, line, "type=T destination=s")
			assert.NotContains(t, strings.SplitN(line, " error=", 2)[1], "create the topic", "once is enough")
		}
		over := r.log.with("level=INFO", "failure over")
		require.Len(t, over, 1)
		assert.Equal(t, n, sum(t, over, "abandoned"))
		assert.Equal(t, 3, r.log.count())
	})
}

// A failure that goes on is a line a minute, and another cause a line at once, after one that says how
// many the cause before had meanwhile.
func TestACauseThatChanges(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var cause atomic.Value
		cause.Store("no luck")
		broker := &fake{publish: func(context.Context, brokers.Message) error {
			if cause.Load() == "" {
				return nil
			}
			return brokers.Retryable(errors.New(cause.Load().(string)))
		}}
		policy := threeTries()
		policy.Retry = outbox.Retry{MaxAttempts: 1000, BaseDelay: 10 * time.Second, MaxDelay: 10 * time.Second, Jitter: -1}
		r := newRig(t, path, broker, policy)
		r.fill(5, loose("m"))
		r.start()
		time.Sleep(5*time.Minute + 30*time.Second)
		lines := r.log.with("level=WARN", "message failed", "no luck")
		assert.InDelta(t, 6, len(lines), 1, "%v", lines)
		cause.Store("no room")
		r.until(time.Minute, func() bool { return r.log.count("message failed", "no room") == 1 })
		all := r.log.with("message failed")
		require.Len(t, all, len(lines)+2)
		assert.Contains(t, all[len(all)-2], "no luck")
		assert.Positive(t, sum(t, all[len(all)-2:len(all)-1], "failed"))
		assert.Contains(t, all[len(all)-1], "no room")
		cause.Store("")
		r.drained(2 * time.Minute)
		time.Sleep(3 * time.Minute)
		assert.Equal(t, 1, r.log.count("level=INFO", "failure over", "no luck"))
		assert.Equal(t, 1, r.log.count("level=INFO", "failure over", "no room"))
		cause.Store("no luck")
		r.insert(row{name: "m"})
		r.until(2*time.Minute, func() bool { return r.log.count("message failed", "no luck") == len(lines)+2 })
	})
}

// What was not reported yet is when the relay stops.
func TestTheLastFailuresAreReported(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		const n = 500
		r := newRig(t, path, failingWith(brokers.Permanent(errors.New("no")), all), threeTries())
		r.fill(n, loose("m"))
		r.start()
		r.drained(30 * time.Second)
		r.stop()
		abandoned := r.log.with("message abandoned")
		assert.Equal(t, n, sum(t, abandoned, "abandoned"))
		assert.Len(t, abandoned, 2)
	})
}

// More causes than can be distinguished, from a broker that repeats the payload, say, are summed up.
func TestManyCauses(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		const n = 300
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			return brokers.Permanent(errors.New("cannot parse " + strings.Map(func(r rune) rune { return r | 0x40 }, m.ID))) // letters alone
		}}
		r := newRig(t, path, broker, threeTries())
		r.fill(n, loose("m"))
		r.start()
		r.drained(time.Hour)
		time.Sleep(5 * time.Minute)
		abandoned := r.log.with("level=ERROR", "message abandoned")
		assert.Equal(t, n, sum(t, abandoned, "abandoned"))
		assert.LessOrEqual(t, len(abandoned), 102)
		assert.NotZero(t, r.log.count("level=ERROR", "further causes", "fanout messages failures"))
		assert.Equal(t, 101, r.log.count("level=INFO", "failure over"))
		r.insert(row{name: "m0"})
		r.drained(time.Minute)
		assert.Equal(t, len(abandoned)+1, r.log.count("message abandoned"), "there is room again")
	})
}

// At level DEBUG each message is a line, whatever became of it.
func TestEachPublishIsALineAtDebug(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker, log := failingWith(brokers.Permanent(errors.New("no")), named("bad")), newLog(t)
		r := newRig(t, path, broker, threeTries(), func(c *ProcessorConfig) { c.Log = log.logger(slog.LevelDebug) })
		r.insert(row{key: "k", name: "good"}, row{name: "bad"})
		r.start()
		r.drained(time.Minute)
		id := func(name string) string {
			return "message_id=" + r.query("SELECT message_id FROM outbox_messages WHERE CAST(payload AS TEXT) = ?", name)
		}
		assert.Equal(t, 1, log.count("level=DEBUG", `msg="message published"`, id("good"), "type=T", "ordering_key=k", "destination=s", "attempt=1", "broker_message_id=b-good"))
		assert.Equal(t, 1, log.count("level=DEBUG", `msg="message not published"`, id("bad"), "type=T", "verdict=abandon", `error="permanent: no"`))
	})
}

// picky is a broker that takes no attributes.
type picky struct{ fake }

func (p *picky) Publish(ctx context.Context, messages []brokers.Message) []brokers.Result {
	results := p.fake.Publish(ctx, messages)
	for i := range messages {
		for _, a := range messages[i].Attributes {
			results[i].Omitted = append(results[i].Omitted, a.Name)
		}
	}
	return results
}

// Messages that went without some of their attributes are published, and the log says so once a
// minute, with a bounded part of the names.
func TestProcessorTellsWhatWasOmitted(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := newRig(t, path, &picky{}, outbox.Policy{})
		headers := `{"a` + strings.Repeat("a", 2000) + `":"x","b":"x","c":"x","d":"x","e":"x","f":"x"}`
		r.fill(20, func(i int) row { return row{name: "m", headers: headers, in: time.Duration(i) * 5 * time.Second} })
		r.start()
		r.drained(5 * time.Minute)
		omitted := r.log.with("attributes omitted", "omitted=6")
		assert.Len(t, omitted, 2)
		assert.Less(t, len(strings.Join(omitted, "")), 2000)
	})
}
