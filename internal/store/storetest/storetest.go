// Package storetest is the conformance suite of outbox stores. A store package runs it against a
// real database:
//
//	func TestConformance(t *testing.T) { storetest.Run(t, newBundle) }
//
// The suite looks at the table from outside, by plain SQL, as an operator would. It never sleeps:
// the database's clock decides what is due, so a test makes time pass by moving the times that
// stand in the rows.
package storetest

import (
	"context"
	"database/sql"
	"slices"
	"testing"

	"github.com/gorm-fanout/fanout/internal/store/claims"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// A Bundle is one store on a table of its own, and what the suite needs to look at that table from
// outside.
type Bundle struct {
	// Store under test. Its table does not exist yet: the suite calls Migrate.
	Store driver.Store
	// DB is another way into the same database, with no less than four connections unless OneWriter
	// is set.
	DB *sql.DB
	// Table is the name of the store's table.
	Table string
	// Open makes a further store on the same database, as another process would. It is closed when
	// the test ends.
	Open func(t *testing.T, table string) driver.Store
	// Tables are further names for tables that must work: odd ones, and with a schema where the
	// database knows schemas.
	Tables []string
	// HoldShard takes the claim lock of a shard on another connection until release is called; nil
	// where a claim waits instead of being told that the shard is busy.
	HoldShard func(t *testing.T, broker string, shard int) (release func())
	// OpenUnhurried makes a further store whose sessions look for a deadlock later, after ten seconds,
	// so that other sessions find it first; nil where the server itself chooses which one to break off.
	OpenUnhurried func(t *testing.T, table string) driver.Store
	// PrefersLarger says that the server breaks off whichever of two transactions has changed fewer rows,
	// and cannot be told otherwise, so that a store's can win over another session's.
	PrefersLarger bool
	// Decided is the part of a store, the one under test or one of Open's, that its claims are built
	// from; nil where no session can write between what a claim reads and what it writes.
	Decided func(store driver.Store) claims.Store
	// BeginWriter begins a transaction for the tests of outbox.Writer; nil for one of database/sql on DB.
	BeginWriter func(ctx context.Context, t *testing.T) WriterTx
	// OneWriter says that the database lets one transaction write at a time.
	OneWriter bool
}

// Run runs the suite. newBundle is called once for each test, from tests that run in parallel.
func Run(t *testing.T, newBundle func(t *testing.T) Bundle) {
	t.Helper()
	run(t, 1, groups, newBundle)
}

// RunOnceMore runs the suite in another setting of a store that [Run] tests, too. Where
// [testenv.Long] does not hold, it is an eighth of the tests, another one with each seed.
func RunOnceMore(t *testing.T, newBundle func(t *testing.T) Bundle) {
	t.Helper()
	testenv.NeedSeconds(t)
	share := 1
	if !testenv.Long() {
		share = 8
	}
	run(t, share, groups, newBundle)
}

// A group of cases has a name.
type group struct {
	name  string
	tests []test
}

// manyOfAKind names the groups whose tests resemble each other: -short runs a fourth of them, and half of the others.
var manyOfAKind = []string{"Outside", "Locked", "Schema"}

var groups = []group{
	{"Write", writeTests},
	{"Writer", writerTests},
	{"Shards", shardTests},
	{"KeyLocks", keyLockTests},
	{"Claim", claimTests},
	{"Bytes", bytesTests},
	{"Order", orderTests},
	{"Defer", deferTests},
	{"Ahead", aheadTests},
	{"Abandon", abandonTests},
	{"Priority", priorityTests},
	{"PriorityChanged", priorityChangedTests},
	{"Between", betweenTests},
	{"Crash", crashTests},
	{"Complete", completeTests},
	{"Delete", deleteTests},
	{"Lease", leaseTests},
	{"Ready", readyTests},
	{"Alone", aloneTests},
	{"Race", raceTests},
	{"Outside", outsideTests},
	{"Locked", lockedTests},
	{"Purge", purgeTests},
	{"Operate", operateTests},
	{"Hostile", hostileTests},
	{"Pause", pauseTests},
	{"Registry", registryTests},
	{"Counts", countsTests},
	{"Overview", overviewTests},
	{"List", listTests},
	{"Message", messageTests},
	{"Find", findTests},
	{"Blocked", blockedTests},
	{"Abandoned", abandonedTests},
	{"States", stateTests},
	{"Audit", auditTests},
	{"Schema", schemaTests},
	{"Diagnose", diagnoseTests},
	{"Model", modelTests},
}

// run runs one of so many tests.
func run(t *testing.T, share int, groups []group, newBundle func(t *testing.T) Bundle) {
	t.Helper()
	for _, group := range groups {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) {
					t.Parallel()
					if testenv.Turn(t, share) != 0 {
						t.Skip("another test's turn: make test-all runs all of them")
					}
					oneOf := 2
					if slices.Contains(manyOfAKind, group.name) {
						oneOf = 4
					}
					if test.seconds || testenv.Turn(t, oneOf) != 0 {
						testenv.NeedSeconds(t)
					}
					if !test.concurrent {
						testenv.OneStepAtATime(t)
					}
					bundle := newBundle(t)
					if !test.bare {
						if _, err := bundle.Store.Migrate(t.Context()); err != nil {
							t.Fatalf("migrate: %v", err)
						}
					}
					test.run(newTable(t, bundle))
				})
			}
		})
	}
}

// A test is one case of the suite.
type test struct {
	name string
	run  func(*table)
	bare bool // the test migrates by itself

	seconds bool // the test keeps a processor busy for that long

	// concurrent tests call stores from several goroutines at once: what the race detector is for.
	concurrent bool
}
