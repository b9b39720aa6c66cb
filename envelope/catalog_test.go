package envelope_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
)

func TestEventType(t *testing.T) {
	t.Parallel()
	c := envelope.NewCatalog("order_handling")
	envelope.Register[OrderPlaced](c, envelope.Published(),
		envelope.Name("OrderAccepted"), envelope.Version(3), envelope.To("partner", "archive"))
	envelope.Register[OrderAudited](c)
	require.NoError(t, c.Err())
	require.Equal(t, "order_handling", c.Context())

	et, err := c.Lookup(OrderPlaced{})
	require.NoError(t, err)
	require.Equal(t, "OrderHandling.OrderAccepted.v3", et.WireType())
	require.Equal(t, "OrderAccepted", et.Name())
	require.Equal(t, 3, et.Version())
	require.True(t, et.Published())
	require.Equal(t, "envelope_test.OrderPlaced", et.GoType().String())
	require.Equal(t, "github.com/gorm-fanout/fanout/envelope_test.OrderPlaced", et.FQN())
	require.Equal(t, []string{"partner", "archive"}, et.Brokers())

	same, ok := c.ByWireType("OrderHandling.OrderAccepted.v3")
	require.True(t, ok)
	require.Same(t, et, same)
	_, ok = c.ByWireType("OrderHandling.OrderAccepted.v1")
	require.False(t, ok)

	plain, err := c.Lookup(OrderAudited{})
	require.NoError(t, err)
	require.Equal(t, "OrderHandling.OrderAudited.v1", plain.WireType())
	require.False(t, plain.Published())
	require.Nil(t, plain.Brokers())
}

func TestTypesAreSorted(t *testing.T) {
	t.Parallel()
	types := newCatalog(t).Types()
	wire := make([]string, 0, len(types))
	for _, et := range types {
		wire = append(wire, et.WireType())
	}
	require.Equal(t, []string{"Ordering.OrderAudited.v1", "Ordering.OrderPlaced.v1", "Ordering.StockReserved.v2"}, wire)
}

// Any named non-pointer type is an event, an unnamed one with a name.
func TestKindsOfEvents(t *testing.T) {
	t.Parallel()
	type local struct{ A int }
	type paused bool
	c := envelope.NewCatalog("ordering")
	envelope.Register[local](c)
	envelope.Register[paused](c)
	envelope.Register[Changed[OrderPlaced]](c)
	envelope.Register[Changed[[]*local]](c)
	envelope.Register[struct{ B int }](c, envelope.Name("Anonymous"))
	envelope.Register[map[string]any](c, envelope.Name("Loose"))
	require.NoError(t, c.Err())

	const here = "github.com/gorm-fanout/fanout/envelope_test."
	for _, test := range []struct {
		event       any
		name, fqn   string
		encodedData string
	}{
		{local{1}, "local", here + "local", `{"A":1}`},
		{paused(true), "paused", here + "paused", `true`},
		{Changed[OrderPlaced]{}, "ChangedOrderPlaced", here + "Changed[" + here + "OrderPlaced]", ""},
		{Changed[[]*local]{}, "ChangedLocal", here + "Changed[[]*" + here + "local]", `{"Before":null,"After":null}`},
		{struct{ B int }{2}, "Anonymous", "struct { B int }", `{"B":2}`},
		{map[string]any{"z": 1, "a": nil}, "Loose", "map[string]interface {}", `{"a":null,"z":1}`},
	} {
		et, err := c.Lookup(test.event)
		require.NoError(t, err)
		require.Equal(t, test.name, et.Name())
		require.Equal(t, test.fqn, et.FQN())
		m := seal(t, c, fixedEvent(test.event), envelope.Source{}, envelope.Context{})
		if test.encodedData != "" {
			require.Equal(t, test.encodedData, string(m.Data))
		}
		back, err := c.Unmarshal(et.WireType(), m.Data)
		require.NoError(t, err)
		require.IsType(t, test.event, back)
	}
}

// A type that was refused becomes usable once it is registered properly; the
// catalog still remembers the problem, since the program still has the line.
func TestRegisterAfterRefusal(t *testing.T) {
	t.Parallel()
	c := envelope.NewCatalog("ordering")
	envelope.Register[OrderPlaced](c, envelope.Version(0))
	_, err := c.Lookup(OrderPlaced{})
	var unregistered *envelope.UnregisteredError
	require.ErrorAs(t, err, &unregistered)
	require.Error(t, unregistered.Refused)

	envelope.Register[OrderPlaced](c)
	_, err = c.Lookup(OrderPlaced{})
	require.NoError(t, err)
	require.Error(t, c.Err())
}

type numbered[T any] struct{ N int }

// Registrations, lookups and seals from many goroutines: meant for -race.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	// Type-level extensions invite a shared backing array.
	c := envelope.NewCatalog("ordering")
	envelope.Register[OrderPlaced](c, envelope.Published(), envelope.To("a", "b"),
		envelope.Extension("a", 1), envelope.Extension("b", 2), envelope.Extension("c", 3))
	cx := fullContext()

	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			switch g {
			case 0:
				envelope.Register[numbered[int]](c)
			case 1:
				envelope.Register[numbered[string]](c)
			case 2:
				envelope.Register[OrderPlaced](c) // a problem, found concurrently
			}
			mine := fmt.Sprint("goroutine", g)
			shared := seal(t, c, placed(envelope.Extension("mine", mine)), order42, cx)
			for range 50 {
				m := seal(t, c, placed(envelope.Extension("mine", mine)), order42, cx)
				if m.Metadata.Extensions["mine"] != mine {
					t.Error("an extension of another goroutine")
				}
				_, err := shared.MarshalExternal(envelope.Include{}, every(shared)...)
				if err != nil {
					t.Error(err)
				}
				_, _ = c.ByWireType("Ordering.OrderPlaced.v1")
				_, _ = c.Types(), c.Err()
			}
		})
	}
	wg.Wait()
	require.Len(t, c.Types(), 3)
	require.ErrorContains(t, c.Err(), "already registered")
}
