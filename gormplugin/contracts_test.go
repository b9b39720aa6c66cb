package gormplugin_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

type (
	contractSale struct {
		ID uint
		uow.Aggregate
	}
	contractSold struct {
		Sale   uint `fanout:"id"`
		Cents  int64
		Margin int64
	}
	contractPublic   struct{ Sale uint }
	contractPublicV2 struct {
		Sale  uint
		Cents int64
	}
)

// What a partner gets is what the contracts say, with the key that the database has made; the house gets all. A
// contract that fails, fails the transaction, and its error says where the event was raised.
func TestContractsAtCommit(t *testing.T) {
	t.Parallel()
	events := envelope.NewCatalog("sales")
	envelope.Register[contractSold](events, envelope.Name("Sold"), envelope.Published(
		envelope.As(func(s contractSold) contractPublic { return contractPublic{s.Sale} }),
		envelope.As(func(s contractSold) contractPublicV2 {
			if s.Cents < 0 {
				panic("a sale is worth something")
			}
			return contractPublicV2{s.Sale, s.Cents}
		}, envelope.Version(2), envelope.To("partner", "filtered")),
	))
	db, _, err := openShop(t, events, outbox.Routing{External: []outbox.Route{
		{Broker: "partner"}, {Broker: "other", Format: envelope.FormatCloudEvents}, {Broker: "filtered", Types: []string{"*.v2"}},
	}}, &contractSale{})
	require.NoError(t, err)

	sale := new(contractSale)
	sale.Raise(contractSold{Cents: 1250, Margin: 600})
	require.NoError(t, db.Create(sale).Error)
	var rows []struct {
		MessageID, TargetBroker, Type, Payload string
	}
	require.NoError(t, db.Raw("SELECT message_id, target_broker, type, payload FROM outbox_messages ORDER BY id").Scan(&rows).Error)
	got, ids := map[string]string{}, map[string]bool{}
	for _, row := range rows {
		ids[row.MessageID] = true
		if row.TargetBroker == "default" {
			assert.Contains(t, row.Payload, `{"Sale":1,"Cents":1250,"Margin":600}`)
			continue
		}
		assert.NotContains(t, row.Payload, "Margin")
		_, message, err := envelope.Decode([]byte(row.Payload))
		require.NoError(t, err)
		data, err := envelope.DataAs[contractPublicV2](message.Data)
		require.NoError(t, err)
		assert.Equal(t, uint(1), data.Sale, "the key is known only now")
		assert.Equal(t, row.MessageID, message.Metadata.Headers.ID.String())
		got[row.TargetBroker] += row.Type + " "
	}
	assert.Equal(t, map[string]string{"partner": "Sales.Sold.v1 Sales.Sold.v2 ", "other": "Sales.Sold.v1 ", "filtered": "Sales.Sold.v2 "}, got)
	assert.Len(t, rows, 5)
	assert.Len(t, ids, 2)

	bad := new(contractSale)
	bad.Raise(contractSold{Cents: -1})
	err = db.Create(bad).Error
	require.ErrorContains(t, err, "encode Sales.Sold.v1: as gormplugin_test.contractPublicV2 (Sales.Sold.v2), raised at ")
	require.ErrorContains(t, err, "contracts_test.go:")
	require.ErrorContains(t, err, "panic: a sale is worth something: fix the function given to envelope.As")
	elsewhere := new(contractSale)
	elsewhere.Raise(contractSold{Sale: 8}, envelope.To("other", "unknown"))
	require.ErrorContains(t, db.Create(elsewhere).Error, `addressed to broker "unknown", which is no external broker`)
	assert.Equal(t, []int64{1, 5}, []int64{countRows(t, db.Model(sale)), countRows(t, db.Table("outbox_messages"))}, "the sale is undone with its event")
}

// What is wrong with contracts is known at start-up, as far as it can be.
func TestContractsAtStartUp(t *testing.T) {
	t.Parallel()
	public := func(s contractSold) contractPublic { return contractPublic{s.Sale} }
	two := []outbox.Route{{Broker: "a"}, {Broker: "b"}}
	filtered := []outbox.Route{{Broker: "a", Types: []string{"*.v2"}}, {Broker: "b"}}
	for _, c := range []struct {
		routes    []outbox.Route
		options   []envelope.Option
		fails     string
		warns     string
		warnsNone bool
	}{
		{
			routes: two, options: []envelope.Option{envelope.Published(envelope.As(public, envelope.To("c")))},
			fails: `event Sales.Sold.v1 is addressed to broker "c", which is no external broker`,
		},
		{
			routes: two, options: []envelope.Option{envelope.Published(envelope.As(public, envelope.To("a"))), envelope.To("a", "b")},
			fails: `event Sales.Sold.v1 is addressed to broker "b", for which it has no contract`,
		},
		{routes: two, options: []envelope.Option{envelope.Published(envelope.As(public, envelope.To("a")))}, warnsNone: true},
		{
			routes: two, options: []envelope.Option{envelope.Published(envelope.As(func(s contractSold) contractPublic { return contractPublic{100 / s.Sale} }))},
			warns: "of the zero value: panic: runtime error: integer divide by zero: check for what may be missing in the function given to envelope.As",
		},
		{
			routes: filtered, options: []envelope.Option{envelope.Published(envelope.As(public))},
			warns: `msg="broker filter passes none of the published event types" broker=a`,
		},
		{routes: filtered, options: []envelope.Option{envelope.Published(envelope.As(public, envelope.Version(2)))}, warnsNone: true},
	} {
		events := envelope.NewCatalog("sales")
		envelope.Register[contractSold](events, append(c.options, envelope.Name("Sold"))...)
		_, log, err := openShop(t, events, outbox.Routing{External: c.routes})
		if c.fails != "" {
			require.ErrorContains(t, err, c.fails)
			continue
		}
		require.NoError(t, err)
		assert.Contains(t, log.String(), c.warns)
		assert.Equal(t, c.warnsNone, log.String() == "")
	}
}

type (
	raisingSale struct {
		ID    uint
		Lines []string `gorm:"serializer:json"`
		uow.Aggregate
	}
	raisingSold struct {
		Sale  uint `fanout:"id"`
		Lines []string
		sale  *raisingSale
	}
	raisingAudited struct{ Sale uint }
)

// A contract that does more than copy fails the transaction, and what it does is undone: an event that it raised at the
// commit would be left behind, and lines that it sorted would be sorted in the aggregate.
func TestContractsThatDoMoreThanCopy(t *testing.T) {
	t.Parallel()
	for want, contract := range map[string]func(s raisingSold){
		"its function raises an event: raise it where it happens":   func(s raisingSold) { s.sale.Raise(raisingAudited{s.Sale}) },
		"its function has changed what the event's slices, maps or": func(s raisingSold) { slices.Sort(s.Lines) },
	} {
		type sold raisingSold // of which no other test has a contract: all registrations of a type are asked
		events := envelope.NewCatalog("sales")
		envelope.Register[raisingAudited](events, envelope.Name("Audited"))
		armed := false
		envelope.Register[sold](events, envelope.Name("Sold"), envelope.Published(envelope.As(func(s sold) contractPublic {
			if armed && s.sale != nil && s.Sale != 0 {
				contract(raisingSold(s))
			}
			return contractPublic{s.Sale}
		})))
		db, _, err := openShop(t, events, outbox.Routing{External: []outbox.Route{{Broker: "partner"}}}, &raisingSale{})
		require.NoError(t, err)
		armed = true
		sale := &raisingSale{Lines: []string{"b", "a"}}
		sale.Raise(sold{Lines: sale.Lines, sale: sale})
		require.ErrorContains(t, db.Create(sale).Error, want)
		assert.Len(t, uow.Pending(sale), 1)
		assert.Zero(t, countRows(t, db.Model(sale))+countRows(t, db.Table("outbox_messages")))
	}
}
