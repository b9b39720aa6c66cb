package envelope_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
)

// Events that have no JSON, each in its own way.
type (
	withChannel struct{ C chan int }
	withFloat   struct{ F float64 }
	withRaw     struct{ R json.RawMessage }
	failing     struct{}
	panicking   struct{}
	linked      struct{ Next *linked }
	badBytes    struct{}
)

func (failing) MarshalJSON() ([]byte, error)   { return nil, errors.New("out of ink") }
func (panicking) MarshalJSON() ([]byte, error) { panic("boom") }
func (badBytes) MarshalJSON() ([]byte, error)  { return []byte("\"\xff\""), nil }

func TestSealErrors(t *testing.T) {
	t.Parallel()
	c := newCatalog(t)
	envelope.Register[withChannel](c)
	envelope.Register[withFloat](c)
	envelope.Register[withRaw](c)
	envelope.Register[failing](c)
	envelope.Register[panicking](c)
	envelope.Register[linked](c)
	envelope.Register[badBytes](c)
	require.NoError(t, c.Err())
	cycle := linked{}
	cycle.Next = &cycle
	of := func(aggregate, id string) envelope.Source { return envelope.Source{Aggregate: aggregate, ID: id} }
	const (
		noJSON  = "JSON has no NaN, no infinity and no cycles: check the value before raising the event"
		invalid = "make the event's JSON valid: UTF-8, proper numbers, no unpaired surrogates, no duplicate keys"
		rename  = "name the aggregate after its Go type"
		build   = "build events with envelope.NewEvent"
		move    = "it describes the event type, not one event: move it to envelope.Register[envelope_test.OrderPlaced]"
	)
	for _, test := range []struct {
		event  envelope.Event
		source envelope.Source
		cx     envelope.Context
		want   string // after "envelope: encode Ordering." or "envelope: raise event envelope_test."
	}{
		{event: fixedEvent(withChannel{}), want: "withChannel.v1: json: unsupported type: chan int: give the field of that type the tag `json:\"-\"`, or implement json.Marshaler"},
		{event: fixedEvent(withFloat{math.NaN()}), want: "withFloat.v1: json: unsupported value: NaN: " + noJSON},
		{event: fixedEvent(cycle), want: "linked.v1: json: unsupported value: encountered a cycle via *envelope_test.linked: " + noJSON},
		{event: fixedEvent(failing{}), want: "failing.v1: json: error calling MarshalJSON for type envelope_test.failing: out of ink: fix the MarshalJSON or MarshalText method of envelope_test.failing"},
		{event: fixedEvent(panicking{}), want: "panicking.v1: panic: boom: fix the MarshalJSON or MarshalText method that panics"},
		{event: fixedEvent(badBytes{}), want: "badBytes.v1: the JSON is not valid UTF-8: " + invalid},
		{event: fixedEvent(withRaw{json.RawMessage(`{"a":1,"a":2}`)}), want: `withRaw.v1: canonical JSON: Duplicate key: "a": ` + invalid},
		{event: fixedEvent(withRaw{json.RawMessage(`1e999`)}), want: `withRaw.v1: canonical JSON: Number out of range: "1e999": ` + invalid},
		{event: envelope.Event{Time: fixedTime, Data: OrderPlaced{}}, want: "OrderPlaced.v1: the event has id 00000000-0000-0000-0000-000000000000 and time 2026-03-01T12:30:45Z: " + build},
		{event: placed(), source: of("Order", ""), want: "OrderPlaced.v1: the Order that raised it has no id: save the aggregate, or assign its key, before the transaction commits"},
		{event: placed(), source: of("", "42"), want: "OrderPlaced.v1: the source has an id but no aggregate: set Source.Aggregate, or leave both empty"},
		{event: placed(), source: of("::-", "42"), want: `OrderPlaced.v1: the aggregate name "::-" has no letters or digits: ` + rename},
		{event: placed(), source: of("Or\nder", "42"), want: `OrderPlaced.v1: the aggregate name "Or\nder" contains a control character: ` + rename},
		{event: placed(), source: of("Order", "\xff\x00"), want: `OrderPlaced.v1: the id of its Order: "\xff\x00" is not valid UTF-8: give the key as text, e.g. a UUID in its 36-character form`},
		{
			event: placed(), source: order42, cx: envelope.Context{CorrelationID: "a\r\nX-Admin: 1"},
			want: `OrderPlaced.v1: the correlation id of the context: "a\r\nX-Admin: 1" contains a control character: check such values where they enter the application`,
		},
		{
			event: placed(), source: order42, cx: envelope.Context{Priority: ptr(envelope.PriorityLevel(-101))},
			want: "OrderPlaced.v1: the priority -101 of the context is out of range: use a level from PriorityBulk (-100) to PriorityCritical (100)",
		},
		{
			event: placed(), source: order42, cx: envelope.Context{Extensions: map[string]any{"f": func() {}}},
			want: `OrderPlaced.v1: extension "f": json: unsupported type: func(): use a value that encoding/json encodes, a string at best`,
		},
		{
			event: placed(), source: order42, cx: envelope.Context{Extensions: map[string]any{"tenant_id": 7}},
			want: `OrderPlaced.v1: extension "tenant_id": the tenant id is not a string: use envelope.WithTenantID`,
		},
		{
			event: placed(envelope.Key(func(OrderPlaced) string { return "\xff" })), source: order42,
			want: `OrderPlaced.v1: the ordering key "\xff" is not valid UTF-8: return readable text from the function given to envelope.Key: an id, or the hash of a longer text`,
		},
		{
			event: placed(envelope.NotBefore(func(OrderPlaced) time.Time { return time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) })), source: order42,
			want: "OrderPlaced.v1: NotBefore or TTL leads to the year 10000: return a time in the years 1 to 9999, or the zero time for at once",
		},
		{event: placed(envelope.Published()), want: "OrderPlaced: option Published(): " + move},
		{
			event: placed(envelope.Name("A"), envelope.Version(2)),
			want:  "OrderPlaced: option Name(\"A\"): " + move + "\nenvelope: raise event envelope_test.OrderPlaced: option Version(2): " + move,
		},
		{
			event: placed(envelope.Key(func(StockReserved) string { return "" })),
			want:  "OrderPlaced: option Key: its function takes envelope_test.StockReserved: write envelope.Key(func(e envelope_test.OrderPlaced) string { ... })",
		},
		{
			event: fixedEvent(OrderAudited{}, envelope.To("partner")),
			want:  `OrderAudited: option To("partner"): the event type is not marked as published: add envelope.Published() to its registration`,
		},
	} {
		raised := envelope.NewEvent(test.event.Data, test.event.Options...)
		raised.ID, raised.Time = test.event.ID, test.event.Time
		for _, event := range []envelope.Event{raised, test.event} {
			_, err := c.Seal(event, test.source, test.cx)
			var encode *envelope.EncodeError
			var option *envelope.OptionError
			if errors.As(err, &encode) {
				require.EqualError(t, err, "envelope: encode Ordering."+test.want)
				require.NotEmpty(t, encode.Remedy)
				require.ErrorIs(t, err, encode.Cause)
				continue
			}
			require.ErrorAs(t, err, &option)
			require.EqualError(t, err, "envelope: raise event envelope_test."+test.want)
			require.ErrorIs(t, err, option.Cause)
		}
	}
}
