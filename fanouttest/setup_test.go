package fanouttest_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/fanouttest"
	"github.com/gorm-fanout/fanout/uow"
)

// GORM starts a goroutine for each cache of prepared statements and never ends it.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}

type OrderPlaced struct{ OrderID string }

type OrderShipped struct{ OrderID string }

type StockReserved struct{ SKU string }

type InvoiceSent struct{ Number string }

type Unregistered struct{}

type Order struct {
	ID     string
	Status string
	uow.Aggregate
}

// Broken is no model: GORM cannot tell how it belongs to an order.
type Broken struct {
	ID    string
	Order Order
}

func catalog() *envelope.Catalog {
	events := envelope.NewCatalog("ordering")
	envelope.Register[OrderPlaced](events, envelope.Published())
	envelope.Register[OrderShipped](events)
	envelope.Register[StockReserved](events)
	envelope.Register[InvoiceSent](events, envelope.Published(), envelope.To("accounting"))
	return events
}

func open(t *testing.T) *gorm.DB {
	t.Helper()
	return fanouttest.Open(t, catalog(), &Order{})
}

func placed(id string) *Order {
	order := &Order{ID: id}
	order.Raise(OrderPlaced{id})
	return order
}

func save(values ...any) func(tx *gorm.DB) error {
	return func(tx *gorm.DB) error {
		for _, value := range values {
			if err := tx.Save(value).Error; err != nil {
				return err
			}
		}
		return nil
	}
}

// rowsIn counts the rows of the outbox that were committed.
func rowsIn(t *testing.T, db *gorm.DB) int64 {
	t.Helper()
	var n int64
	require.NoError(t, db.Table("outbox_messages").Count(&n).Error)
	return n
}

// failing is a test that is expected to fail.
type failing struct {
	*testing.T

	said string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failure runs f, which is to fail its test, and returns what it said. It has a goroutine of its
// own to end.
func failure(t *testing.T, f func(t fanouttest.TB)) string {
	t.Helper()
	fake, done, returned := &failing{T: t}, make(chan struct{}), false
	go func() {
		defer close(done)
		f(fake)
		returned = true
	}()
	<-done
	require.False(t, returned, "it did not fail")
	return fake.said
}
