package envelope_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
)

type shape interface{ Area() float64 }

// Every problem of a catalog, as the user reads it.
func TestCatalogErrors(t *testing.T) {
	t.Parallel()
	for context, use := range map[string]string{"order-handling": `"order_handling"`, "": `a name such as "ordering"`, "2nd": `a name such as "ordering"`} {
		require.EqualError(t, envelope.NewCatalog(context).Err(), fmt.Sprintf("envelope: create catalog %q: the name of a context is lower snake_case: "+
			"a-z, 0-9 and single underscores, a letter first: use %s", context, use))
	}
	placed := func(opts ...envelope.Option) func(*envelope.Catalog) {
		return func(c *envelope.Catalog) { envelope.Register[OrderPlaced](c, opts...) }
	}
	loose := func(opts ...envelope.Option) func(*envelope.Catalog) {
		return func(c *envelope.Catalog) { envelope.Register[map[string]any](c, opts...) }
	}
	for want, build := range map[string]func(*envelope.Catalog){
		"*envelope_test.OrderPlaced: events are values, not pointers: write envelope.Register[envelope_test.OrderPlaced](events)": func(c *envelope.Catalog) {
			envelope.Register[*OrderPlaced](c)
		},
		"envelope_test.shape: events are found by their concrete type, which an interface is not: register each type that implements it": func(c *envelope.Catalog) {
			envelope.Register[shape](c)
		},
		"envelope_test.OrderPlaced: already registered as Ordering.OrderPlaced.v1: remove one of the two lines": func(c *envelope.Catalog) {
			placed()(c)
			placed(envelope.Version(2))(c)
		},
		"envelope_test.StockReserved: Ordering.OrderPlaced.v1 is already envelope_test.OrderPlaced: tell them apart with the option envelope.Name or envelope.Version": func(c *envelope.Catalog) {
			placed()(c)
			envelope.Register[StockReserved](c, envelope.Name("OrderPlaced"))
		},
		`map[string]interface {}: the type's name "" cannot be that of an event: ASCII letters, digits and underscores, a letter first: add the option envelope.Name("...")`: loose(),
		`map[string]interface {}: option Name("Order.Placed"): a name is ASCII letters, digits and underscores, a letter first: use a name such as "OrderPlaced"`:            loose(envelope.Name("Order.Placed")),
		"envelope_test.OrderPlaced: option Version(0): versions start at 1: use 1 or more":                                                                                   placed(envelope.Version(0)),
		"envelope_test.OrderPlaced: option Key: its function takes envelope_test.StockReserved: write envelope.Key(func(e envelope_test.OrderPlaced) string { ... })": placed(
			envelope.Key(func(e StockReserved) string { return e.SKU })),
		"envelope_test.OrderPlaced: option NotBefore: the function is nil: write envelope.NotBefore(func(e envelope_test.OrderPlaced) time.Time { ... })": placed(
			envelope.NotBefore[OrderPlaced](nil)),
		"envelope_test.OrderPlaced: option Unordered(): Key is given as well: keep one of the two": placed(
			envelope.Key(func(e OrderPlaced) string { return e.Customer }), envelope.Unordered()),
		"envelope_test.OrderPlaced: option To(): no broker is named: name a broker, or leave To out for all of them": placed(envelope.Published(), envelope.To()),
		`envelope_test.OrderPlaced: option To("a", ""): a broker name is empty: use the names under external_brokers in the configuration`: placed(
			envelope.Published(), envelope.To("a", "")),
		`envelope_test.OrderPlaced: option To("a", "b", "a"): a broker is named twice: name each broker once`:                                placed(envelope.Published(), envelope.To("a", "b", "a")),
		`envelope_test.OrderPlaced: option To("a"): the event type is not marked as published: add envelope.Published() to its registration`: placed(envelope.To("a")),
		"envelope_test.OrderPlaced: option Priority(101): out of range: use a level from PriorityBulk (-100) to PriorityCritical (100)":      placed(envelope.Priority(101)),
		"envelope_test.OrderPlaced: option TTL(0s): a message would be expired at birth: use a positive duration, or leave TTL out for no deadline": placed(
			envelope.TTL(0)),
		`envelope_test.OrderPlaced: option Extension(""): the name of an extension is empty: use a name such as "region"`: placed(envelope.Extension("", 1)),
		`envelope_test.OrderPlaced: option Extension("ratio"): json: unsupported value: NaN: use a value that encoding/json encodes, a string at best`: placed(
			envelope.Extension("ratio", math.NaN())),
		`envelope_test.OrderPlaced: option Extension("a"): Extension("a") is given as well: keep one of the two`: placed(envelope.Extension("a", 1), envelope.Extension("a", 2)),
		"envelope_test.OrderPlaced: option nil: the option is nil: remove it":                                    placed(nil),
		"envelope_test.OrderPlaced: option Version(-1): versions start at 1: use 1 or more\nenvelope: register event envelope_test.OrderPlaced: option Name(\"\"): " +
			`a name is ASCII letters, digits and underscores, a letter first: use a name such as "OrderPlaced"`: placed(envelope.Version(-1), envelope.Name("")),
	} {
		c := envelope.NewCatalog("ordering")
		build(c)
		require.EqualError(t, c.Err(), "envelope: register event "+want)
	}
}

func TestLookupErrors(t *testing.T) {
	t.Parallel()
	c := newCatalog(t)
	envelope.Register[failing](c, envelope.Version(0))
	for name, test := range map[string]struct {
		event any
		want  string
	}{
		"unregistered": {
			withFloat{},
			`envelope: look up event envelope_test.withFloat: not registered in the catalog "ordering": add envelope.Register[envelope_test.withFloat](events)`,
		},
		"generic": {
			Changed[OrderPlaced]{},
			`envelope: look up event envelope_test.Changed[envelope_test.OrderPlaced]: not registered in the catalog "ordering": add envelope.Register[envelope_test.Changed[envelope_test.OrderPlaced]](events)`,
		},
		"unnamed": {
			[]int{1},
			`envelope: look up event []int: not registered in the catalog "ordering": add envelope.Register[[]int](events, envelope.Name("..."))`,
		},
		"nil": {nil, "envelope: look up event nil: the event is nil: raise a value of a registered type"},
		"pointer": {
			&OrderPlaced{},
			"envelope: look up event *envelope_test.OrderPlaced: events are values, not pointers: raise envelope_test.OrderPlaced{...} instead of &envelope_test.OrderPlaced{...}",
		},
		"pointer to pointer": {
			ptr(&OrderPlaced{}),
			"envelope: look up event **envelope_test.OrderPlaced: events are values, not pointers: raise envelope_test.OrderPlaced{...} instead of &envelope_test.OrderPlaced{...}",
		},
		"refused": {
			failing{},
			"envelope: look up event envelope_test.failing: its registration was refused: envelope: register event envelope_test.failing: option Version(0): versions start at 1: use 1 or more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := c.Lookup(test.event)
			require.EqualError(t, err, test.want)
			for _, event := range []envelope.Event{fixedEvent(test.event), envelope.NewEvent(test.event)} {
				_, err = c.Seal(event, envelope.Source{}, envelope.Context{})
				require.EqualError(t, err, test.want)
			}
			var unregistered *envelope.UnregisteredError
			var pointer *envelope.PointerEventError
			require.NotEqual(t, errors.As(err, &unregistered), errors.As(err, &pointer), "one of the two types")
		})
	}
}
