package gormplugin_test

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
	sqlitestore "github.com/gorm-fanout/fanout/outbox/sqlite"
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
	routing := outbox.Routing{External: []outbox.Route{
		{Broker: "partner"}, {Broker: "other", Format: envelope.FormatCloudEvents}, {Broker: "filtered", Types: []string{"*.v2"}},
	}}
	db, err := gorm.Open(sqlite.Open(filepath.Join(t.TempDir(), "sales.db")), &gorm.Config{TranslateError: true})
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, pool.Close()) })
	store, err := sqlitestore.New(pool, "")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, db.AutoMigrate(&contractSale{}))
	require.NoError(t, db.Use(gormplugin.New(events, routing)))

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

	for id, cents := range map[uint]int64{0: -1, 7: -1} {
		bad := &contractSale{ID: id}
		bad.Raise(contractSold{Sale: id, Cents: cents})
		err := db.Create(bad).Error
		require.ErrorContains(t, err, "encode Sales.Sold.v1: as gormplugin_test.contractPublicV2 (Sales.Sold.v2), raised at ")
		require.ErrorContains(t, err, "contracts_test.go:")
		require.ErrorContains(t, err, "panic: a sale is worth something: fix the function given to envelope.As")
	}
	lone := &contractSale{ID: 9}
	go lone.Raise(contractSold{Sale: 9, Cents: -1})
	require.Eventually(t, func() bool { return len(uow.Pending(lone)) == 1 }, time.Minute, time.Millisecond)
	require.ErrorContains(t, db.Create(lone).Error, "(Sales.Sold.v2): panic:", "a goroutine without a function of the application has no place")
	elsewhere := &contractSale{}
	elsewhere.Raise(contractSold{Sale: 8}, envelope.To("other", "unknown"))
	require.ErrorContains(t, db.Create(elsewhere).Error, `addressed to broker "unknown", which is no external broker`)
	var sales, messages int64
	require.NoError(t, db.Model(&contractSale{}).Count(&sales).Error)
	require.NoError(t, db.Table("outbox_messages").Count(&messages).Error)
	assert.Equal(t, []int64{1, 5}, []int64{sales, messages}, "the sale is undone with its event")
}

// What is wrong with contracts is known at start-up, as far as it can be.
func TestContractsAtStartUp(t *testing.T) {
	t.Parallel()
	use := func(routing outbox.Routing, options ...envelope.Option) (string, error) {
		events := envelope.NewCatalog("sales")
		envelope.Register[contractSold](events, append(options, envelope.Name("Sold"))...)
		db, err := gorm.Open(sqlite.Open(filepath.Join(t.TempDir(), "sales.db")), &gorm.Config{})
		require.NoError(t, err)
		pool, err := db.DB()
		require.NoError(t, err)
		defer pool.Close()
		var log bytes.Buffer
		err = db.Use(gormplugin.New(events, routing, gormplugin.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))))
		return log.String(), err
	}
	public := func(s contractSold) contractPublic { return contractPublic{s.Sale} }
	two := outbox.Routing{External: []outbox.Route{{Broker: "a"}, {Broker: "b"}}}

	_, err := use(two, envelope.Published(envelope.As(public, envelope.To("c"))))
	require.ErrorContains(t, err, `event Sales.Sold.v1 is addressed to broker "c", which is no external broker`)
	_, err = use(two, envelope.Published(envelope.As(public, envelope.To("a"))), envelope.To("a", "b"))
	require.ErrorContains(t, err, `event Sales.Sold.v1 is addressed to broker "b", for which it has no contract`)
	log, err := use(two, envelope.Published(envelope.As(public, envelope.To("a"))))
	require.NoError(t, err)
	assert.Empty(t, log)
	log, err = use(two, envelope.Published(envelope.As(func(s contractSold) contractPublic { return contractPublic{100 / s.Sale} })))
	require.NoError(t, err)
	assert.Contains(t, log, "of the zero value: panic: runtime error: integer divide by zero: check for what may be missing in the function given to envelope.As")
	two.External[0].Types = []string{"*.v2"}
	log, err = use(two, envelope.Published(envelope.As(public)))
	require.NoError(t, err)
	assert.Contains(t, log, `msg="broker filter passes none of the published event types" broker=a`)
	log, err = use(two, envelope.Published(envelope.As(public, envelope.Version(2))))
	require.NoError(t, err)
	assert.Empty(t, log)
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
	open := func(contract func(raisingSold) contractPublic) *gorm.DB {
		events := envelope.NewCatalog("sales")
		envelope.Register[raisingAudited](events, envelope.Name("Audited"))
		envelope.Register[raisingSold](events, envelope.Name("Sold"), envelope.Published(envelope.As(contract)))
		db, err := gorm.Open(sqlite.Open(filepath.Join(t.TempDir(), "sales.db")), &gorm.Config{})
		require.NoError(t, err)
		pool, err := db.DB()
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, pool.Close()) })
		store, err := sqlitestore.New(pool, "")
		require.NoError(t, err)
		_, err = store.Migrate(t.Context())
		require.NoError(t, err)
		require.NoError(t, db.AutoMigrate(&raisingSale{}))
		require.NoError(t, db.Use(gormplugin.New(events, outbox.Routing{External: []outbox.Route{{Broker: "partner"}}})))
		return db
	}
	does := "" // one contract for both: all registrations of a type are asked
	db := open(func(s raisingSold) contractPublic {
		switch {
		case does == "raise" && s.sale != nil:
			s.sale.Raise(raisingAudited{s.Sale})
		case does == "sort":
			slices.Sort(s.Lines)
		}
		return contractPublic{s.Sale}
	})
	for what, want := range map[string]string{
		"raise": "its function raises an event: raise it where it happens",
		"sort":  "its function has changed what the event's slices, maps or pointers hold: copy what the function given to envelope.As changes",
	} {
		for _, id := range []uint{0, 7} {
			does = what
			sale := &raisingSale{ID: id, Lines: []string{"b", "a"}}
			sale.Raise(raisingSold{sale.ID, sale.Lines, sale})
			assert.Len(t, uow.Pending(sale), 1)
			err := db.Create(sale).Error
			require.ErrorContains(t, err, "encode Sales.Sold.v1: as gormplugin_test.contractPublic (Sales.Sold.v1), raised at ")
			require.ErrorContains(t, err, "contracts_test.go:")
			require.ErrorContains(t, err, want)
			assert.Len(t, uow.Pending(sale), 1)
		}
	}
	var sales, messages int64
	require.NoError(t, db.Model(&raisingSale{}).Count(&sales).Error)
	require.NoError(t, db.Table("outbox_messages").Count(&messages).Error)
	assert.Equal(t, []int64{0, 0}, []int64{sales, messages})

	does = ""
	sale := &raisingSale{Lines: []string{"b", "a"}}
	sale.Raise(raisingSold{sale.ID, sale.Lines, sale})
	require.NoError(t, db.Create(sale).Error)
	assert.Empty(t, uow.Pending(sale))
}
