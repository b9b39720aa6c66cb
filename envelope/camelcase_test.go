package envelope_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

type (
	// Booked has whatever can be in an event whose fields have no names in JSON.
	Booked struct {
		booked

		OrderID  string `fanout:"id"`
		ByHand   string `json:"by_hand"`
		Line     bookedLine
		Lines    []bookedLine
		Pair     [2]*bookedLine
		ByID     map[string]bookedLine
		Notes    []byte `json:",omitempty"`
		Quantity int64  `json:",string"`
		Secret   string `json:"-"`
		At       bookedAt
		Raw      json.RawMessage `json:",omitempty"`
		Any      any             `json:",omitempty"`
	}
	booked struct {
		TraceID string
		Child   *Booked
	}
	bookedLine struct {
		SKU       string
		UnitPrice uint32
		HTTPLinks map[string]string
	}
	// bookedAt writes its JSON itself.
	bookedAt struct{ UnixTime int32 }

	PublicBooking struct {
		BookingID string
		Lines     []bookedLine
	}
)

func (a bookedAt) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]int32{"UnixTime": a.UnixTime})
}

func bookings(t testing.TB, opts ...envelope.CatalogOption) *envelope.Catalog {
	t.Helper()
	c := envelope.NewCatalog("sales", opts...)
	envelope.Register[Booked](c, envelope.Published(
		envelope.As(func(b Booked) PublicBooking { return PublicBooking{b.OrderID, b.Lines} }),
		envelope.As(func(b Booked) Booked { return b }, envelope.Version(2)),
	))
	require.NoError(t, c.Err())
	return c
}

// Fields without a name leave in camelCase, inside and outside, in every form and also where the event is encoded late.
func TestCamelCase(t *testing.T) {
	t.Parallel()
	c := bookings(t, envelope.WithCamelCase())
	assert.True(t, c.CamelCase())
	assert.False(t, newCatalog(t).CamelCase())
	line := bookedLine{"s", 5, map[string]string{"ID": "x"}}
	data := Booked{
		booked{"t", nil},
		"", "h", line,
		[]bookedLine{line},
		[2]*bookedLine{&line, nil},
		map[string]bookedLine{"OrderID": line},
		[]byte("a"), 7, "hidden",
		bookedAt{1},
		json.RawMessage(`{"OrderID":1.0}`), line,
	}
	const inner = `{"sku":"s","unitPrice":5,"httpLinks":{"ID":"x"}}`
	const want = `{"traceId":"t","child":null,"orderId":"7","by_hand":"h","line":` + inner + `,"lines":[` + inner + `],"pair":[` + inner + `,null],"byId":{"OrderID":` + inner +
		`},"notes":"YQ==","quantity":"7","at":{"UnixTime":1},"raw":{"OrderID":1.0},"any":{"SKU":"s","UnitPrice":5,"HTTPLinks":{"ID":"x"}}}`
	identified := data
	identified.OrderID = "7"
	source := envelope.Source{Aggregate: "Sale", ID: "7"}
	for _, event := range []envelope.Event{envelope.NewEvent(data), envelope.NewEvent(identified), fixedEvent(data), fixedEvent(identified)} {
		for range 2 { // a transaction is tried again
			m := seal(t, c, event, source, envelope.Context{})
			assert.Equal(t, []string{want}, []string{string(m.Data)}, "in this order")
			_, _, outside := leaving(t, m, "partner")
			assert.Equal(t, []string{`{"bookingId":"7","lines":[` + inner + `]}`, want}, outside)
			b, err := m.MarshalInternal()
			require.NoError(t, err)
			read, err := envelope.DecodeInternal(b)
			require.NoError(t, err)
			assert.Equal(t, m.Data, read.Data)
		}
	}
}

// A consumer that knows no catalog reads the same out of either form, and one with a catalog as well.
func TestCamelCaseIsDecodedAsBefore(t *testing.T) {
	t.Parallel()
	plain, camel := bookings(t), bookings(t, envelope.WithCamelCase())
	lines := rapid.Make[bookedLine]()
	values := rapid.Custom(func(t *rapid.T) Booked {
		b := Booked{
			booked{rapid.String().Draw(t, "trace"), nil},
			"7", rapid.String().Draw(t, "by hand"), lines.Draw(t, "line"), rapid.SliceOfN(lines, 0, 2).Draw(t, "lines"),
			[2]*bookedLine{rapid.Ptr(lines, true).Draw(t, "pair"), nil},
			rapid.MapOfN(rapid.String(), lines, 0, 2).Draw(t, "by id"), nil, rapid.Int64().Draw(t, "quantity"), "",
			bookedAt{rapid.Int32().Draw(t, "at")},
			nil, nil,
		}
		if rapid.Bool().Draw(t, "child") {
			child := b
			b.Child = &child
		}
		return b
	})
	rapid.Check(t, func(t *rapid.T) {
		event := fixedEvent(values.Draw(t, "event"))
		read := func(c *envelope.Catalog) (all []any) {
			m, err := c.Seal(event, envelope.Source{}, envelope.Context{})
			require.NoError(t, err)
			for _, one := range append([]*envelope.Message{m}, m.AppendExternal(nil, "b")...) {
				booking, err := envelope.DataAs[Booked](one.Data)
				require.NoError(t, err)
				public, err := envelope.DataAs[PublicBooking](one.Data)
				require.NoError(t, err)
				all = append(all, booking, public)
			}
			known, err := c.Unmarshal(m.Metadata.Headers.Type, m.Data)
			require.NoError(t, err)
			return append(all, known)
		}
		require.Equal(t, read(plain), read(camel))
	})
}

// Two fields that are one to a decoder are refused, of the event and of what partners get.
func TestCamelCaseRefuses(t *testing.T) {
	t.Parallel()
	type twice struct{ ID, Id string } //nolint:revive // the name is the point
	type within struct{ List []twice }
	for want, register := range map[string]func(*envelope.Catalog){
		`envelope: register event envelope_test.within: ID and Id of envelope_test.twice would have one name in camelCase, "id", if case is ignored as decoders do: ` +
			"give one of them another name by a tag `json:\"...\"`": func(c *envelope.Catalog) { envelope.Register[within](c, envelope.Name("Within")) },
		`envelope: register event envelope_test.Sold: option As(func(envelope_test.Sold) envelope_test.twice): ID and Id of envelope_test.twice would have one name`: func(c *envelope.Catalog) {
			envelope.Register[Sold](c, envelope.Published(envelope.As(func(Sold) twice { return twice{} })))
		},
	} {
		c := envelope.NewCatalog("sales", envelope.WithCamelCase())
		register(c)
		require.ErrorContains(t, c.Err(), want)
		assert.Empty(t, c.Types())
		c = envelope.NewCatalog("sales", nil)
		register(c)
		require.NoError(t, c.Err())
	}
}

// Without the option, and with it where all fields have names, sealing allocates what it did; else one piece of memory more.
func TestCamelCaseAllocations(t *testing.T) { //nolint:paralleltest // it counts allocations
	testenv.NeedExactAllocations(t)
	type named struct {
		OrderID string    `json:"order_id"`
		At      time.Time `json:"at"`
	}
	type unnamed struct {
		OrderID string
		At      time.Time
	}
	cost := func(data any, opts ...envelope.CatalogOption) float64 {
		c := envelope.NewCatalog("sales", opts...)
		envelope.Register[named](c, envelope.Name("Named"))
		envelope.Register[unnamed](c, envelope.Name("Unnamed"))
		require.NoError(t, c.Err())
		event := envelope.NewEvent(data)
		return testenv.Allocations(100, func() { seal(t, c, event, envelope.Source{}, envelope.Context{}) })
	}
	costs := map[string]float64{
		"without": cost(unnamed{OrderID: "7"}), "named": cost(named{OrderID: "7"}), "with": cost(unnamed{OrderID: "7"}, envelope.WithCamelCase()), "with, named": cost(named{OrderID: "7"}, envelope.WithCamelCase()),
	}
	base := costs["without"]
	assert.Equal(t, map[string]float64{"without": base, "named": base, "with": base + 1, "with, named": base}, costs, slices.Sorted(maps.Keys(costs)))
}
