package envelope_test

import (
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
)

// Shipped is a type for each Case: all registrations of a type are asked about its events.
type Shipped[Case any] struct {
	OrderID string `fanout:"id"`
	shared
}

// shared is what a copy of an event shares with it.
type shared struct {
	Lines []string
	Notes map[string]string
	To    *Sold
	Any   any
}

// shipments registers a type, and returns its catalog and events of it: one with its id, one that gets it late, one that
// was built as a literal.
func shipments[Case any](t *testing.T, contract func(shared) ToPack, options ...envelope.Option) (*envelope.Catalog, []envelope.Event) {
	t.Helper()
	c := envelope.NewCatalog("sales")
	envelope.Register[Shipped[Case]](c, append(options, envelope.Name("Shipped"), envelope.Published(
		envelope.As(func(Shipped[Case]) int { return 1 }, envelope.Name("One")), envelope.As(func(s Shipped[Case]) ToPack { return contract(s.shared) }),
	))...)
	require.NoError(t, c.Err())
	data := func(id string) Shipped[Case] {
		return Shipped[Case]{id, shared{[]string{"b", "a"}, map[string]string{"a": "b"}, &Sold{OrderID: "8"}, []any{1}}}
	}
	return c, []envelope.Event{envelope.NewEvent(data("7")), envelope.NewEvent(data("")), fixedEvent(data(""))}
}

func sortLines(s shared) ToPack { slices.Sort(s.Lines); return ToPack{s.Lines} }

// The event is the application's: a contract that changes what its slices, maps and pointers hold, changes the aggregate,
// and where the id is filled in late, what stays inside, too. It fails the transaction.
func TestContractsThatChangeTheEvent(t *testing.T) {
	t.Parallel()
	refused := func(c *envelope.Catalog, events []envelope.Event, wants ...string) {
		t.Helper()
		for _, event := range events {
			_, err := c.Seal(event, envelope.Source{Aggregate: "Sale", ID: "7"}, envelope.Context{})
			var encode *envelope.EncodeError
			require.ErrorAs(t, err, &encode)
			for _, want := range wants {
				require.ErrorContains(t, err, want)
			}
			if event.ID != fixedID { // a literal was raised nowhere
				require.ErrorContains(t, err, ", raised at ")
				require.ErrorContains(t, err, "contract_guard_test.go:")
			}
		}
	}
	of := func(c *envelope.Catalog, events []envelope.Event) {
		t.Helper()
		refused(c, events, "encode Sales.Shipped.v1: as envelope_test.ToPack (Sales.Shipped.v1)",
			"its function has changed what the event's slices, maps or pointers hold", "copy what the function given to envelope.As changes")
	}
	of(shipments[[0]int](t, sortLines)) // the same each time
	of(shipments[[1]int](t, func(s shared) ToPack { s.Lines[0] += "!"; return ToPack{} }))
	of(shipments[[2]int](t, func(s shared) ToPack { s.Notes["a"] += "!"; return ToPack{} }))
	of(shipments[[3]int](t, func(s shared) ToPack { s.To.Cents++; return ToPack{} }))
	of(shipments[[4]int](t, func(s shared) ToPack { s.Any.([]any)[0] = math.NaN(); return ToPack{} }))

	none := func(shared) ToPack { return ToPack{} }
	c, events := shipments[[5]int](t, none, envelope.Key(func(s Shipped[[5]int]) string { return sortLines(s.shared).Lines[0] }))
	refused(c, events, "encode Sales.Shipped.v1: a function of its options",
		"has changed what the event's slices, maps or pointers hold", "copy what the functions given to Key, Header, Destination, OccurredAt and NotBefore change")

	c, events = shipments[[6]int](t, func(s shared) ToPack { s.Lines, s.To = slices.Clone(s.Lines), nil; return sortLines(s) })
	for _, event := range events {
		m := seal(t, c, event, envelope.Source{Aggregate: "Sale", ID: "7"}, envelope.Context{})
		_, _, got := leaving(t, m, "partner")
		assert.Equal(t, []string{"1", `{"lines":["a","b"]}`}, got)
		assert.Contains(t, string(m.Data), `"Lines":["b","a"]`)
	}
}

// unsteady writes the same otherwise each time, as a set in the order of a map.
type unsteady struct{ calls *atomic.Int64 }

func (u unsteady) MarshalJSON() ([]byte, error) {
	return strconv.AppendInt(nil, u.calls.Add(1), 10), nil
}

// Of what writes its JSON otherwise each time nothing can be said, and nothing is.
func TestContractsOfUnsteadyJSON(t *testing.T) {
	t.Parallel()
	type counted struct{ N unsteady }
	c := envelope.NewCatalog("sales")
	envelope.Register[counted](c, envelope.Name("Counted"), envelope.Published(envelope.As(func(counted) int { return 1 })))
	require.NoError(t, c.Err())
	seal(t, c, envelope.NewEvent(counted{unsteady{new(atomic.Int64)}}), envelope.Source{}, envelope.Context{})
}

// A contract copies, and raises nothing: where it is asked at the commit, the event would be left behind.
func TestContractsThatRaise(t *testing.T) {
	t.Parallel()
	type sold struct {
		OrderID string `fanout:"id"`
		Lines   []string
	}
	const want = "its function raises an event: raise it where it happens, and let the function given to envelope.As only copy"
	var raised atomic.Int64
	raise := func() { envelope.NewEvent(OrderAudited{}); raised.Add(1) }
	for name, contract := range map[string]envelope.Contract{
		"the function": envelope.As(func(sold) int { raise(); return 1 }),
		"the JSON":     envelope.As(func(sold) raiser { return raiser{raise} }),
	} {
		c := envelope.NewCatalog("sales")
		envelope.Register[sold](c, envelope.Name("Sold"), envelope.Published(contract))
		require.NoError(t, c.Err())
		for _, event := range []envelope.Event{envelope.NewEvent(sold{OrderID: "7"}), envelope.NewEvent(sold{}), fixedEvent(sold{})} {
			_, err := c.Seal(event, envelope.Source{Aggregate: "Sale", ID: "7"}, envelope.Context{})
			require.ErrorContains(t, err, want, name)
			assert.NotContains(t, err.Error(), "panic")
		}
		require.Len(t, c.Warnings(), 1)
		require.ErrorContains(t, c.Warnings()[0], "its function raises an event")
	}
	assert.Zero(t, raised.Load())

	// An event that raises others when it is encoded does so once.
	type also struct{ Raiser raiser }
	c := envelope.NewCatalog("sales")
	envelope.Register[also](c, envelope.Name("Also"), envelope.Key(func(also) string { return "k" }), envelope.Published(envelope.As(func(also) int { return 1 })))
	require.NoError(t, c.Err())
	seal(t, c, envelope.NewEvent(also{raiser{raise}}), envelope.Source{}, envelope.Context{})
	assert.EqualValues(t, 1, raised.Load())
}

// raiser raises an event when it is encoded.
type raiser struct{ raise func() }

func (r raiser) MarshalJSON() ([]byte, error) { r.raise(); return []byte("1"), nil }
