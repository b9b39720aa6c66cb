// This file is laid over the package when make test builds its tests: see beside.
package main

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

func init() {
	beside.onEach, beside.postgres = onEachDatabase, testenv.Postgres
	beside.complete, beside.claim, beside.hold = completeAll, claimAll, holdAll
}

func onEachDatabase(t *testing.T, sqlite func(testing.TB) string, test func(t *testing.T, driver outbox.Dialect, dsn string)) {
	t.Helper()
	dsn := map[outbox.Dialect]func(testing.TB) string{
		outbox.SQLite:    sqlite,
		outbox.Postgres:  testenv.Postgres,
		outbox.SQLServer: testenv.SQLServerDatabase,
		outbox.MySQL:     testenv.MySQL,
	}
	testenv.OnEach(t, slices.Sorted(maps.Keys(dsn)), func(d outbox.Dialect) string { return string(d) }, func(t *testing.T, driver outbox.Dialect) {
		test(t, driver, dsn[driver](t))
	})
}

// onShards calls a function for each shard of a shop's outbox.
func onShards(s *shop, call func(store driver.Store, shard int) error) error {
	store := s.store.(driver.Store)
	for shard := range outbox.Classes * store.Shards() {
		if err := call(store, shard); err != nil {
			return err
		}
	}
	return nil
}

func claimAll(s *shop, broker string, lease time.Duration) error {
	return onShards(s, func(store driver.Store, shard int) error {
		_, err := store.Exchange(s.Context(), nil, &driver.Claim{Broker: broker, Shard: shard, Limit: 9, Window: 9, Lease: lease, Worker: "dead"})
		return err
	})
}

func holdAll(s *shop, broker string) error {
	return onShards(s, func(store driver.Store, shard int) error {
		_, err := store.Defer(s.Context(), &driver.Claim{Broker: broker, Shard: shard, Limit: 4000, Window: 4000, Lease: time.Minute, Worker: "night-shift"})
		return err
	})
}

func completeAll(s *shop, broker string, outcome func(id string) *outbox.LastError) error {
	return onShards(s, func(store driver.Store, shard int) error {
		claimed, err := store.Exchange(s.Context(), nil, &driver.Claim{
			Broker: broker, Shard: shard, Limit: 1000, Window: 1000, Lease: time.Minute, Worker: "night-shift",
		})
		if err != nil || len(claimed.Batch.Messages) == 0 {
			return err
		}
		completion := &driver.Completion{Lease: claimed.Batch.Lease, BlockAbandoned: true}
		for i := range claimed.Batch.Messages {
			m := &claimed.Batch.Messages[i]
			last := outcome(m.MessageID)
			switch {
			case last == nil:
				completion.Published = append(completion.Published, driver.Delivered{ID: m.ID, BrokerMessageID: "1-0"})
			case last.Class == "not_sent":
				completion.Other = append(completion.Other, driver.Outcome{ID: m.ID, Status: outbox.StatusPending})
			default:
				o := driver.Outcome{ID: m.ID, Status: outbox.StatusFailed, Delay: time.Hour, Spent: true}
				if last.Class == "permanent" {
					o.Status, o.Delay = outbox.StatusAbandoned, 0
				}
				source, err := json.Marshal(last)
				if err != nil {
					return err
				}
				o.LastError = string(source)
				completion.Other = append(completion.Other, o)
			}
		}
		_, err = store.Exchange(s.Context(), completion, nil)
		return err
	})
}
