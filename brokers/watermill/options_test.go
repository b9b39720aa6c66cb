package watermill_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/watermill"
)

// TestMessage: what consumers of Watermill see; names of metadata are a contract with them.
func TestMessage(t *testing.T) {
	t.Parallel()
	full := brokers.Message{
		ID: "id-1", Destination: "ordering::order", Type: "Ordering.OrderPlaced.v1", OrderingKey: "ordering::order-42", Priority: 50,
		ContentType: "application/cloudevents+json", Payload: []byte(`{"data": 1}`), CorrelationID: "checkout-9",
		Attributes: []brokers.Attribute{{Name: brokers.FieldTraceParent, Value: "00-1"}, {Name: "ordering_key", Value: "an attribute"}},
	}
	bare := brokers.Message{ID: "id-2", Destination: "ordering", Type: "T.v1", ContentType: brokers.DefaultContentType}
	for name, c := range map[string]struct {
		opts []watermill.Option
		key  message.Metadata
	}{
		"default":      {nil, message.Metadata{"ordering_key": "ordering::order-42"}},
		"another name": {[]watermill.Option{watermill.WithOrderingKeyMetadata("partition")}, message.Metadata{"partition": "ordering::order-42", "ordering_key": "an attribute"}},
		"no key":       {[]watermill.Option{watermill.WithOrderingKeyMetadata("")}, message.Metadata{"ordering_key": "an attribute"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &publisher{}
			b := open(t, p, append(c.opts, watermill.WithConcurrency(1))...)
			require.Equal(t, map[string]int{"": 2}, verdicts(b.Publish(t.Context(), []brokers.Message{full, bare})))
			want := message.Metadata{
				"id": "id-1", "type": "Ordering.OrderPlaced.v1", "correlation_id": "checkout-9", "content-type": "application/cloudevents+json",
				"traceparent": "00-1",
			}
			maps.Copy(want, c.key)
			assert.Equal(t, want, p.sent[0].Metadata)
			assert.Equal(t, message.Metadata{"id": "id-2", "type": "T.v1"}, p.sent[1].Metadata)
			assert.Equal(t, "id-1", p.sent[0].UUID)
			assert.JSONEq(t, `{"data": 1}`, string(p.sent[0].Payload))
			assert.Equal(t, []string{"ordering::order", "ordering"}, p.topics)
		})
	}
}

func TestTopic(t *testing.T) {
	t.Parallel()
	p := &publisher{}
	b := open(t, p, watermill.WithTopic(nil), watermill.WithTopic(func(m brokers.Message) string {
		if m.Destination == "unmapped" {
			return ""
		}
		return strings.ReplaceAll(m.Destination, "::", ".") + "." + m.Type
	}))
	results := b.Publish(t.Context(), []brokers.Message{
		numbered("ordering::order", "a", 1), numbered("unmapped", "a", 2), numbered("ordering::order", "a", 3), numbered("", "b", 4),
	})
	assert.Equal(t, []string{"ordering.order.T.v1"}, p.topics)
	require.NoError(t, results[0].Err)
	assert.Equal(t, "unavailable destination", class(results[1].Err), "the configuration can cure it")
	assert.ErrorContains(t, results[1].Err, "WithTopic")
	assert.Equal(t, "not_sent", class(results[2].Err))
	assert.EqualError(t, results[3].Err, "permanent: watermill: publish: the destination is empty")
}

func TestCapabilities(t *testing.T) {
	t.Parallel()
	assert.Equal(t, brokers.Capabilities{Ordering: true, KeysInTurn: true}, open(t, &publisher{}).Capabilities())
	b := open(t, &publisher{}, watermill.WithOrdering(false), watermill.WithMaxMessageBytes(3))
	assert.Equal(t, brokers.Capabilities{MaxMessageBytes: 3}, b.Capabilities())
	m := numbered("orders", "a", 1)
	m.Payload = []byte("four")
	assert.EqualError(t, b.Publish(t.Context(), []brokers.Message{m})[0].Err,
		`permanent: watermill: publish to "orders": the payload has 4 bytes, at most 3 are allowed (WithMaxMessageBytes)`)
	assert.Zero(t, watermill.New(&publisher{}, watermill.WithMaxMessageBytes(-1)).Capabilities().MaxMessageBytes)
}

func TestPing(t *testing.T) {
	t.Parallel()
	require.NoError(t, open(t, &publisher{}, watermill.WithPing(nil)).Ping(t.Context()), "nobody is asked")

	var answer error
	b := open(t, &publisher{}, watermill.WithPing(func(context.Context) error { return answer }))
	require.NoError(t, b.Ping(t.Context()))
	answer = errors.New("no route")
	err := b.Ping(t.Context())
	assert.EqualError(t, err, "broker unavailable: watermill: ping: no route")
	require.ErrorIs(t, err, answer)
}
