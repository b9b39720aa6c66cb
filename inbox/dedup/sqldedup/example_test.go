package sqldedup_test

import (
	"context"
	"fmt"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/google/uuid"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/inbox/dedup"
	"github.com/gorm-fanout/fanout/inbox/dedup/sqldedup"
)

// The table is made, and old entries are removed now and then.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	db, err := gorm.Open(sqlite.Open(":memory:"), &gorm.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	pool, _ := db.DB()
	defer pool.Close()
	pool.SetMaxOpenConns(1) // each connection would have a memory of its own
	applied, err := sqldedup.Migrate(ctx, db)
	fmt.Println(applied, err)

	store, err := sqldedup.New(db) // goes into dedup.Config.Store
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(store.Add(ctx, "baskets", uuid.New(), time.Now().Add(-8*24*time.Hour)))
	loop, err := dedup.NewPurgeLoop(store, dedup.PurgeConfig{Done: func(_ context.Context, removed int64, err error) {
		fmt.Println(removed, "removed", err)
		cancel() // a program lets it run
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(loop.Run(ctx))
	// Output:
	// [0001_deduplication] <nil>
	// <nil>
	// 1 removed <nil>
	// <nil>
}
