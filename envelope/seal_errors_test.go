package envelope_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/uuid"
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

	none, empty := envelope.Source{}, envelope.Context{}
	for name, test := range map[string]struct {
		event  envelope.Event
		source envelope.Source
		cx     envelope.Context
		want   string
	}{
		"channel": {
			fixedEvent(withChannel{}), none, empty,
			"envelope: encode Ordering.withChannel.v1: json: unsupported type: chan int: give the field of that type the tag `json:\"-\"`, or implement json.Marshaler",
		},
		"NaN": {
			fixedEvent(withFloat{math.NaN()}), none, empty,
			"envelope: encode Ordering.withFloat.v1: json: unsupported value: NaN: JSON has no NaN, no infinity and no cycles: check the value before raising the event",
		},
		"cycle": {
			fixedEvent(cycle), none, empty,
			"envelope: encode Ordering.linked.v1: json: unsupported value: encountered a cycle via *envelope_test.linked: JSON has no NaN, no infinity and no cycles: check the value before raising the event",
		},
		"MarshalJSON fails": {
			fixedEvent(failing{}), none, empty,
			"envelope: encode Ordering.failing.v1: json: error calling MarshalJSON for type envelope_test.failing: out of ink: fix the MarshalJSON or MarshalText method of envelope_test.failing",
		},
		"MarshalJSON panics": {
			fixedEvent(panicking{}), none, empty,
			"envelope: encode Ordering.panicking.v1: panic: boom: fix the MarshalJSON or MarshalText method that panics",
		},
		"not UTF-8": {
			fixedEvent(badBytes{}), none, empty,
			"envelope: encode Ordering.badBytes.v1: the JSON is not valid UTF-8: make the event's JSON valid: UTF-8, proper numbers, no unpaired surrogates, no duplicate keys",
		},
		"duplicate keys": {
			fixedEvent(withRaw{json.RawMessage(`{"a":1,"a":2}`)}), none, empty,
			`envelope: encode Ordering.withRaw.v1: canonical JSON: Duplicate key: "a": make the event's JSON valid: UTF-8, proper numbers, no unpaired surrogates, no duplicate keys`,
		},
		"number out of range": {
			fixedEvent(withRaw{json.RawMessage(`1e999`)}), none, empty,
			`envelope: encode Ordering.withRaw.v1: canonical JSON: Number out of range: "1e999": make the event's JSON valid: UTF-8, proper numbers, no unpaired surrogates, no duplicate keys`,
		},
		"no id": {
			envelope.Event{Time: fixedTime, Data: OrderPlaced{}},
			none, empty,
			"envelope: encode Ordering.OrderPlaced.v1: the event has id 00000000-0000-0000-0000-000000000000 and time 2026-03-01T12:30:45Z: build events with envelope.NewEvent",
		},
		"no time": {
			envelope.Event{ID: uuid.Max, Data: OrderPlaced{}},
			none, empty,
			"envelope: encode Ordering.OrderPlaced.v1: the event has id ffffffff-ffff-ffff-ffff-ffffffffffff and time 0001-01-01T00:00:00Z: build events with envelope.NewEvent",
		},
		"aggregate without an id": {
			placed(),
			envelope.Source{Aggregate: "Order"},
			empty,
			"envelope: encode Ordering.OrderPlaced.v1: the Order that raised it has no id: save the aggregate, or assign its key, before the transaction commits",
		},
		"id without an aggregate": {
			placed(),
			envelope.Source{ID: "42"},
			empty,
			"envelope: encode Ordering.OrderPlaced.v1: the source has an id but no aggregate: set Source.Aggregate, or leave both empty",
		},
		"aggregate of signs": {
			placed(),
			envelope.Source{Aggregate: "::-", ID: "42"},
			empty,
			`envelope: encode Ordering.OrderPlaced.v1: the aggregate name "::-" has no letters or digits: name the aggregate after its Go type`,
		},
		"aggregate with a control character": {
			placed(),
			envelope.Source{Aggregate: "Or\nder", ID: "42"},
			empty,
			`envelope: encode Ordering.OrderPlaced.v1: the aggregate name "Or\nder" contains a control character: name the aggregate after its Go type`,
		},
		"binary id": {
			placed(),
			envelope.Source{Aggregate: "Order", ID: "\xff\x00"},
			empty,
			`envelope: encode Ordering.OrderPlaced.v1: the id of its Order: "\xff\x00" is not valid UTF-8: give the key as text, e.g. a UUID in its 36-character form`,
		},
		"line break in the context": {
			placed(), order42,
			envelope.Context{CorrelationID: "a\r\nX-Admin: 1"},
			`envelope: encode Ordering.OrderPlaced.v1: the correlation id of the context: "a\r\nX-Admin: 1" contains a control character: check such values where they enter the application`,
		},
		"priority of the context": {
			placed(), order42,
			envelope.Context{Priority: ptr(envelope.PriorityLevel(-101))},
			"envelope: encode Ordering.OrderPlaced.v1: the priority -101 of the context is out of range: use a level from PriorityBulk (-100) to PriorityCritical (100)",
		},
		"extension of the context": {
			placed(), order42,
			envelope.Context{Extensions: map[string]any{"f": func() {}}},
			`envelope: encode Ordering.OrderPlaced.v1: extension "f": json: unsupported type: func(): use a value that encoding/json encodes, a string at best`,
		},
		"nameless extension of the context": {
			placed(), order42,
			envelope.Context{Extensions: map[string]any{"": 1}},
			`envelope: encode Ordering.OrderPlaced.v1: extension "": the name of an extension is empty: use a name such as "region"`,
		},
		"tenant that is no string": {
			placed(), order42,
			envelope.Context{Extensions: map[string]any{"tenant_id": 7}},
			`envelope: encode Ordering.OrderPlaced.v1: extension "tenant_id": the tenant id is not a string: use envelope.WithTenantID`,
		},
		"Key panics": {
			placed(envelope.Key(func(OrderPlaced) string { panic(errors.New("no key")) })), order42, empty,
			"envelope: encode Ordering.OrderPlaced.v1: the function of option Key: panic: no key: fix the function given to envelope.Key",
		},
		"Key returns bytes": {
			placed(envelope.Key(func(OrderPlaced) string { return "\xff" })), order42, empty,
			`envelope: encode Ordering.OrderPlaced.v1: the ordering key "\xff" is not valid UTF-8: return readable text from the function given to envelope.Key: an id, or the hash of a longer text`,
		},
		"NotBefore panics": {
			placed(envelope.NotBefore(func(OrderPlaced) time.Time { panic("late") })), order42, empty,
			"envelope: encode Ordering.OrderPlaced.v1: the function of option NotBefore: panic: late: fix the function given to envelope.NotBefore",
		},
		"NotBefore in the year 10000": {
			placed(envelope.NotBefore(func(OrderPlaced) time.Time { return time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) })), order42, empty,
			"envelope: encode Ordering.OrderPlaced.v1: NotBefore or TTL leads to the year 10000: return a time in the years 1 to 9999, or the zero time for at once",
		},
		"Published at raise": {
			placed(envelope.Published()), order42, empty,
			"envelope: raise event envelope_test.OrderPlaced: option Published(): it describes the event type, not one event: move it to envelope.Register[envelope_test.OrderPlaced]",
		},
		"Name and Version at raise": {
			placed(envelope.Name("A"), envelope.Version(2)), order42, empty,
			"envelope: raise event envelope_test.OrderPlaced: option Name(\"A\"): it describes the event type, not one event: move it to envelope.Register[envelope_test.OrderPlaced]\n" +
				"envelope: raise event envelope_test.OrderPlaced: option Version(2): it describes the event type, not one event: move it to envelope.Register[envelope_test.OrderPlaced]",
		},
		"key of another event at raise": {
			placed(envelope.Key(func(StockReserved) string { return "" })), order42, empty,
			"envelope: raise event envelope_test.OrderPlaced: option Key: its function takes envelope_test.StockReserved: write envelope.Key(func(e envelope_test.OrderPlaced) string { ... })",
		},
		"To of an internal event": {
			fixedEvent(OrderAudited{}, envelope.To("partner")), order42, empty,
			`envelope: raise event envelope_test.OrderAudited: option To("partner"): the event type is not marked as published: add envelope.Published() to its registration`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raised := envelope.NewEvent(test.event.Data, test.event.Options...)
			raised.ID, raised.Time = test.event.ID, test.event.Time
			_, err := c.Seal(raised, test.source, test.cx)
			require.EqualError(t, err, test.want, "the same, although it was noticed when the event was raised")
			m, err := c.Seal(test.event, test.source, test.cx)
			require.Nil(t, m)
			require.EqualError(t, err, test.want)
			var encode *envelope.EncodeError
			var option *envelope.OptionError
			require.NotEqual(t, errors.As(err, &encode), errors.As(err, &option), "one of the two types")
			if encode != nil {
				require.NotEmpty(t, encode.Remedy)
				require.ErrorIs(t, err, encode.Cause)
			} else {
				require.ErrorIs(t, err, option.Cause)
			}
		})
	}
}

// An error that the user's code panics with stays reachable.
func TestPanicWithError(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	_, err := newCatalog(t).Seal(placed(envelope.Key(func(OrderPlaced) string { panic(boom) })), order42, envelope.Context{})
	require.ErrorIs(t, err, boom)
}
