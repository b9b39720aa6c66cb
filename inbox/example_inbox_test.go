package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/google/uuid"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/outbox"
	sqlitestore "github.com/gorm-fanout/fanout/outbox/sqlite"
	"github.com/gorm-fanout/fanout/uow"
)

// OrderPlaced is what the messages of the examples say.
type OrderPlaced struct {
	OrderID string `json:"order_id"`
	Amount  int    `json:"amount"`
}

// Revenue is what the consumer of the examples keeps.
type Revenue struct {
	ID    int `gorm:"primaryKey"`
	Total int
}

// openExample opens a database of its own, with an inbox and a revenue of 0.
func openExample() (db *gorm.DB, remove func()) {
	dir, err := os.MkdirTemp("", "fanout")
	if err != nil {
		panic(err)
	}
	path := filepath.Join(dir, "shop.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"
	if db, err = gorm.Open(sqlite.Open(path), &gorm.Config{Logger: logger.Discard}); err != nil {
		panic(err)
	}
	if _, err = inbox.Migrate(context.Background(), db); err != nil {
		panic(err)
	}
	if err = db.AutoMigrate(&Revenue{}); err == nil {
		err = db.Create(&Revenue{ID: 1}).Error
	}
	if err != nil {
		panic(err)
	}
	return db, func() {
		pool, err := db.DB()
		if err == nil {
			err = pool.Close()
		}
		if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
			log.Print(err)
		}
	}
}

// delivery is what a broker would deliver.
func delivery(payload string) *inbox.Message {
	m, err := inbox.Decode([]byte(payload), nil)
	if err != nil {
		panic(err)
	}
	m.Consumer = "accounting"
	return m
}

const placed = `{"specversion":"1.0","id":"01890a5d-ac96-774b-bcce-b302099a8057","source":"/shop","type":"Shop.OrderPlaced.v1","data":{"order_id":"o-1","amount":40}}`

// A message that comes several times has its effect once.
func ExampleHandle() {
	db, remove := openExample()
	defer remove()
	for range 3 {
		m := delivery(placed)
		outcome, err := inbox.Handle(context.Background(), db, m, func(tx *gorm.DB) error {
			return tx.Model(&Revenue{ID: 1}).Update("total", gorm.Expr("total + ?", 40)).Error
		})
		fmt.Println(outcome, err)
	}
	var revenue Revenue
	if err := db.First(&revenue).Error; err != nil {
		panic(err)
	}
	fmt.Println("revenue:", revenue.Total)
	// Output:
	// handled <nil>
	// duplicate <nil>
	// duplicate <nil>
	// revenue: 40
}

// A message that fails becomes a dead letter after some attempts. When the cause is fixed it is
// redriven, and handed out from its stored payload.
func ExampleRedeliver() {
	ctx := context.Background()
	db, remove := openExample()
	defer remove()
	fixed := false
	handler := inbox.HandlerFunc(func(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
		m.MaxAttempts = 2 // a consumer sets it from its Retry
		return inbox.Handle(ctx, db, m, func(*gorm.DB) error {
			if !fixed {
				return errors.New("no rate for this currency")
			}
			return nil
		})
	})
	for range 2 {
		fmt.Println(handler.Handle(ctx, delivery(placed)))
	}
	dead, err := inbox.DeadLetters(ctx, db, inbox.DeadLetterFilter{Consumer: "accounting"})
	if err != nil {
		panic(err)
	}
	fmt.Println(dead[0].Type, dead[0].Attempts, dead[0].LastError.Message)

	fixed = true
	if _, err := inbox.Redrive(ctx, db, "accounting", "", []uuid.UUID{dead[0].Key}); err != nil {
		panic(err)
	}
	fmt.Println(inbox.Redeliver(ctx, db, "accounting", handler))
	// Output:
	//  inbox: attempt 1 of 2: no rate for this currency
	// dead_lettered <nil>
	// Shop.OrderPlaced.v1 2 no rate for this currency
	// 1 <nil>
}

// With tokens, producer and consumer share a database: the producer creates a token for each
// message that it is about to send, in its own transaction, once at its end. The plugin tells their
// ids.
func ExampleExpect() {
	ctx := context.Background()
	db, remove := openExample()
	defer remove()
	pool, err := db.DB()
	if err != nil {
		panic(err)
	}
	store, err := sqlitestore.New(pool, outbox.DefaultTable)
	if err != nil {
		panic(err)
	}
	if _, err = store.Migrate(ctx); err != nil {
		panic(err)
	}
	events := envelope.NewCatalog("shop")
	envelope.Register[OrderPlaced](events)
	if err = db.Use(gormplugin.New(events, outbox.Routing{})); err != nil {
		panic(err)
	}
	tokens := func() (n int64) {
		if err := db.Table(inbox.DefaultTable).Count(&n).Error; err != nil {
			panic(err)
		}
		return n
	}

	var id uuid.UUID
	err = db.Transaction(func(tx *gorm.DB) error {
		if err := uow.Publish(tx, OrderPlaced{OrderID: "o-1", Amount: 40}); err != nil {
			return err
		}
		sent, err := gormplugin.Preview(tx)
		if err != nil {
			return err
		}
		keys := map[string][]uuid.UUID{} // by the stream that the consumer reads, which is its source of the messages
		for i := range sent {
			row := &sent[i].Rows[0]
			id = row.MessageID
			keys[row.Stream] = append(keys[row.Stream], id)
		}
		for source := range keys {
			if err := inbox.Expect(tx, "accounting", source, keys[source]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	fmt.Println("tokens:", tokens())

	for range 2 { // it comes twice
		m := delivery(placed)
		m.Key, m.Source = id, "shop"
		fmt.Println(inbox.Handle(ctx, db, m, func(*gorm.DB) error { return nil }, inbox.WithTokens()))
	}
	fmt.Println("tokens:", tokens())
	// Output:
	// tokens: 1
	// handled <nil>
	// duplicate <nil>
	// tokens: 0
}

// A purge for each inbox table, in any of the processes.
func ExamplePurger() {
	db, remove := openExample()
	defer remove()
	purger, err := inbox.NewPurger(db, inbox.PurgeConfig{Handled: 14 * 24 * time.Hour})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // a real one runs for as long as the process does
	fmt.Println(purger.Run(ctx))
	// Output: <nil>
}
