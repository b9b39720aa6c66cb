package envelope_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
)

// byPointer encodes itself by a method of its pointer, although an event is a value.
type byPointer struct{ Secret string }

func (*byPointer) MarshalJSON() ([]byte, error) { return []byte(`{"masked":true}`), nil }

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
	envelope.Register[byPointer](c)
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
		{byPointer{"hidden"}, "byPointer", here + "byPointer", `{"masked":true}`},
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
