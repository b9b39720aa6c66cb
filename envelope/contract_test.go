package envelope_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
)

// Sold is what happened; its margin is for the house alone.
type Sold struct {
	OrderID string `fanout:"id"`
	Cents   int64
	Margin  int64
	Lines   []string
}

// What partners get: at first all in one, then with a currency, and a warehouse its own.
type (
	PublicSale struct {
		Order string `json:"order"`
		Cents int64  `json:"cents"`
	}
	PublicSaleV2 struct {
		Order  string `json:"order"`
		Amount string `json:"amount"`
	}
	ToPack struct {
		Lines []string `json:"lines"`
	}
)

func publicSale(s Sold) PublicSale { return PublicSale{s.OrderID, s.Cents} }
func publicSaleV2(s Sold) PublicSaleV2 {
	return PublicSaleV2{s.OrderID, json.Number("1").String() + " EUR"}
}
func toPack(s Sold) ToPack { return ToPack{s.Lines} }

func sales(t testing.TB, contracts ...envelope.Contract) *envelope.Catalog {
	t.Helper()
	c := envelope.NewCatalog("sales")
	envelope.Register[Sold](c, envelope.Version(4), envelope.Published(contracts...))
	require.NoError(t, c.Err())
	return c
}

func leaving(t testing.TB, m *envelope.Message, broker string) (types []string, ids []uuid.UUID, data []string) {
	t.Helper()
	for _, one := range m.AppendExternal(nil, broker) {
		external, err := one.MarshalExternal(envelope.Include{})
		require.NoError(t, err)
		x, err := envelope.DecodeExternal(external)
		require.NoError(t, err)
		b, err := one.MarshalCloudEvent(envelope.CloudEventOptions{})
		require.NoError(t, err)
		ce, err := envelope.DecodeCloudEvent(b)
		require.NoError(t, err)
		h := x.Metadata.Headers
		assert.Equal(t, []string{h.ID.String(), h.Type, string(x.Data)}, []string{ce.ID, ce.Type, string(ce.Data)})
		assert.True(t, strings.HasSuffix(h.Type, ".v"+json.Number(string(rune('0'+x.Metadata.Domain.Version))).String()), h.Type)
		types, ids, data = append(types, h.Type), append(ids, h.ID), append(data, string(x.Data))
	}
	return types, ids, data
}

// Partners get what the contracts say, each broker its own, under ids that tell them apart; inside all stays as it is.
func TestContracts(t *testing.T) {
	t.Parallel()
	c := sales(t,
		envelope.As(publicSale),
		envelope.As(toPack, envelope.Name("ToPack"), envelope.To("warehouse")),
		envelope.As(publicSaleV2, envelope.Version(2)),
	)
	event := fixedEvent(Sold{"7", 1250, 600, []string{"a"}})
	m := seal(t, c, event, envelope.Source{Aggregate: "Sale", ID: "7"}, envelope.Context{})

	types, ids, data := leaving(t, m, "partner")
	assert.Equal(t, []string{"Sales.Sold.v1", "Sales.Sold.v2"}, types)
	assert.Equal(t, []string{`{"order":"7","cents":1250}`, `{"order":"7","amount":"1 EUR"}`}, data)
	assert.Equal(t, fixedID, ids[0])
	assert.Equal(t, uuid.Version(7), ids[1].Version())
	assert.Equal(t, fixedID.String()[:19], ids[1].String()[:19], "of the same time")
	_, again, _ := leaving(t, seal(t, c, event, envelope.Source{Aggregate: "Sale", ID: "7"}, envelope.Context{}), "partner")
	assert.Equal(t, ids, again, "the same each time")

	types, ids, _ = leaving(t, m, "warehouse")
	assert.Equal(t, []string{"Sales.Sold.v1", "Sales.ToPack.v1", "Sales.Sold.v2"}, types)
	assert.Len(t, map[uuid.UUID]bool{ids[0]: true, ids[1]: true, ids[2]: true}, 3)

	_, err := m.MarshalExternal(envelope.Include{})
	require.ErrorContains(t, err, "its type has contracts, which leave in its place")
	_, err = m.MarshalCloudEvent(envelope.CloudEventOptions{})
	require.ErrorContains(t, err, "its type has contracts, which leave in its place")
	internal, err := m.MarshalInternal()
	require.NoError(t, err)
	assert.Contains(t, string(internal), `"type":"Sales.Sold.v4"`)
	assert.Contains(t, string(internal), `"Margin":600`)
	assert.NotContains(t, strings.Join(data, ""), "600")

	only := seal(t, sales(t, envelope.As(toPack, envelope.To("warehouse"))), event, envelope.Source{}, envelope.Context{})
	assert.Empty(t, only.AppendExternal(nil, "partner"))
	assert.Len(t, only.AppendExternal(nil, "warehouse"), 1)
	fqn, err := only.AppendExternal(nil, "warehouse")[0].MarshalExternal(envelope.Include{FQN: true})
	require.NoError(t, err)
	assert.Contains(t, string(fqn), `envelope_test.ToPack"`)
}

// A contract tells what was when the event was raised; where its id was unknown then, it is asked once more.
func TestContractsAreAskedAtRaise(t *testing.T) {
	t.Parallel()
	type sold struct { // a type that no other test raises: all of its registrations are asked
		OrderID string `fanout:"id"`
		Lines   []string
	}
	calls := 0
	c := envelope.NewCatalog("sales")
	envelope.Register[sold](c, envelope.Name("Sold"), envelope.Published(envelope.As(func(s sold) ToPack {
		calls++
		return ToPack{append([]string{s.OrderID}, s.Lines...)}
	})))
	require.NoError(t, c.Err())
	for _, test := range []struct {
		id    string
		calls int
	}{{"7", 1}, {"", 2}} {
		calls = 0
		lines := []string{"a"}
		event := envelope.NewEvent(sold{OrderID: test.id, Lines: lines})
		if test.id != "" {
			lines[0] = "b"
		}
		m := seal(t, c, event, envelope.Source{Aggregate: "Sale", ID: "7"}, envelope.Context{})
		_, _, data := leaving(t, m, "partner")
		assert.Equal(t, []string{`{"lines":["7","a"]}`}, data)
		assert.Equal(t, test.calls, calls)
	}
}

// What a contract's function does wrong is an error that names the event, the contract and where the event was raised.
func TestContractsThatFail(t *testing.T) {
	t.Parallel()
	failed := errors.New("there is no order")
	for want, c := range map[string]*envelope.Catalog{
		"encode Sales.Sold.v4: as envelope_test.ToPack (Sales.Sold.v1), raised at ": sales(t, envelope.As(func(Sold) ToPack { panic(failed) })),
		"contract_test.go:": sales(t, envelope.As(func(s Sold) string { return s.Lines[3] }, envelope.Name("Line"))),
		"json: unsupported value: NaN: fix the function given to envelope.As":              sales(t, envelope.As(func(Sold) float64 { return math.NaN() })),
		"its data is null, which no consumer takes: fix the function given to envelope.As": sales(t, envelope.As(func(Sold) []int { return nil })),
		"as envelope_test.ToPack (Sales.Sold.v1): panic: no literal": sales(t, envelope.As(func(s Sold) ToPack {
			if s.OrderID == "" {
				panic("no literal")
			}
			return ToPack{}
		})),
		"canonical JSON: Duplicate key": sales(t, envelope.As(func(Sold) json.RawMessage { return json.RawMessage(`{"a":1,"a":2}`) })),
	} {
		events := []envelope.Event{envelope.NewEvent(Sold{OrderID: "7"}), envelope.NewEvent(Sold{})}
		if strings.Contains(want, "literal") {
			events = []envelope.Event{fixedEvent(Sold{})}
		}
		for _, event := range events {
			_, err := c.Seal(event, envelope.Source{}, envelope.Context{})
			var encode *envelope.EncodeError
			require.ErrorAs(t, err, &encode)
			assert.ErrorContains(t, err, want)
		}
	}
	_, err := sales(t, envelope.As(func(Sold) ToPack { panic(failed) })).Seal(envelope.NewEvent(Sold{}), envelope.Source{Aggregate: "Sale", ID: "7"}, envelope.Context{})
	require.ErrorIs(t, err, failed)
	require.ErrorContains(t, err, "contract_test.go:", "also where it is asked once more")
}

func TestContractsOfBadTypes(t *testing.T) {
	t.Parallel()
	refused := func(want string, contracts ...envelope.Contract) {
		t.Helper()
		c := envelope.NewCatalog("sales")
		envelope.Register[Sold](c, envelope.Published(contracts...))
		require.ErrorContains(t, c.Err(), want)
		assert.Empty(t, c.Types())
	}
	refused("its function takes envelope_test.OrderPlaced: write envelope.As(func(e envelope_test.Sold) int { ... })", envelope.As(func(OrderPlaced) int { return 1 }))
	refused("the function is nil", envelope.As[Sold, ToPack](nil))
	refused("the function is nil", envelope.Contract{})
	refused("partners get a value, not a pointer", envelope.As(func(Sold) *ToPack { return nil }))
	refused("partners get a value, not a pointer", envelope.As(func(Sold) any { return nil }))
	refused("it has options that describe the event and not the contract", envelope.As(toPack, envelope.Unordered()))
	refused("it has options that describe the event and not the contract", envelope.As(toPack, envelope.Published(envelope.As(toPack))))
	refused("versions start at 1", envelope.As(toPack, envelope.Version(0)))
	refused("no broker is named", envelope.As(toPack, envelope.To()))
	refused("Sales.Sold.v1 is another contract for the same broker already", envelope.As(toPack), envelope.As(publicSale, envelope.To("x")))
	refused("its type on the wire", envelope.As(toPack, envelope.Name(strings.Repeat("x", 600))))

	refused("its list of contracts is empty", []envelope.Contract{}...)

	// Two events can be one to partners, with data of one type.
	c := sales(t, envelope.As(toPack, envelope.Name("ToPack")), envelope.As(publicSale, envelope.To("a")), envelope.As(publicSaleV2, envelope.Version(2), envelope.To("b")))
	envelope.Register[Changed[Sold]](c, envelope.Published(envelope.As(func(Changed[Sold]) ToPack { return ToPack{} }, envelope.Name("ToPack"))))
	require.NoError(t, c.Err())
	envelope.Register[OrderPlaced](c, envelope.Published(), envelope.Name("ToPack"))
	require.ErrorContains(t, c.Err(), "to partners Sales.ToPack.v1 is already envelope_test.ToPack: tell them apart")
}

// A type to partners must not be that of another event that stays inside, whichever is registered first.
func TestContractsTakeNoTypeOfAnotherEvent(t *testing.T) {
	t.Parallel()
	inside := func(opts ...envelope.Option) func(*envelope.Catalog) {
		return func(c *envelope.Catalog) {
			envelope.Register[StockReserved](c, append(opts, envelope.Name("Packed"))...)
		}
	}
	// It leaves, but under another type.
	otherwise := inside(envelope.Published(envelope.As(func(StockReserved) int { return 1 }, envelope.Version(2))))
	outside := func(c *envelope.Catalog) {
		envelope.Register[Sold](c, envelope.Published(envelope.As(toPack, envelope.Name("Packed"))))
	}
	for _, other := range []func(*envelope.Catalog){inside(), otherwise} {
		c := envelope.NewCatalog("sales")
		other(c)
		outside(c)
		require.ErrorContains(t, c.Err(), "register event envelope_test.Sold: to partners Sales.Packed.v1 would be envelope_test.ToPack, "+
			"and inside it is envelope_test.StockReserved: tell them apart")
		c = envelope.NewCatalog("sales")
		outside(c)
		other(c)
		require.ErrorContains(t, c.Err(), "register event envelope_test.StockReserved: to partners Sales.Packed.v1 is already envelope_test.ToPack: tell them apart")
	}
	// An event that is the same to partners may have the type as its own, and so may one that has the data itself.
	c := envelope.NewCatalog("sales")
	outside(c)
	inside(envelope.Published(envelope.As(func(StockReserved) ToPack { return ToPack{} })))(c)
	require.NoError(t, c.Err())
	c = envelope.NewCatalog("sales")
	envelope.Register[ToPack](c, envelope.Name("Packed"))
	outside(c)
	require.NoError(t, c.Err())
}

func TestContractsOfTheZeroValue(t *testing.T) {
	t.Parallel()
	c := sales(t, envelope.As(publicSale), envelope.As(func(s Sold) string { return s.Lines[0] }, envelope.Version(2)), envelope.As(func(Sold) []int { return nil }, envelope.Version(3)))
	warnings := c.Warnings()
	require.Len(t, warnings, 1)
	assert.ErrorContains(t, warnings[0], "register event envelope_test.Sold: as string (Sales.Sold.v2), of the zero value: panic: runtime error: index out of range")
	assert.Empty(t, newCatalog(t).Warnings())
	assert.Len(t, c.Types()[0].Contracts(), 3)
	assert.Nil(t, newCatalog(t).Types()[0].Contracts(), "OrderAudited stays inside")
	placed, err := newCatalog(t).Lookup(OrderPlaced{})
	require.NoError(t, err)
	assert.Equal(t, []*envelope.EventType{placed}, placed.Contracts())
}
