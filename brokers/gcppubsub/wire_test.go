package gcppubsub_test

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
)

// wire sees what arrives at a server. It is a [stats.Handler].
type wire struct {
	mu       sync.Mutex
	requests []seen
}

type seen struct {
	compression  string
	length, wire int
	header       metadata.MD
}

type tagged struct{}

func (w *wire) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (w *wire) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, tagged{}, &seen{})
}

func (*wire) HandleConn(context.Context, stats.ConnStats) {}

func (w *wire) HandleRPC(ctx context.Context, event stats.RPCStats) {
	request := ctx.Value(tagged{}).(*seen)
	switch event := event.(type) {
	case *stats.InHeader:
		request.compression, request.header = event.Compression, event.Header
	case *stats.InPayload:
		request.length, request.wire = event.Length, event.CompressedLength
		w.mu.Lock()
		defer w.mu.Unlock()
		w.requests = append(w.requests, *request)
	}
}

// take returns what has arrived since the last take.
func (w *wire) take() []seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.requests
	w.requests = nil
	return taken
}

func TestCompression(t *testing.T) {
	t.Parallel()
	w := &wire{}
	s := newServer(t, grpc.StatsHandler(w))
	s.createTopic(t, "orders")
	small, large := message("orders", "small", 1), message("orders", "large", 2)
	large.Payload = bytes.Repeat([]byte("the same again "), 1000)
	for name, c := range map[string]struct {
		settings     gcppubsub.Settings
		small, large string
	}{
		"default":    {gcppubsub.Settings{}, "", ""},
		"from 1000":  {gcppubsub.Settings{Compression: 1000}, "", "gzip"},
		"everything": {gcppubsub.Settings{Compression: 1}, "gzip", "gzip"},
		"not so":     {gcppubsub.Settings{Compression: -1}, "", ""},
	} {
		b := s.open(t, c.settings)
		s.fake.ClearMessages()
		for _, sent := range []struct {
			message brokers.Message
			want    string
		}{{small, c.small}, {large, c.large}} {
			require.Equal(t, map[string]int{"": 1}, verdicts(b.Publish(t.Context(), []brokers.Message{sent.message})))
			requests := w.take()
			require.Len(t, requests, 1)
			assert.Equal(t, sent.want, requests[0].compression, "%s: %s", name, sent.message.OrderingKey)
			assert.Greater(t, requests[0].length, len(sent.message.Payload))
			if len(sent.message.Payload) > 1000 {
				assert.Equal(t, sent.want == "gzip", requests[0].wire < requests[0].length/10, "%s: %+v", name, requests[0])
			}
		}
		assert.Equal(t, []brokers.Message{small, large}, s.received(t, "orders"), name)
	}
}

// What goes over the wire: the flat fields, those of the configuration, the ordering key; no
// priority.
func TestAttributes(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.createTopic(t, "ordering.order")
	m := brokers.Message{
		ID: "0198c5f0-0000-7000-8000-000000000001", Destination: "ordering::order", Type: "Ordering.OrderPlaced.v1",
		OrderingKey: "ordering::order-1", Priority: -100, ContentType: "application/cloudevents+json", Payload: []byte(`{"data":{}}`),
		CorrelationID: "c-1", Attributes: []brokers.Attribute{
			{Name: brokers.FieldTraceParent, Value: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
			{Name: brokers.FieldTraceState, Value: "vendor=value"},
			{Name: "environment", Value: "production"},
		},
	}
	plain := m
	plain.CorrelationID, plain.ContentType, plain.Attributes = "", brokers.DefaultContentType, nil
	require.Equal(t, map[string]int{"": 2}, verdicts(s.open(t).Publish(t.Context(), []brokers.Message{m, plain})))
	got := s.fake.Messages()
	require.Len(t, got, 2)
	assert.Equal(t, fullName("ordering.order"), got[0].Topic)
	assert.Equal(t, "ordering::order-1", got[0].OrderingKey)
	assert.JSONEq(t, `{"data":{}}`, string(got[0].Data))
	assert.Equal(t, map[string]string{
		"id": m.ID, "type": m.Type, "correlation_id": "c-1", "content-type": "application/cloudevents+json", "Content-Type": "application/cloudevents+json",
		"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "vendor=value",
		"environment": "production",
	}, got[0].Attributes)
	assert.Equal(t, map[string]string{"id": m.ID, "type": m.Type}, got[1].Attributes)
}

// Requests stay below ten megabytes as the service counts them, with topic, keys and attributes;
// and are as full as may be.
func TestRequestBytes(t *testing.T) {
	t.Parallel()
	w := &wire{}
	s := newServer(t, grpc.StatsHandler(w))
	s.createTopic(t, "orders")
	const limit = 10_000_000
	b := s.open(t, gcppubsub.Settings{BatchBytes: 1 << 30})
	msgs := many("orders", 40, 1)
	for i := range msgs {
		msgs[i].Payload = make([]byte, 1_000_000-300*(i%3))
		attributes(i % 5 * 20)(&msgs[i])
	}
	require.Equal(t, map[string]int{"": len(msgs)}, verdicts(b.Publish(t.Context(), msgs)))
	requests := w.take()
	require.Len(t, requests, 5)
	for _, request := range requests {
		assert.LessOrEqual(t, request.length, limit)
	}

	// The largest message there is fills its request to the last byte.
	fits := message("orders", "k", 1)
	fits.Payload = make([]byte, limit)
	result := b.Publish(t.Context(), []brokers.Message{fits})[0]
	require.Equal(t, "permanent", verdict(result))
	small := slices.Concat(fits.Payload[:9_999_000])
	fits.Payload = small
	require.Equal(t, map[string]int{"": 1}, verdicts(b.Publish(t.Context(), []brokers.Message{fits})))
	over := w.take()[0].length - len(small)
	fits.Payload = make([]byte, limit-over)
	require.Equal(t, map[string]int{"": 1}, verdicts(b.Publish(t.Context(), []brokers.Message{fits})))
	assert.Equal(t, limit, w.take()[0].length)
	fits.Payload = make([]byte, limit-over+1)
	result = b.Publish(t.Context(), []brokers.Message{fits})[0]
	require.Equal(t, "permanent", verdict(result))
	require.ErrorContains(t, result.Err, "has 10000001 bytes")
}
