package relay

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// newWorker makes one whose processor has no store.
func newWorker(t *testing.T, policy outbox.Policy, broker brokers.Broker) *worker {
	t.Helper()
	policy, log := policy.WithDefaults(), newLog(t).logger(0)
	return &worker{p: &Processor{
		target: broker, policy: policy, breaker: newBreaker(policy.Breaker), sizing: &sizing{}, log: log, failures: failures{log: log},
	}}
}

// deliverBatch lets a worker deliver rows of one key: "ok", "expired" or "malformed".
func deliverBatch(t *testing.T, policy outbox.Policy, kinds ...string) *driver.Completion {
	t.Helper()
	batch := driver.Batch{Lease: driver.Lease{Token: uuid.New()}}
	for i, kind := range kinds {
		m := message(int64(i + 1))
		m.OrderingKey = "key"
		switch kind {
		case "malformed":
			m.Type = ""
		case "expired":
			m.ExpiresIn = -1
		}
		batch.Messages = append(batch.Messages, m)
	}
	w := newWorker(t, policy, taker{})
	s := w.deliver(t.Context(), t.Context(), &batch, time.Now())
	assert.True(t, w.p.breaker.closed(), "the broker was not even asked")
	return s
}

func abandonedIDs(s *driver.Completion) (ids []int64) {
	for _, o := range s.Other {
		if o.Status == outbox.StatusAbandoned {
			ids = append(ids, o.ID)
		}
	}
	return ids
}

// A key is blocked behind its first abandoned row: what comes after that keeps its turn.
func TestDeliverAbandonsOneRowOfAKeyThatBlocks(t *testing.T) {
	t.Parallel()
	s := deliverBatch(t, outbox.Policy{BlockAbandoned: true}, "malformed", "malformed", "ok")
	require.Len(t, s.Other, 3)
	assert.Equal(t, []int64{1}, abandonedIDs(s))
	assert.Empty(t, s.Published)

	s = deliverBatch(t, outbox.Policy{}, "malformed", "malformed", "ok")
	require.Len(t, s.Other, 3)
	assert.Equal(t, []int64{1, 2}, abandonedIDs(s), "a key that goes on loses them at once")
}

// What has expired defers nothing, before and behind what does.
func TestDeliverAbandonsAllRowsThatHaveExpired(t *testing.T) {
	t.Parallel()
	s := deliverBatch(t, outbox.Policy{BlockAbandoned: true}, "expired", "expired", "ok")
	assert.Equal(t, []int64{1, 2}, abandonedIDs(s))
	for i := range s.Other {
		assert.False(t, s.Blocks(&s.Other[i]))
	}
	s = deliverBatch(t, outbox.Policy{BlockAbandoned: true}, "malformed", "expired", "malformed")
	assert.Equal(t, []int64{1, 2}, abandonedIDs(s))
	assert.True(t, s.Blocks(&s.Other[0]))
	assert.False(t, s.Blocks(&s.Other[1]))
}

// A message that has met an outage is alone in its call: whether it causes one is to be seen by
// itself.
func TestDeliverSendsAMessageThatMetAnOutageAlone(t *testing.T) {
	t.Parallel()
	var sizes []int
	w := newWorker(t, outbox.Policy{}, taker{sizes: &sizes})
	batch := driver.Batch{Lease: driver.Lease{Token: uuid.New()}}
	for i := range 6 {
		batch.Messages = append(batch.Messages, message(int64(i)))
	}
	w.p.history.note(3, time.Now())
	w.p.history.suspects.Store(1)
	w.deliver(t.Context(), t.Context(), &batch, time.Now())
	w.deliver(t.Context(), t.Context(), &batch, time.Now())
	assert.Equal(t, []int{5, 1, 6}, sizes, "behind the others, and when it was delivered with them")
}

// A batch that its bytes have cut is full: that it has few rows is no reason to look further, nor
// to defer anything.
func TestCutBatchIsFull(t *testing.T) {
	t.Parallel()
	w := &worker{p: &Processor{policy: outbox.Policy{BatchSize: 10}.WithDefaults()}, window: 40}
	claim := &driver.Claim{Broker: "b", Limit: 10, Window: 40}
	few := make([]driver.Message, 1)
	for _, claim.Unordered = range []bool{false, true} {
		// There is no store: a call to it would panic.
		assert.False(t, w.deferRows(t.Context(), &driver.Batch{Messages: few, Seen: 40, Waiting: 5000, Cut: true}, claim))
	}
	for _, step := range []struct {
		seen, window int // of the claim
		cut          bool
		want         int
	}{{40, 40, true, 20}, {20, 20, true, 10}, {10, 10, true, 10}, {10, 10, false, 20}} { // no less than a batch; held rows fill the window
		assert.False(t, w.widen(&driver.Batch{Messages: few, Seen: step.seen, Cut: step.cut}, &driver.Claim{Limit: 10, Window: step.window}, 0))
		assert.Equal(t, step.want, w.window)
	}
}

// A batch that tries out a broker sends a few messages and gives back the others.
func TestDeliverTriesABrokerWithAFew(t *testing.T) {
	t.Parallel()
	var sizes []int
	w := newWorker(t, outbox.Policy{}, taker{sizes: &sizes})
	w.pass.probe = true
	batch := driver.Batch{Lease: driver.Lease{Token: uuid.New()}}
	for i := range 3 * probeLimit {
		batch.Messages = append(batch.Messages, message(int64(i)))
	}
	s := w.deliver(t.Context(), t.Context(), &batch, time.Now())
	assert.Equal(t, []int{probeLimit}, sizes)
	assert.Len(t, s.Other, 2*probeLimit)
}

// shows has a history learn from a call that began then and had one message.
func (h *history) shows(began time.Time, id int64, err error) (charged bool) {
	call := Call{Messages: []*driver.Message{{ID: id, Stream: "s"}}, Results: []brokers.Result{{Err: err}}, Began: began}
	c := classify(&call, h.of(&call), 3, nil)
	h.learn(&call, &c)
	return c.charged
}

// What is delivered after an outage was noticed is evidence, but not what was in progress by then.
func TestHistory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h history
		outage := brokers.Unreachable(brokers.ScopeBroker, errNoLuck)
		meets := func(id int64) (charged bool) { return h.shows(time.Now(), id, outage) }
		early := time.Now()
		time.Sleep(time.Second)
		assert.False(t, meets(1))
		assert.True(t, h.knows(1))
		time.Sleep(time.Second)
		assert.False(t, meets(1), "nothing has got through since")
		h.shows(early, 2, nil)
		assert.False(t, meets(1), "sent before the outage")
		h.shows(time.Now(), 2, nil)
		h.shows(early, 2, nil)
		assert.True(t, meets(1))
		assert.False(t, h.knows(1))
		assert.False(t, meets(1), "it begins anew")
		assert.False(t, h.knows(2))

		h.shows(time.Now(), 1, &breakdown{what: "panicked"})
		assert.True(t, h.knows(1))
		h.shows(time.Now(), 1, nil)
		assert.False(t, h.knows(1))
		assert.False(t, meets(1), "that was no outage")

		for id := range int64(3 * maxHistory) {
			meets(id)
		}
		assert.LessOrEqual(t, len(h.met), maxHistory)
	})
}

// A refused message that is not tried again, since another process has delivered it or an operator has
// removed it, is forgotten: it does not make tries of a broker that hangs as large as those of one that refuses.
func TestHistoryForgetsWhatDoesNotComeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := history{refusals: refusals{keep: time.Hour}}
		refusal := brokers.Refused(brokers.ScopeBroker, errNoLuck)
		h.shows(time.Now(), 1, refusal)
		time.Sleep(40 * time.Minute)
		h.shows(time.Now(), 2, refusal)
		assert.Equal(t, refusedLimit, h.probeLimit())
		assert.EqualValues(t, 2, h.suspects.Load())
		time.Sleep(40 * time.Minute)
		h.shows(time.Now(), 3, brokers.Unreachable(brokers.ScopeBroker, errNoLuck))
		assert.EqualValues(t, 2, h.suspects.Load(), "the second one, and one that met an outage")
		time.Sleep(40 * time.Minute)
		h.shows(time.Now(), 3, nil)
		assert.Equal(t, probeLimit, h.probeLimit())
		assert.Zero(t, h.suspects.Load())
		for id := range int64(2 * maxRefused) {
			h.shows(time.Now(), id, refusal)
		}
		assert.LessOrEqual(t, len(h.refusals.known), maxRefused)
		h.shows(time.Now(), 1, refusal)
		assert.Equal(t, time.Hour, h.refusals.keep)
	})
}

// A place that has refused several messages since it delivered something proves nothing against one
// of them.
func TestHistoryOfSeveralRefusals(t *testing.T) {
	t.Parallel()
	var h history
	at, refusal := place{scope: brokers.ScopeBroker}, brokers.Refused(brokers.ScopeBroker, errNoLuck)
	quiet := func() []bool { return []bool{h.refusals.quiet(at, 1), h.refusals.quiet(at, 2)} }
	assert.Equal(t, []bool{true, true}, quiet())
	h.shows(time.Now(), 1, refusal)
	assert.Equal(t, []bool{true, false}, quiet())
	h.shows(time.Now(), 2, refusal)
	assert.Equal(t, []bool{false, false}, quiet())
	h.shows(time.Now(), 3, nil)
	assert.Equal(t, []bool{true, true}, quiet())
}

// Where several messages of a call meet an outage, or none does, nothing is remembered of them.
func TestHistoryOfManyAtOnce(t *testing.T) {
	t.Parallel()
	var h history
	for _, results := range []string{"oo", "opo", "prxdn"} {
		call := lettered(results, 0)
		c := classify(call, h.of(call), 3, nil)
		h.learn(call, &c)
		assert.Empty(t, h.met, results)
	}
	call := lettered("npo", 0)
	c := classify(call, h.of(call), 3, nil)
	h.learn(call, &c)
	assert.True(t, h.knows(2), "it was alone to meet one")
	assert.Len(t, h.met, 1)
	assert.False(t, h.of(call).known)
	call.Messages = call.Messages[2:]
	assert.True(t, h.of(call).known)
}
