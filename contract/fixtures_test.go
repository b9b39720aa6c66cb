package contract_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/contract"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/outbox"
)

// side is one side of a comparison: how to register, and where the events go.
type side struct {
	register func(*envelope.Catalog)
	routing  outbox.Routing
}

func routes(all ...outbox.Route) outbox.Routing { return outbox.Routing{External: all} }

// of registers one event type, and sends it to the broker partner.
func of[E any](options ...envelope.Option) side {
	return to[E](outbox.Route{Broker: "partner"}, options...)
}

// to registers one event type, and sends it to this route alone.
func to[E any](route outbox.Route, options ...envelope.Option) side {
	return side{func(events *envelope.Catalog) {
		envelope.Register[E](events, append([]envelope.Option{envelope.Name("Placed"), envelope.Published()}, options...)...)
	}, routes(route)}
}

// publishedAs registers one event type with these contracts.
func publishedAs[E any](contracts ...envelope.Contract) side {
	return side{func(events *envelope.Catalog) {
		envelope.Register[E](events, envelope.Name("Placed"), envelope.Published(contracts...))
	}, routes(outbox.Route{Broker: "partner"})}
}

// to adds a broker.
func (s side) to(broker string) side {
	s.routing = routes(append(slices.Clone(s.routing.External), outbox.Route{Broker: broker})...)
	return s
}

// and registers further types.
func (s side) and(register func(*envelope.Catalog)) side {
	before := s.register
	s.register = func(events *envelope.Catalog) { before(events); register(events) }
	return s
}

func (s side) describe(t testing.TB) *contract.Document {
	t.Helper()
	events := envelope.NewCatalog("ordering")
	s.register(events)
	d := new(contract.Document)
	require.NoError(t, d.Describe(events, s.routing))
	// Through the file, as it is in a repository.
	text, err := json.Marshal(d)
	require.NoError(t, err)
	read := new(contract.Document)
	require.NoError(t, json.Unmarshal(text, read), string(text))
	return read
}

type (
	one[T any] struct {
		A T `json:"a"`
	}
	maybe[T any] struct {
		A T `json:"a,omitempty"`
	}
	quoted[T any] struct {
		A T `json:"a,string"` //nolint:staticcheck // SA5008 takes the parameter for a type that cannot be quoted
	}

	plainStatus string
	status      string
	wideStatus  string
	otherStatus string
	tree        struct {
		Name     string  `json:"name"`
		Children []*tree `json:"children"`
	}
	namelessTree struct {
		Children []*namelessTree `json:"children"`
	}
	base struct {
		ID string `json:"id"`
	}
	order struct {
		ID string `json:"id"`
	}
	costly struct {
		ID     string `json:"id"`
		Margin int    `json:"margin"`
	}
	wideCostly struct {
		ID     string `json:"id"`
		Margin int    `json:"margin"`
		Secret string `json:"secret"`
	}
	other struct {
		Number string `json:"number"`
	}
)

func (status) Enum() []any      { return []any{"placed", "paid"} }
func (wideStatus) Enum() []any  { return []any{"placed", "paid", "refunded"} }
func (otherStatus) Enum() []any { return []any{"paid", "refunded"} }

// lines are changes of the data.
func lines(changes ...string) []string {
	for i := range changes {
		changes[i] = "partner: Ordering.Placed.v1: data" + changes[i]
	}
	return changes
}

// shown is what partners get of an event that has more.
var shown = envelope.As(func(e costly) order { return order{e.ID} })
