package redisconsumer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	publisher "github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
)

// What brokers/redisstreams publishes arrives, in each form, with everything that it says about
// itself.
func TestFromPublisherToConsumer(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *testing.T, s *site) {
		streams := map[envelope.Format]string{}
		var names []string
		var msgs []brokers.Message
		sent := map[string]*envelope.Message{}
		for _, form := range []envelope.Format{envelope.FormatInternal, envelope.FormatNative, envelope.FormatCloudEvents} {
			streams[form] = s.stream + "-" + string(form)
			names = append(names, streams[form])
			for n := range 30 {
				m := sealed(t, fmt.Sprint(n%4), n)
				payload, err := map[envelope.Format]func() ([]byte, error){
					envelope.FormatInternal: m.MarshalInternal, envelope.FormatNative: func() ([]byte, error) { return m.MarshalExternal(envelope.Include{}) },
					envelope.FormatCloudEvents: func() ([]byte, error) { return m.MarshalCloudEvent(envelope.CloudEventOptions{}) },
				}[form]()
				require.NoError(t, err)
				id := m.Metadata.Headers.ID.String()
				sent[id] = m
				msgs = append(msgs, brokers.Message{
					Destination: streams[form], ID: id, Type: m.Metadata.Headers.Type, OrderingKey: m.Metadata.Headers.Stream, Payload: payload, CorrelationID: "c-7",
					Attributes: []brokers.Attribute{{Name: "tenant_id", Value: "acme"}},
				})
			}
		}
		b := publisher.New(s.Client, publisher.Settings{})
		for _, result := range b.Publish(t.Context(), msgs) {
			require.NoError(t, result.Err)
		}
		require.NoError(t, b.Close(t.Context()))

		var mu sync.Mutex
		order := map[string][]int{}
		seen := map[string]int{}
		handler := inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
			mu.Lock()
			defer mu.Unlock()
			original := sent[m.ID]
			if !assert.NotNil(t, original, m.ID) {
				return inbox.Handled, nil
			}
			seen[m.ID]++
			order[m.Source+m.OrderingKey] = append(order[m.Source+m.OrderingKey], number(m))
			assert.Equal(t, m.ID, m.Key.String())
			assert.Equal(t, "projection", m.Consumer)
			assert.Equal(t, streams[m.Format], m.Source)
			assert.Equal(t, original.Metadata.Headers.Type, m.Type)
			assert.Equal(t, original.Metadata.Headers.Stream, m.OrderingKey)
			assert.Equal(t, map[string]string{
				"id": m.ID, "type": m.Type, "ordering_key": m.OrderingKey, "correlation_id": "c-7", "tenant_id": "acme",
			}, m.Attributes)
			assert.False(t, m.Published.IsZero())
			return inbox.Handled, nil
		})
		c, err := redisconsumer.NewConsumer(s, group, names, handler, quick(redisconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Consumer: "projection"}}))
		require.NoError(t, err)
		r := launch(t, c)
		soon(t, "all handled", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(seen) == 90
		})
		r.stop(t)
		assert.Len(t, order, 12)
		for key, numbers := range order {
			assert.IsIncreasing(t, numbers, key)
		}
		all, err := r.Streams(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 3)
		assert.Equal(t, int64(90), r.Stats().Handled)
		for i, stats := range all {
			assert.Equal(t, names[i], stats.Stream)
			assert.Zero(t, stats.Pending+stats.Lag+stats.Members)
		}
	})
}
