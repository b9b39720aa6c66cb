package envelope_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/limits"
)

// TestBounds: an event whose texts are too long is refused in the request that raises it, and the
// error says which text, how long it is, how long it may be, and what to do; one byte less passes.
func TestBounds(t *testing.T) {
	t.Parallel()
	c := newCatalog(t)
	const prefix = "ordering::order-"
	aggregate := func(name string, id int) envelope.Source {
		return envelope.Source{Aggregate: name, ID: strings.Repeat("x", id)}
	}
	with := func(set func(*envelope.Context, string)) func(n int) (envelope.Event, envelope.Source, envelope.Context) {
		return func(n int) (envelope.Event, envelope.Source, envelope.Context) {
			var cx envelope.Context
			set(&cx, strings.Repeat("x", n))
			return placed(), order42, cx
		}
	}
	for name, test := range map[string]struct {
		most   int
		event  func(n int) (envelope.Event, envelope.Source, envelope.Context)
		says   string
		remedy string
	}{
		"ordering key": {
			envelope.MaxOrderingKeyBytes, func(n int) (envelope.Event, envelope.Source, envelope.Context) {
				return placed(envelope.Key(func(OrderPlaced) string { return strings.Repeat("x", n) })), order42, envelope.Context{}
			}, "the ordering key ", "an id, or the hash of a longer text",
		},
		"stream": {
			limits.MaxStreamBytes, func(n int) (envelope.Event, envelope.Source, envelope.Context) {
				return placed(envelope.Unordered()), aggregate("Order", n-len(prefix)), envelope.Context{}
			}, "its stream ", "give the aggregate a shorter id",
		},
		"aggregate": {
			limits.MaxAggregateBytes, func(n int) (envelope.Event, envelope.Source, envelope.Context) {
				// A name that is much shorter in the stream.
				return placed(), aggregate("Order"+strings.Repeat("-", n-len("Order")), 1), envelope.Context{}
			}, "the aggregate name ", "name the aggregate after its Go type",
		},
		"correlation id":  {limits.MaxContextBytes, with(func(cx *envelope.Context, s string) { cx.CorrelationID = s }), "the correlation id of the context: ", "where they enter"},
		"causation id":    {limits.MaxContextBytes, with(func(cx *envelope.Context, s string) { cx.CausationID = s }), "the causation id of the context: ", "where they enter"},
		"tenant id":       {limits.MaxContextBytes, with(func(cx *envelope.Context, s string) { cx.TenantID = s }), "the tenant id of the context: ", "where they enter"},
		"actor":           {limits.MaxContextBytes, with(func(cx *envelope.Context, s string) { cx.Actor = s }), "the actor of the context: ", "where they enter"},
		"idempotency key": {limits.MaxContextBytes, with(func(cx *envelope.Context, s string) { cx.IdempotencyKey = s }), "the idempotency key of the context: ", "where they enter"},
		"origin stream":   {limits.MaxStreamBytes, with(func(cx *envelope.Context, s string) { cx.OriginStream = s }), "the origin stream of the context: ", "where they enter"},
		"extension tenant_id": {
			limits.MaxContextBytes, with(func(cx *envelope.Context, s string) { cx.SetExtension(envelope.ExtensionTenantID, s) }),
			`extension "tenant_id": the tenant id `, "WithTenantID",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ev, src, cx := test.event(test.most)
			_, err := c.Seal(ev, src, cx)
			require.NoError(t, err)
			for _, n := range []int{test.most + 1, 3_000, 1 << 20} {
				ev, src, cx := test.event(n)
				if len(src.ID) > limits.MaxAggregateBytes {
					continue // then it is the id that is refused
				}
				_, err := c.Seal(ev, src, cx)
				var encode *envelope.EncodeError
				require.ErrorAs(t, err, &encode)
				require.ErrorContains(t, err, "envelope: encode Ordering.OrderPlaced.v1: "+test.says)
				require.Regexp(t, `\.\.\. has \d+ bytes, the most is 512`, err.Error())
				assert.Contains(t, encode.Remedy, test.remedy)
				assert.Less(t, len(err.Error()), 350, "the text itself is not repeated")
			}
		})
	}
	_, err := c.Seal(placed(), aggregate("Order", 513), envelope.Context{})
	require.ErrorContains(t, err, "the id of its Order: ")
}

// TestCauseOfAnotherProducer: what another producer wrote into a message does not keep a consumer's
// own events from being raised, where nothing depends on it.
func TestCauseOfAnotherProducer(t *testing.T) {
	t.Parallel()
	c := newCatalog(t)
	for _, text := range []string{strings.Repeat("x", 513), "a\nb", "\x00"} {
		m := seal(t, c, placed(), order42, envelope.Context{})
		m.Metadata.Domain.CorrelationID, m.Metadata.Headers.Stream = text, text
		cx := envelope.FromContext(envelope.WithCause(t.Context(), m))
		assert.Equal(t, fixedID.String(), cx.CorrelationID)
		assert.Empty(t, cx.OriginStream)
		_, err := c.Seal(placed(), order42, cx)
		require.NoError(t, err)

		m.Metadata.Extensions = envelope.Extensions{envelope.ExtensionTenantID: text}
		_, err = c.Seal(placed(), order42, envelope.FromContext(envelope.WithCause(t.Context(), m)))
		require.ErrorContains(t, err, "the tenant id of the context", "nothing is done for nobody")
	}
}
