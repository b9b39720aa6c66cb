package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/wakeup"
)

// A whole transaction, with a database that costs nothing. What GORM and database/sql allocate is
// theirs: the numbers are what the plugin adds to that. They are the same with Go 1.25 and 1.26.
func TestAllocationsOfACommit(t *testing.T) { // not parallel, as other tests would be counted too
	testenv.NeedExactAllocations(t)
	c := newCommitPath(t, discarding(t), gorm.Config{})
	measured := map[string]int{}
	for _, kind := range c.kinds {
		run := func() {
			if err := kind.run(); err != nil {
				t.Fatal(err)
			}
		}
		run() // parses models, builds texts
		measured[kind.name] = int(testenv.Allocations(200, run))
	}
	cancel := onCommit(c.plugin, func([]wakeup.WakeUp) bool { return true })
	measured["told"] = int(testenv.Allocations(200, func() {
		if err := c.event(); err != nil {
			t.Fatal(err)
		}
	}))
	cancel()
	t.Log(measured)
	require.Equal(t, 1, measured["other-model"]-measured["plain"], "a model that is no aggregate")
	require.Equal(t, 6, measured["no-event"]-measured["plain"], "an aggregate that has raised nothing")
	require.Equal(t, 47, measured["event"]-measured["plain"], "one event, two brokers: of them three for the correlation id, its text, and its value in each row")
	require.Equal(t, 1, measured["told"]-measured["event"], "a relay in this process is told for which brokers and shards")
	require.Less(t, measured["event"], measured["by-hand"], "one event, two brokers")
}

// The same for transactions of many aggregates, a thousand and ten thousand, each with one event.
func TestAllocationsOfManyAggregates(t *testing.T) { // not parallel
	testenv.NeedExactAllocations(t)
	c := newCommitPath(t, discarding(t), gorm.Config{})
	perAggregate := func(n int) float64 {
		orders := make([]commitOrder, n)
		for i := range orders {
			orders[i].ID = "order"
		}
		total := testing.AllocsPerRun(1, func() {
			for i := range orders {
				orders[i].Raise(OrderPlaced{OrderID: "order"})
			}
			err := c.plugin.Transaction(func(tx *gorm.DB) error { return tx.CreateInBatches(orders, 500).Error })
			if err != nil {
				t.Fatal(err)
			}
		})
		return total / float64(n)
	}
	few, many := perAggregate(1000), perAggregate(10_000)
	t.Logf("allocations per aggregate, GORM's included: %.2f and %.2f", few, many)
	require.InEpsilon(t, few, many, 0.01)
}
