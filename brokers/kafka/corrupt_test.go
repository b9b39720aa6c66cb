package kafka_test

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/kafka"
)

// refusedBy are how many messages were refused by each scope; "" are those that were confirmed, and "-" all others.
func refusedBy(results []brokers.Result) map[brokers.Scope]int {
	n := map[brokers.Scope]int{}
	for _, result := range results {
		scope, refused := brokers.Refusal(result.Err)
		if !refused && result.Err != nil {
			scope = "-"
		}
		n[scope]++
	}
	return n
}

// Code 2 is what servers before 2.4 say of each message without a key of a compacted topic, and what a leader says of
// all batches where its memory or its network damages them: it does not say whose it is.
func TestCorruptMessagesOfAll(t *testing.T) {
	t.Parallel()
	c := startCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "ill"))
	var ill atomic.Bool
	ill.Store(true)
	c.answer(kerr.CorruptMessage, &ill)
	b := open(t, c.seeds())
	msgs := perKey("ill", 20)
	assert.Equal(t, map[brokers.Scope]int{brokers.ScopePartition: 20}, refusedBy(b.Publish(t.Context(), msgs)))
	ill.Store(false)
	assert.Equal(t, map[brokers.Scope]int{"": 20}, refusedBy(b.Publish(t.Context(), msgs)))
}

// One that is refused with code 2 while others of its partition pass is known by that; what other partitions take
// says nothing of it.
func TestCorruptMessageOfSome(t *testing.T) {
	t.Parallel()
	c := startCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "there"))
	c.fake.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.fake.KeepControl()
		refused := false
		answer := answering(request, func(records []byte) *kerr.Error {
			if bytes.Contains(records, []byte("damaged")) {
				refused = true
				return kerr.CorruptMessage
			}
			return kerr.NotLeaderForPartition // the others come again
		})
		return answer, nil, refused
	})
	b := open(t, c.seeds(), kafka.WithoutCompression(kafka.Settings{}))
	msgs := perKey("there", 24)
	places := b.Publish(t.Context(), msgs)
	msgs[3].Payload = []byte("damaged")
	results := b.Publish(t.Context(), append(msgs, numbered("there", "key-3", 24)))
	assert.Equal(t, map[brokers.Scope]int{"": 23, brokers.ScopeDestination: 1, "-": 1}, refusedBy(results))
	require.ErrorIs(t, results[3].Err, kerr.CorruptMessage)
	require.ErrorIs(t, results[24].Err, brokers.ErrNotSent)

	another := msgs[3]
	another.ID = uuid.NewString() // nothing is known of it
	elsewhere := []brokers.Message{another}
	for i := range msgs {
		if strings.HasPrefix(places[i].BrokerMessageID, "there:0:") != strings.HasPrefix(places[3].BrokerMessageID, "there:0:") {
			elsewhere = append(elsewhere, msgs[i])
		}
	}
	assert.Equal(t, map[brokers.Scope]int{"": len(elsewhere) - 1, brokers.ScopePartition: 1}, refusedBy(b.Publish(t.Context(), elsewhere)))
	assert.Equal(t, map[brokers.Scope]int{brokers.ScopeDestination: 1}, refusedBy(b.Publish(t.Context(), msgs[3:4])), "its partition took others since it refused this one")
}
