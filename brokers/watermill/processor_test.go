package watermill_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/brokertest/relaytest"
	"github.com/gorm-fanout/fanout/brokers/watermill"
	"github.com/gorm-fanout/fanout/outbox"
)

// relayRig is a relay with a broker of Watermill, in a bubble where hours pass in an instant.
type relayRig struct {
	*relaytest.Relay

	t *testing.T
}

func newRelay(t *testing.T, p *publisher) relayRig {
	t.Helper()
	broker := watermill.New(p)
	t.Cleanup(func() { assert.NoError(t, broker.Close(context.Background())) })
	policy := outbox.Policy{PollMin: time.Second, PollMax: 10 * time.Second, Workers: 1, Retry: outbox.Retry{BaseDelay: time.Second}}
	return relayRig{relaytest.Start(t, broker, policy, slog.New(slog.DiscardHandler)), t}
}

// insert writes a row; its payload is its name.
func (r relayRig) insert(key, name string) {
	r.Insert(outbox.Row{OrderingKey: key, Payload: []byte(name)})
}

// is reports whether a condition is true of a row.
func (r relayRig) is(name, condition string) bool {
	r.t.Helper()
	return r.Count("CAST(payload AS TEXT) = ? AND "+condition, name) == 1
}

func (r relayRig) until(limit time.Duration, condition func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(limit); !condition(); time.Sleep(100 * time.Millisecond) { // of the bubble's time
		require.True(r.t, time.Now().Before(deadline), "not within %s", limit)
	}
}

func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// TestRelayOutlivesAnOutage: an outage longer than five attempts take, during which the publisher
// speaks in words of its own, costs no message an attempt.
func TestRelayOutlivesAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		p := &publisher{publish: func(string, *message.Message) error {
			if down.Load() {
				return errors.New("not connected")
			}
			return nil
		}}
		r := newRelay(t, p)
		names := strings.Fields("a1 b1 a2 c1 b2 a3 d1 d2")
		for _, name := range names {
			r.insert("key-"+name[:1], name)
		}
		r.insert("", "alone")
		time.Sleep(2 * time.Minute)
		require.NotEmpty(t, p.ids())
		for _, name := range append(names, "alone") {
			assert.True(t, r.is(name, "status = 'pending' AND attempts = 0"), name)
		}
		down.Store(false)
		r.until(time.Minute, func() bool { return r.is("d2", "status = 'published'") && r.is("a3", "status = 'published'") })
	})
}

// TestRelayFindsThePoison: a message that the publisher alone refuses is charged as soon as others
// get through, and abandoned in the end; while there are no others, nobody can tell it from an
// outage.
func TestRelayFindsThePoison(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRelay(t, &publisher{publish: func(_ string, m *message.Message) error {
			if string(m.Payload) == "poison" {
				return errors.New("bad record")
			}
			return nil
		}})
		r.insert("a", "poison")
		r.insert("a", "follower")
		time.Sleep(2 * time.Minute)
		assert.True(t, r.is("poison", "status = 'pending' AND attempts = 0"))

		for i := range 20 { // one every twenty seconds
			r.insert("", strings.Repeat("i", i+1))
			time.Sleep(20 * time.Second)
		}
		assert.True(t, r.is("poison", "status = 'abandoned'"))
		assert.True(t, r.is("follower", "status = 'published'"))
		for i := range 20 {
			assert.True(t, r.is(strings.Repeat("i", i+1), "status = 'published' AND attempts = 1"), "its own; it paid for no other")
		}
	})
}

// TestRelayGoesOnBesideAHang: a call that never returns costs the others a publish timeout once,
// and its own key the wait.
func TestRelayGoesOnBesideAHang(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		release := make(chan struct{})
		p := &publisher{publish: func(_ string, m *message.Message) error {
			if string(m.Payload) == "hangs" {
				<-release
			}
			return nil
		}}
		r := newRelay(t, p)
		r.insert("a", "hangs")
		r.insert("a", "next")
		for i := range 4 {
			r.insert("", strings.Repeat("i", i+1))
			time.Sleep(time.Minute)
			assert.True(t, r.is(strings.Repeat("i", i+1), "status = 'published'"), "message %d", i)
		}
		assert.True(t, r.is("next", "status = 'pending'"), "it would overtake")
		assert.True(t, r.is("hangs", "attempts = 0"))
		close(release)
		r.until(time.Minute, func() bool { return r.is("next", "status = 'published'") })
		assert.True(t, r.is("hangs", "status = 'published'"))
	})
}
