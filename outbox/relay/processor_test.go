package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

var errNoLuck = errors.New("no luck")

func TestProcessorRetriesAndAbandons(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var times []time.Time
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if m.ID == "bad" {
				times = append(times, time.Now())
				return brokers.Retryable(errNoLuck)
			}
			return nil
		}}
		const poll = 15 * time.Second
		r := start(t, path, broker, outbox.Policy{Retry: outbox.Retry{Jitter: -1}, PollMin: poll, PollMax: poll})
		r.insert(row{key: "k", name: "bad"}, row{key: "k", name: "follower"}, row{key: "other", name: "free"})
		r.until(30*time.Second, func() bool { return r.status("free") == "published 1" })
		assert.Equal(t, "failed 1", r.status("bad"))
		assert.Equal(t, "pending 0", r.status("follower"))
		r.drained(2 * time.Hour)
		r.stop()
		assert.Equal(t, "abandoned 5", r.status("bad"))
		assert.Equal(t, "published 1", r.status("follower"), "after an abandon the key goes on")
		assert.Equal(t, "retryable: no luck", r.query(`SELECT last_error ->> 'message' FROM outbox_messages WHERE status = 'abandoned'`))
		require.Len(t, times, 5)
		for i, minutes := range []time.Duration{1, 2, 4, 8} { // the poll adds at most its own interval
			assert.InDelta(t, float64(minutes*time.Minute), float64(times[i+1].Sub(times[i])), float64(poll+time.Millisecond))
		}
	})
}

// What was abandoned stays so when more attempts are allowed afterwards; what still waits gets them.
func TestFault26TheDeadStayDead(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		retry := outbox.Retry{MaxAttempts: 2, BaseDelay: time.Minute, Jitter: -1}
		r := start(t, path, failingWith(brokers.Retryable(errNoLuck), all), outbox.Policy{Retry: retry, PollMin: 5 * time.Second, PollMax: 20 * time.Second})
		r.insert(row{key: "a", name: "dead"})
		r.until(time.Hour, func() bool { return r.status("dead") == "abandoned 2" })
		r.insert(row{key: "b", name: "waiting"})
		r.until(time.Minute, func() bool { return r.status("waiting") == "failed 1" })
		r.stop()
		const dead = "SELECT finished_at || ' ' || last_error FROM outbox_messages WHERE CAST(payload AS TEXT) = 'dead'"
		before := r.query(dead)
		r.another(func(c *ProcessorConfig) { c.Policy.Retry.MaxAttempts = 4 })
		r.drained(48 * time.Hour)
		assert.Equal(t, "abandoned 2", r.status("dead"))
		assert.Equal(t, before, r.query(dead), "no relay has touched it")
		assert.Equal(t, "abandoned 4", r.status("waiting"))
	})
}

// One broker takes no large messages: it alone abandons them, at once and with the reason, and
// everything else arrives at both.
func TestFault11TooLargeForOneBroker(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		narrow := failingWith(brokers.Permanent(errors.New("10000 bytes, at most 1000")), func(m brokers.Message) bool { return len(m.Payload) > 1000 })
		r := newRig(t, path, &fake{}, outbox.Policy{})
		r.fill(60, keyed("k", 6))
		r.exec("UPDATE outbox_messages SET payload = zeroblob(10000) WHERE id % 10 = 3")
		r.exec(`INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload)
			SELECT message_id, 'narrow', stream, type, ordering_key, payload FROM outbox_messages ORDER BY id`)
		_, stop := r.engine(EngineConfig{Brokers: map[string]Target{"b": {Broker: &fake{}}, "narrow": {Broker: narrow}}})
		r.drained(5 * time.Second) // no backoff: at once
		stop()
		assert.Equal(t, 60, r.count("target_broker = 'b' AND status = 'published' AND attempts = 1"))
		assert.Equal(t, 54, r.count("target_broker = 'narrow' AND status = 'published' AND attempts = 1"))
		assert.Equal(t, 6, r.count(`target_broker = 'narrow' AND status = 'abandoned' AND length(payload) = 10000 AND attempts = 1
			AND last_error LIKE '%permanent%at most 1000%'`))
	})
}

// Whatever stands in a row, it comes to a clean end, and its neighbours arrive: nothing is stuck.
func TestFault33MalformedRows(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := newRig(t, path, &fake{}, outbox.Policy{})
		const published, abandoned, either = string(outbox.StatusPublished), string(outbox.StatusAbandoned), ""
		rows := map[string]string{ // how it ends
			`headers = '{"traceparent":"garbage","tracestate":"="}'`: published, // consumers ignore what they cannot read
			`headers = '{"traceparent":"00-0-0-0"}'`:                 published,
			`headers = '{"nested":{"a":1}}'`:                         abandoned,
			`headers = '["a"]'`:                                      abandoned,
			`headers = '{"a":1}'`:                                    abandoned,
			`headers = '{'`:                                          abandoned,
			`headers = 'null'`:                                       either,
			`headers = CAST(X'7B2261223A22FF227D' AS TEXT)`:          either, // {"a":"\xff"}
			`payload = X'FFFE00'`:                                    published,
			`type = CAST(X'FF' AS TEXT)`:                             either,
			`ordering_key = CAST(X'FF' AS TEXT)`:                     either,
			`correlation_id = CAST(X'FF' AS TEXT), tenant_id = 'a'`:  either,
			`content_type = 'nonsense'`:                              abandoned,
			`content_type = 'text/plain; charset="'`:                 either,
			`stream = ''`:                                            abandoned,
			`type = ''`:                                              abandoned,
			`expires_at = 1`:                                         abandoned,
		}
		ids := map[string]string{}
		for change := range rows {
			r.insert(row{name: "malformed"})
			ids[change] = r.query("SELECT max(id) FROM outbox_messages")
			r.exec("UPDATE outbox_messages SET "+change+" WHERE id = ?", ids[change])
			r.insert(row{name: "neighbour"})
		}
		r.start()
		r.drained(time.Minute)
		for change, want := range rows {
			got := r.query("SELECT status FROM outbox_messages WHERE id = ?", ids[change])
			if want != either {
				assert.Equal(t, want, got, change)
			}
			if got == abandoned {
				assert.NotEmpty(t, r.query("SELECT last_error ->> 'message' FROM outbox_messages WHERE id = ?", ids[change]), change)
			}
		}
		assert.Equal(t, len(rows), r.count("status = 'published' AND CAST(payload AS TEXT) = 'neighbour'"))
	})
}

// A worker never has more bytes claimed than its policy allows, unless it is one message; and all
// of them arrive, in order.
func TestProcessorBatchBytes(t *testing.T) {
	t.Parallel()
	for _, unordered := range []bool{false, true} {
		t.Run(fmt.Sprintf("unordered=%t", unordered), func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				const most = 250
				var r *rig
				hands := map[int]int{}
				broker := &fake{publish: func(context.Context, brokers.Message) error {
					claimed := r.count("status = 'processing'")
					hands[claimed]++
					if claimed > 1 {
						assert.Equal(t, "1", r.query(`SELECT sum(length(payload)) <= ? FROM outbox_messages WHERE status = 'processing'`, most))
					}
					return nil
				}}
				r = newRig(t, path, broker, outbox.Policy{Workers: 1, BatchSize: 10, BatchBytes: most, Unordered: unordered})
				var want []string
				r.fill(30, func(i int) row {
					name := fmt.Sprintf("%02d%s", i, strings.Repeat("x", 98)) // two fit, three do not
					if i%10 == 7 {
						name += strings.Repeat("y", most)
					}
					want = append(want, name)
					return row{key: "k", name: name}
				})
				r.start()
				r.drained(time.Minute)
				assert.Equal(t, want, broker.delivered(""))
				assert.Greater(t, hands[1], 2, "the large ones come alone")
				assert.Greater(t, hands[2], 10)
				assert.Len(t, hands, 2, "%v", hands)
			})
		})
	}
}

// requireOrder checks that the first deliveries of each of so many keys, whose rows were numbered in
// turn, come in order.
func requireOrder(t *testing.T, delivered []string, keys int) {
	t.Helper()
	first, last := map[string]bool{}, map[int]int{}
	for _, name := range delivered {
		if first[name] {
			continue
		}
		first[name] = true
		n, err := strconv.Atoi(name)
		require.NoError(t, err)
		before, there := last[n%keys]
		require.True(t, !there || before < n, "%d was delivered before %d", before, n)
		last[n%keys] = n
	}
}

// The messages of a key go to two destinations, one of which is unavailable. What is for the other
// one waits for its turn: it passes no message that was given back because its destination may not
// be tried now, or not with so many.
func TestProcessorKeyOfTwoDestinations(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		begin := time.Now()
		broker := failingWith(brokers.Unavailable(brokers.ScopeDestination, errors.New("no such topic")), func(m brokers.Message) bool {
			return m.Destination == "down" && time.Since(begin) < time.Minute
		})
		r := newRig(t, path, broker, outbox.Policy{})
		const keys = 20
		r.fill(4*keys, func(i int) row {
			return row{key: strconv.Itoa(i % keys), name: strconv.Itoa(i), stream: []string{"down", "up"}[i/keys%2]}
		})
		r.start()
		r.drained(time.Hour)
		assert.Len(t, broker.delivered(""), 4*keys, "once each")
		requireOrder(t, broker.delivered(""), keys)
	})
}

// Hundreds of followers behind a failed head are out of the others' way, and come in order when it
// has gone through.
func TestProcessorFollowersAreInNobodysWay(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := failingWith(brokers.Retryable(errNoLuck), func(m brokers.Message) bool { return m.ID == "stuck0" })
		r := start(t, path, broker, outbox.Policy{BatchSize: 10, PollMax: time.Minute, Retry: outbox.Retry{MaxAttempts: 100}})
		r.fill(600, keyed("stuck", 1))
		r.fill(30, keyed("other", 1))
		r.until(2*time.Minute, func() bool { return len(broker.delivered("other")) == 30 })
		assert.Empty(t, broker.delivered("stuck"))
		assert.Equal(t, 600, r.count("deferred"))
		late := keyed("late", 1)
		r.fill(20, func(i int) row { return row{key: "stuck-0", name: late(i).name} })
		time.Sleep(20 * time.Minute)
		assert.Empty(t, broker.delivered("late"))
		broker.healed.Store(true)
		r.drained(3 * time.Hour)
		assert.Equal(t, append(names("stuck", 600), names("late", 20)...), slices.DeleteFunc(broker.delivered(""), func(name string) bool {
			return strings.HasPrefix(name, "other")
		}))
		assert.Equal(t, "0", r.query("SELECT count(*) FROM outbox_messages_key_blocks"))
	})
}

// Rows that plain SQL has scheduled, each with a key of its own, stand before one that can go: it is
// delivered while most of them are still in the claim's way. They go out when they are due.
func TestProcessorLooksPastScheduledRows(t *testing.T) {
	testenv.NeedSeconds(t)
	inBubble(t, func(t *testing.T, path string) {
		const scheduled = deferWindow + 200
		var r *rig
		var deferred int
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if m.ID == "free" {
				deferred = r.count("deferred = 1")
			}
			return nil
		}}
		r = newRig(t, path, broker, outbox.Policy{PollMin: 20 * time.Second, PollMax: 20 * time.Second})
		r.exec(`INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, locked_until, payload)
			WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < ?)
			SELECT printf('00000000-0000-4000-8000-%012d', n), 'b', 's', 'T', 'key-' || n, ?, CAST('later-' || n AS BLOB) FROM number`,
			scheduled, time.Now().Add(time.Hour).UnixMicro())
		r.insert(row{key: "key-7", name: "behind"}, row{key: "another", name: "free"})
		r.start()
		time.Sleep(30 * time.Second)
		assert.Equal(t, deferWindow, deferred, "rows that had been deferred when the free one was delivered")
		assert.Equal(t, []string{"free"}, broker.delivered(""))
		r.exec("DELETE FROM outbox_messages WHERE ordering_key NOT IN ('key-7', 'key-8')") // that would take a while
		time.Sleep(2 * time.Hour)
		assert.Equal(t, "published 1", r.status("behind"))
		assert.Equal(t, "published 1", r.status("later-8"))
		assert.Zero(t, r.open())
	})
}

// A backlog of low priority gives way to normal rows, also to those of its own keys, gets its share
// nevertheless, and keeps its order.
func TestProcessorBackfillGivesWay(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(context.Context, brokers.Message) error { time.Sleep(time.Millisecond); return nil }}
		r := newRig(t, path, broker, outbox.Policy{BatchSize: 10, Workers: 1})
		r.fill(500, func(i int) row { return row{key: "a", name: fmt.Sprint("low", i), priority: -10} })
		r.start()
		r.until(2*time.Second, func() bool { return len(broker.delivered("")) >= 50 })
		r.fill(10, func(i int) row { return row{name: fmt.Sprint("urgent", i), priority: 100} })
		r.insert(row{key: "a", name: "same"})
		r.fill(500, keyed("normal", 1))
		seen := len(broker.delivered(""))
		r.until(2*time.Second, func() bool { return len(broker.delivered("normal")) == 500 })
		low := len(broker.delivered("low"))
		assert.Less(t, low, 300, "normal rows came first")
		assert.Greater(t, low, seen+20, "but the backfill was not starved")
		all := broker.delivered("")
		assert.Less(t, slices.Index(all, "urgent9"), seen+90, "urgent rows came with the next look")
		assert.Less(t, slices.Index(all, "same"), seen+100, "500 earlier rows of its key have a low priority")
		r.drained(time.Minute)
		assert.Equal(t, names("low", 500), broker.delivered("low"))
	})
}

func TestProcessorDefersTheKeyOfAnAbandonedMessage(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := failingWith(brokers.Permanent(errors.New("refused")), named("a0"))
		r := start(t, path, broker, outbox.Policy{BlockAbandoned: true, PollMax: time.Minute})
		r.fill(3, keyed("a", 1))
		r.fill(3, keyed("b", 1))
		r.until(time.Minute, func() bool { return r.open() == 2 })
		assert.Equal(t, "abandoned 1", r.status("a0"))
		time.Sleep(time.Hour)
		r.insert(row{key: "a-0", name: "late"})
		time.Sleep(20 * time.Minute)
		assert.Equal(t, 3, r.open(), "the key waits for an operator")
	})
}
