package fanouttest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/fanouttest"
	"github.com/gorm-fanout/fanout/uow"
)

func TestEmits(t *testing.T) {
	t.Parallel()
	db := open(t)
	order := placed("1")
	events := fanouttest.Emits(t, db, func(tx *gorm.DB) error {
		require.NoError(t, uow.Publish(tx, StockReserved{"x"}))
		require.NoError(t, tx.Save(order).Error)
		order.Raise(OrderShipped{"1"})
		return nil
	})
	assert.Equal(t, []any{OrderPlaced{"1"}, StockReserved{"x"}, OrderShipped{"1"}}, fanouttest.Data(events), "in the order in which they were raised")
	assert.Equal(t, []OrderShipped{{"1"}}, fanouttest.Of[OrderShipped](events))
	assert.Empty(t, fanouttest.Of[InvoiceSent](events))

	assert.Zero(t, rowsIn(t, db), "nothing is written")
	var orders int64
	require.NoError(t, db.Model(&Order{}).Count(&orders).Error)
	assert.Zero(t, orders)
	assert.Equal(t, []any{OrderPlaced{"1"}, OrderShipped{"1"}}, uow.Pending(order), "the events stay")

	again := fanouttest.Emits(t, db, save(order))
	assert.Equal(t, events[0].ID, again[0].ID, "the same message")
	require.NoError(t, db.Save(order).Error)
	assert.EqualValues(t, 4, rowsIn(t, db), "what the test saves in earnest is written")
}

// Within a transaction only what the block adds is told, and only that is taken back.
func TestEmitsInATransaction(t *testing.T) {
	t.Parallel()
	for name, session := range map[string]*gorm.Session{
		"as it is":               {},
		"prepared statements":    {PrepareStmt: true},
		"no nested transactions": {DisableNestedTransaction: true},
		"no default transaction": {SkipDefaultTransaction: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			require.NoError(t, db.Session(session).Transaction(func(tx *gorm.DB) error {
				first, unsaved := placed("1"), placed("2")
				require.NoError(t, tx.Save(first).Error)
				events := fanouttest.Emits(t, tx, func(inner *gorm.DB) error {
					assert.Equal(t, tx.DisableNestedTransaction, inner.DisableNestedTransaction)
					first.Raise(OrderShipped{"1"})
					require.NoError(t, inner.Save(first).Error)
					assert.Len(t, fanouttest.WouldEmit(t, inner), 2, "the whole transaction's")
					return inner.Save(unsaved).Error
				})
				assert.Equal(t, []any{OrderPlaced{"2"}, OrderShipped{"1"}}, fanouttest.Data(events))
				assert.Equal(t, session.DisableNestedTransaction, tx.DisableNestedTransaction, "the handle is as it was")

				assert.Equal(t, []any{OrderPlaced{"1"}}, fanouttest.Data(fanouttest.WouldEmit(t, tx)))
				var orders int64
				require.NoError(t, tx.Model(&Order{}).Count(&orders).Error)
				assert.EqualValues(t, 1, orders)
				assert.Len(t, uow.Pending(unsaved), 1)
				return nil
			}))
			assert.EqualValues(t, 3, rowsIn(t, db), "the first order's event, for three brokers")
		})
	}
}

// A service that opens transactions of its own joins that of the block.
func TestEmitsAroundTransactions(t *testing.T) {
	t.Parallel()
	db := open(t)
	ran := false
	events := fanouttest.Emits(t, db, func(tx *gorm.DB) error {
		return uow.Do(t.Context(), tx, func(u *uow.Unit) error {
			require.NoError(t, u.AfterCommit(func() { ran = true }))
			return u.DB.Create(placed("1")).Error
		})
	})
	assert.Len(t, events, 1)
	assert.False(t, ran)
	assert.Zero(t, rowsIn(t, db))
}

func TestEmitsLetsPanicsThrough(t *testing.T) {
	t.Parallel()
	db := open(t)
	assert.PanicsWithValue(t, "boom", func() {
		fanouttest.Emits(t, db, func(tx *gorm.DB) error {
			require.NoError(t, tx.Save(placed("1")).Error)
			panic("boom")
		})
	})
	sqlDB, err := db.DB()
	require.NoError(t, err)
	assert.Zero(t, sqlDB.Stats().InUse, "the connection is back")
}

func TestFailures(t *testing.T) {
	t.Parallel()
	db := open(t)
	unplugged, err := gorm.Open(db.Dialector, &gorm.Config{})
	require.NoError(t, err)
	sqlDB, err := unplugged.DB()
	require.NoError(t, err)
	t.Cleanup(func() { _ = sqlDB.Close() })
	raising := func(event any, opts ...envelope.Option) func(fanouttest.TB) {
		return func(t fanouttest.TB) {
			order := &Order{ID: "1"}
			order.Raise(event, opts...)
			fanouttest.Emits(t, db, save(order))
		}
	}
	for name, test := range map[string]struct {
		fails func(fanouttest.TB)
		says  []string
	}{
		"the block returns an error": {
			func(t fanouttest.TB) {
				fanouttest.Emits(t, db, func(*gorm.DB) error { return errors.New("no more tea") })
			},
			[]string{"the block failed", "no more tea"},
		},
		"an event that is not registered": {raising(Unregistered{}), []string{"the commit would fail", "Unregistered", "envelope.Register["}},
		"an event for an unknown broker":  {raising(OrderPlaced{"1"}, envelope.To("nobody")), []string{"the commit would fail", `"nobody"`}},
		"a handle without the plugin": {
			func(t fanouttest.TB) { fanouttest.Emits(t, unplugged, save(placed("1"))) },
			[]string{"db.Use(gormplugin.New("},
		},
		"an event from before the block": {
			func(t fanouttest.TB) {
				_ = db.Transaction(func(tx *gorm.DB) error {
					order := &Order{ID: "1"}
					order.Raise(Unregistered{})
					_ = tx.Save(order)
					fanouttest.Emits(t, tx, save(placed("2")))
					return nil
				})
			},
			[]string{"before the block", "Unregistered"},
		},
		"a transaction of the caller's own": {
			func(t fanouttest.TB) {
				sqlDB, _ := db.DB()
				own, _ := sqlDB.Begin()
				defer func() { _ = own.Rollback() }()
				session := db.Session(&gorm.Session{NewDB: true, Context: background()})
				session.Statement.ConnPool = own
				fanouttest.Emits(t, session, save(placed("1")))
			},
			[]string{"begun outside GORM"},
		},
		"no transaction": {
			func(t fanouttest.TB) { fanouttest.WouldEmit(t, db) },
			[]string{"there is no transaction"},
		},
		"a transaction that could not commit": {
			func(t fanouttest.TB) {
				_ = db.Transaction(func(tx *gorm.DB) error {
					order := &Order{ID: "1"}
					order.Raise(Unregistered{})
					_ = tx.Save(order)
					fanouttest.WouldEmit(t, tx)
					return nil
				})
			},
			[]string{"Unregistered"},
		},
		"no catalog": {
			func(t fanouttest.TB) { fanouttest.Open(t, nil) },
			[]string{"there is no catalog"},
		},
		"a model with a flaw": {
			func(t fanouttest.TB) { fanouttest.Open(t, catalog(), &Broken{}) },
			[]string{"the tables of the models"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := failure(t, test.fails)
			for _, text := range test.says {
				assert.Contains(t, said, text)
			}
			assert.Zero(t, rowsIn(t, db))
		})
	}
}

func TestEvent(t *testing.T) {
	t.Parallel()
	until := time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC)
	ctx := envelope.WithTenantID(envelope.WithCorrelationID(t.Context(), "corr"), "acme")
	events := fanouttest.Emits(t, open(t).WithContext(envelope.WithCausationID(ctx, "cause")), func(tx *gorm.DB) error {
		order := &Order{ID: "1"}
		order.Raise(OrderPlaced{"1"}, envelope.Priority(envelope.PriorityHigh), envelope.TTL(time.Hour),
			envelope.NotBefore(func(OrderPlaced) time.Time { return until }))
		require.NoError(t, tx.Save(order).Error)
		return uow.Publish(tx, StockReserved{"x"}, envelope.Unordered())
	})
	require.Len(t, events, 2)
	first, second := events[0], events[1]
	assert.Equal(t, "Ordering.OrderPlaced.v1", first.Type)
	assert.Equal(t, "Order", first.Aggregate)
	assert.Equal(t, "1", first.AggregateID)
	assert.Equal(t, "ordering::order", first.Stream)
	assert.Equal(t, []string{"default", "accounting", "partner"}, first.Brokers)
	assert.Equal(t, "ordering::order-1", first.OrderingKey)
	assert.Equal(t, 50, first.Priority)
	assert.Equal(t, until, first.NotBefore)
	assert.Equal(t, until.Add(time.Hour), first.ExpiresAt)
	assert.Equal(t, []string{"corr", "cause", "acme"}, []string{first.CorrelationID, first.CausationID, first.TenantID})
	assert.Equal(t, "Ordering.OrderPlaced.v1 by Order 1 to default, accounting, partner", first.String())

	internal, partner := first.Message("default"), first.Message("partner")
	assert.Equal(t, first.ID, internal.Metadata.Headers.ID)
	assert.Equal(t, 50, internal.Metadata.Domain.Priority)
	assert.Equal(t, internal.Metadata.Headers, partner.Metadata.Headers)
	assert.Zero(t, partner.Metadata.Domain.Priority, "what is internal does not leave")
	assert.Contains(t, string(first.Payload("partner")), `{"OrderID":"1"}`)
	assert.NotContains(t, string(first.Payload("partner")), "checksum")

	assert.Equal(t, "Ordering.StockReserved.v1 to default", second.String())
	assert.Empty(t, second.OrderingKey)
	assert.Nil(t, second.Payload("partner"))
	assert.Nil(t, second.Message("partner"))
}

// Of an event with several contracts a test sees each, and not the last alone.
func TestEventWithContracts(t *testing.T) {
	t.Parallel()
	events := envelope.NewCatalog("ordering")
	envelope.Register[OrderPlaced](events, envelope.Published(
		envelope.As(func(e OrderPlaced) map[string]string { return map[string]string{"one": e.OrderID} }),
		envelope.As(func(e OrderPlaced) map[string]string { return map[string]string{"two": e.OrderID} }, envelope.Version(2)),
	))
	db := fanouttest.Open(t, events, &Order{}) // whose routing has a broker "external"
	emitted := fanouttest.Emits(t, db, save(placed("7")))
	require.Len(t, emitted, 1)
	require.Len(t, emitted[0].Brokers, 2)
	broker := emitted[0].Brokers[1]
	payloads, messages := emitted[0].Payloads(broker), emitted[0].Messages(broker)
	require.Len(t, payloads, 2)
	require.Len(t, messages, 2)
	assert.Contains(t, string(payloads[0]), `{"one":"7"}`)
	assert.Contains(t, string(payloads[1]), `{"two":"7"}`)
	assert.Equal(t, payloads[0], emitted[0].Payload(broker))
	assert.Equal(t, messages[0], emitted[0].Message(broker))
	assert.Equal(t, "Ordering.OrderPlaced.v2", messages[1].Metadata.Headers.Type)
	assert.Nil(t, emitted[0].Payloads("unknown"))
	assert.Nil(t, emitted[0].Messages("unknown"))
}
