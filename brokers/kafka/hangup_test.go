package kafka_test

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/kafka"
)

// hangUp has servers close the connection at requests with messages that have a text.
func (c *cluster) hangUp(text string, so *atomic.Bool) {
	c.fake.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.fake.KeepControl()
		for _, topic := range request.(*kmsg.ProduceRequest).Topics {
			for _, partition := range topic.Partitions {
				if so.Load() && bytes.Contains(partition.Records, []byte(text)) {
					return nil, errors.New("hang up"), true
				}
			}
		}
		return nil, nil, false //nolint:nilnil // the fake cluster answers
	})
}

// A message at which its server hangs up, as an intrusion prevention system or a proxy with a limit does, holds up its
// own key and nothing else. It is known by what passes beside it.
func TestMessageAtWhichTheServerHangsUp(t *testing.T) {
	t.Parallel()
	c := startThree(t, 6)
	so := &atomic.Bool{}
	so.Store(true)
	c.hangUp("poison", so)
	b := open(t, c.seeds(), kafka.WithoutCompression(kafka.Settings{Timeout: time.Minute}))
	msgs := perKey("there", 60)
	msgs[3].Payload = []byte("poison")
	msgs = append(msgs, numbered("there", "key-3", 60))
	for range 2 {
		results := b.Publish(t.Context(), msgs)
		_, said := kinds(results)
		assert.Equal(t, map[brokers.Scope]int{"": 59, brokers.ScopeDestination: 1, "-": 1}, refusedBy(results), said)
		require.ErrorContains(t, results[3].Err, "hangs up")
		require.ErrorIs(t, results[60].Err, brokers.ErrNotSent)
	}
}

// Where few messages come, none of its partition may be with it in a call: those of other calls say as much.
func TestMessageAtWhichTheServerHangsUpAlone(t *testing.T) {
	t.Parallel()
	c := startThree(t, 1)
	so := &atomic.Bool{}
	so.Store(true)
	c.hangUp("poison", so)
	b := open(t, c.seeds(), kafka.WithoutCompression(kafka.Settings{Timeout: time.Minute}))
	msgs := perKey("there", 3)
	msgs[0].Payload = []byte("poison")
	poison, others := msgs[:1], msgs[1:]
	alone := func(scope brokers.Scope) {
		t.Helper()
		assert.Equal(t, map[brokers.Scope]int{scope: 1}, refusedBy(b.Publish(t.Context(), poison)))
	}
	alone(brokers.ScopePartition)
	alone(brokers.ScopePartition)
	for range 2 {
		require.Equal(t, map[brokers.Scope]int{"": 2}, refusedBy(b.Publish(t.Context(), others)))
		alone(brokers.ScopeDestination)
		alone(brokers.ScopePartition) // by now it may hang up at all
	}
	so.Store(false)
	alone("")
	so.Store(true)
	alone(brokers.ScopePartition) // it has been confirmed since
}

// A server that hangs up at all messages is out, with its partitions: none is to blame, and not all are tried.
func TestServerThatHangsUpAtAll(t *testing.T) {
	t.Parallel()
	c := startThree(t, 6)
	so := &atomic.Bool{}
	so.Store(true)
	c.fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.fake.KeepControl()
		if c.fake.CurrentNode() == 2 && so.Load() {
			return nil, errors.New("hang up"), true
		}
		return nil, nil, false //nolint:nilnil // the fake cluster answers
	})
	b := open(t, c.seeds(), kafka.Settings{Timeout: time.Minute})
	n, said := map[string]int{}, map[string]string{}
	for range 3 {
		results := b.Publish(t.Context(), perKey("there", 60))
		n, said = kinds(results)
		assert.Zero(t, refusedBy(results)[brokers.ScopeDestination], said)
		assert.Zero(t, n["unavailable broker"]+n["unavailable destination"], said)
		assert.Greater(t, n[""], 30)
	}
	assert.Contains(t, said["unavailable partition"], "confirms nothing in time", "it is left alone")
	so.Store(false)
	require.Eventually(t, func() bool {
		n, said = kinds(b.Publish(t.Context(), perKey("there", 60)))
		return n[""] == 60
	}, patience, 200*time.Millisecond)
}
