// Command upgradewriter counts up the rows of a table through GORM until it is told to stop, and raises an event for each count. What
// was committed it writes to standard output, as "key n". The test of rolling upgrades builds it with this version of the library and
// with the one before, so it uses what both have.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// Counted is the n-th event of its key.
type Counted struct {
	Key string
	N   int
}

// Counter is the aggregate.
type Counter struct {
	ID string
	N  int
	uow.Aggregate
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dsn, boundedContext string, keys []string) error {
	db, err := gorm.Open(postgres.Open(dsn), &gorm.Config{Logger: logger.Discard}) // standard output is the ledger
	if err != nil {
		return err
	}
	events := envelope.NewCatalog(boundedContext)
	envelope.Register[Counted](events)
	if err := db.Use(gormplugin.New(events, outbox.Routing{})); err != nil {
		return err
	}
	for n := 0; ctx.Err() == nil; n++ {
		var counter Counter
		err := db.Transaction(func(tx *gorm.DB) error {
			if err := tx.Clauses(clause.Locking{Strength: "UPDATE"}).Take(&counter, "id = ?", keys[n%len(keys)]).Error; err != nil {
				return err
			}
			counter.N++
			counter.Raise(Counted{counter.ID, counter.N})
			return tx.Save(&counter).Error
		})
		if err != nil {
			return err
		}
		fmt.Println(counter.ID, counter.N)
	}
	return nil
}
