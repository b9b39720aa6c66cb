package relay_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/outbox"
)

func TestProcessorDelivers(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := start(t, path, memory.New(), outbox.Policy{})
		for i := range 1234 {
			r.insert(fmt.Sprintf("k%d", i%7), strconv.Itoa(i))
		}
		r.until(time.Minute, func() bool { return r.open() == "0" })
		r.stop()
		assert.EqualValues(t, 1234, r.proc.Stats().Published)
		assert.Equal(t, "1234", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published' AND attempts = 1 AND published_at = finished_at AND lock_token IS NULL"))
	})
}

func TestProcessorRetriesAndAbandons(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var times []time.Time
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if m.ID == "bad" {
				times = append(times, time.Now())
				return brokers.Retryable(errors.New("no luck"))
			}
			return nil
		}}
		r := start(t, path, broker, outbox.Policy{Retry: outbox.Retry{Jitter: -1}, PollMin: 5 * time.Second, PollMax: 5 * time.Second})
		r.insert("k", "bad")
		r.insert("k", "follower")
		r.insert("other", "free")
		r.until(10*time.Second, func() bool { return r.status("free") == "published 1" })
		assert.Equal(t, "failed 1", r.status("bad"))
		assert.Equal(t, "pending 0", r.status("follower"))
		r.until(2*time.Hour, func() bool { return r.open() == "0" })
		r.stop()
		assert.Equal(t, "abandoned 5", r.status("bad"))
		assert.Equal(t, "published 1", r.status("follower"), "after an abandon the key goes on")
		assert.Equal(t, "no luck", r.query(`SELECT last_error ->> 'message' FROM outbox_messages WHERE CAST(payload AS TEXT) = 'bad'`)[len("retryable: "):])
		require.Len(t, times, 5)
		for i, minutes := range []time.Duration{1, 2, 4, 8} {
			// The poll adds at most its own interval.
			assert.InDelta(t, float64(minutes*time.Minute), float64(times[i+1].Sub(times[i])), float64(5*time.Second+time.Millisecond))
		}
	})
}

func TestProcessorAbandonsMalformedRows(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := newRig(t, path, memory.New(), outbox.Policy{})
		t.Cleanup(func() { _ = r.db.Close() })
		for _, column := range []string{"stream = ''", "type = ''", "headers = '{'", "content_type = 'nonsense'", "expires_at = 1"} {
			r.insert("", column)
			_, err := r.db.ExecContext(t.Context(), "UPDATE outbox_messages SET "+column+" WHERE CAST(payload AS TEXT) = ?", column)
			require.NoError(t, err)
			r.insert("", "neighbour of "+column)
		}
		r.start()
		r.until(time.Minute, func() bool { return r.open() == "0" })
		r.stop()
		assert.Equal(t, "5", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published'"))
		assert.Equal(t, "5", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'abandoned' AND last_error ->> 'class' IN ('malformed', 'expired')"))
	})
}

func TestProcessorSurvivesABrokerThatPanics(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if m.ID == "bomb" {
				panic("boom")
			}
			return nil
		}}
		r := newRig(t, path, broker, outbox.Policy{Retry: outbox.Retry{BaseDelay: time.Second}})
		t.Cleanup(func() { _ = r.db.Close() })
		for i := range 50 {
			r.insert("", strconv.Itoa(i))
		}
		r.insert("", "bomb")
		r.start()
		r.until(time.Minute, func() bool { return r.open() == "0" })
		r.stop()
		assert.Equal(t, "abandoned 5", r.status("bomb"))
		assert.Contains(t, r.query(`SELECT last_error FROM outbox_messages WHERE status = 'abandoned'`), "panicked: boom")
		assert.Equal(t, "50", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published'"))
	})
}

// A batch of one row must see past a failed head, too.
func TestProcessorWithBatchesOfOne(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if m.ID == "bad" {
				return errors.New("no luck")
			}
			return nil
		}}
		r := newRig(t, path, broker, outbox.Policy{BatchSize: 1})
		t.Cleanup(func() { _ = r.db.Close() })
		r.insert("", "bad")
		r.insert("", "good")
		r.start()
		r.until(30*time.Second, func() bool { return r.status("good") == "published 1" })
		r.stop()
	})
}
