package explore

import (
	"os"
	"testing"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

// small is a protocol whose bounds are within reach of small worlds.
func small() Protocol {
	return Protocol{MaxAttempts: 2, AdvanceBlocks: 2, AdvanceRows: 1}
}

func deferring() Protocol {
	p := small()
	p.BlockAbandoned = true
	return p
}

// notKept is a protocol that removes what is delivered.
func notKept(p Protocol) Protocol {
	p.DeletePublished = true
	return p
}

// keyed lists rows of these keys. Their times run against their ids.
func keyed(keys ...int) []NewRow {
	rows := make([]NewRow, len(keys))
	for i, key := range keys {
		rows[i] = NewRow{ID: i + 1, Key: key, At: -i}
	}
	return rows
}

// A size says how much can go wrong in a world: as a rule, with FANOUT_TEST_LONG=1, and with
// FANOUT_TEST_WORLDS=large, which takes minutes and some gigabytes of memory.
type size int

const (
	quick size = iota
	long
	large
	sizes
)

func sizeOf() size {
	switch {
	case os.Getenv("FANOUT_TEST_WORLDS") == "large":
		return large
	case testenv.Long():
		return long
	default:
		return quick
	}
}

// A bound is how many faults, failures of messages and repairs by operators a world sees at most.
type bound struct{ faults, failures, repairs int }

// worlds are all that are explored. Every one of them has two workers or more, three rows or more,
// and two keys.
var worlds = []struct {
	world

	bounds [sizes]bound
}{
	{world{ // crashes, stalls, lost answers and lost claims, two messages at a time with the broker, commits in any order
		name: "faults", rows: keyed(1, 1, 2), anyOrder: true, chunk: 2, results: []Result{AnswerLost, Retryable}, undone: true,
	}, [sizes]bound{{1, 1, 0}, {1, 1, 0}, {3, 1, 0}}},
	{world{ // whatever a broker can answer, and workers that stop before they are through
		name: "failures", rows: keyed(1, 1, 2), chunk: 1, results: []Result{AnswerLost, Retryable, Refused, Unavailable, Closed}, stops: true,
	}, [sizes]bound{{0, 2, 0}, {1, 1, 0}, {1, 2, 0}}},
	{world{ // rows in backoff leave the claim's way, and followers come back one by one
		name: "blocks", rows: keyed(1, 1, 1, 2), chunk: 1, results: []Result{Retryable, Refused}, defers: true,
	}, [sizes]bound{{0, 1, 0}, {1, 1, 0}, {2, 1, 0}}},
	{world{ // rows with a schedule, which their keys pass, and rows without a key
		name: "scheduled", chunk: 1, results: []Result{Retryable}, defers: true,
		rows: []NewRow{{ID: 1, Key: 1, Scheduled: true}, {ID: 2, Key: 1}, {ID: 3, Key: 2}, {ID: 4, Scheduled: true}},
	}, [sizes]bound{{0, 1, 0}, {0, 1, 0}, {1, 1, 0}}},
	{world{ // the same in claims and lifts in two halves
		name: "scheduled in halves", chunk: 1, results: []Result{Retryable}, split: true, defers: true,
		rows: []NewRow{{ID: 1, Key: 1, Scheduled: true}, {ID: 2, Key: 1}, {ID: 3, Key: 1}},
	}, [sizes]bound{{0, 0, 0}, {0, 1, 0}, {1, 1, 0}}},
	{world{ // an abandoned row defers its key, and operators act
		name: "on_abandon: block", protocol: deferring(), rows: keyed(1, 1, 2), chunk: 2, results: []Result{Retryable, Refused}, defers: true,
		repair: []Kind{Requeue, UnblockKey, Drop},
	}, [sizes]bound{{0, 1, 1}, {0, 2, 1}, {2, 2, 1}}},
	{world{ // the same with a row that cannot be sent at all
		name: "on_abandon: block, malformed", protocol: deferring(), chunk: 2, results: []Result{Retryable}, defers: true,
		rows: []NewRow{{ID: 1, Key: 1, Dead: true}, {ID: 2, Key: 1, Dead: true}, {ID: 3, Key: 2}}, repair: []Kind{Requeue, UnblockKey},
	}, [sizes]bound{{0, 1, 0}, {1, 1, 1}, {1, 2, 1}}},
	{world{ // late marks of abandoned rows beside blocks
		name: "late words", protocol: deferring(), rows: keyed(1, 1, 2), chunk: 2, results: []Result{Retryable, Refused}, defers: true,
	}, [sizes]bound{{1, 1, 0}, {1, 2, 0}, {2, 2, 0}}},
	{world{ // one key in two classes of priority, of which neither waits for the other
		name: "classes", protocol: deferring(), shards: []Class{Normal, Backfill}, chunk: 1, results: []Result{Retryable, Refused}, defers: true,
		rows: []NewRow{{ID: 1, Key: 1, Class: Backfill}, {ID: 2, Key: 1}, {ID: 3, Key: 2}, {ID: 4, Key: 1, Class: Backfill}},
	}, [sizes]bound{{0, 1, 0}, {1, 1, 0}, {1, 2, 0}}},
	{world{ // operators and the purge, at any moment
		name: "operators", rows: keyed(1, 1, 2), chunk: 1, results: []Result{Refused}, purges: true, defers: true, repair: []Kind{Requeue, Replay, Drop},
	}, [sizes]bound{{0, 1, 1}, {0, 1, 1}, {1, 1, 2}}},
	{world{ // operators who act on two rows at once, of keys that wait for them, too
		name: "pairs", protocol: deferring(), rows: []NewRow{{ID: 1, Key: 1}, {ID: 2, Key: 1}, {ID: 3, Key: 1, Scheduled: true}}, chunk: 1,
		results: []Result{Retryable, Refused}, defers: true, repair: []Kind{Requeue, Replay, Drop, UnblockKey}, pairs: true,
	}, [sizes]bound{{0, 1, 1}, {0, 2, 1}, {0, 2, 2}}},
	{world{ // claims in two halves, between which anything happens
		name: "halves", rows: keyed(1, 1, 2), chunk: 1, results: []Result{Retryable}, split: true,
	}, [sizes]bound{{1, 0, 0}, {1, 1, 0}, {3, 1, 0}}},
	{world{ // claims and changes of blocks in two halves
		name: "blocks in halves", rows: keyed(1, 1, 1), chunk: 1, results: []Result{Retryable, Refused}, split: true, defers: true,
	}, [sizes]bound{{0, 1, 0}, {1, 1, 0}, {2, 1, 0}}},
	{world{ // the same with operators, and with keys that wait for them
		name: "operators in halves", protocol: deferring(), rows: keyed(1, 1), chunk: 2, results: []Result{Retryable, Refused}, split: true, defers: true,
		purges: true, repair: []Kind{Requeue, Replay, Drop, UnblockKey},
	}, [sizes]bound{{0, 1, 1}, {0, 1, 1}, {1, 1, 1}}},
	{world{ // leases that run out, and replays, around a claim in two halves
		name: "replays in halves", rows: keyed(1, 1, 1), chunk: 2, split: true, repair: []Kind{Requeue, Replay},
	}, [sizes]bound{{1, 0, 1}, {1, 0, 1}, {2, 0, 2}}},
	{world{ // rows that go as they are delivered: crashes, stalls, and lost answers and claims
		name: "not kept", protocol: notKept(small()), rows: keyed(1, 1, 2), anyOrder: true, chunk: 2, results: []Result{AnswerLost, Retryable}, undone: true,
	}, [sizes]bound{{1, 1, 0}, {1, 1, 0}, {3, 1, 0}}},
	{world{ // the same with blocks whose row goes, keys that wait for an operator, operators and the purge
		name: "blocks of rows not kept", protocol: notKept(deferring()), rows: keyed(1, 1, 1), chunk: 1, results: []Result{Retryable, Refused}, defers: true,
		purges: true, repair: []Kind{Requeue, UnblockKey, Drop},
	}, [sizes]bound{{0, 1, 1}, {1, 1, 1}, {1, 2, 1}}},
	{world{ // the same in claims and changes of blocks in two halves
		name: "not kept, in halves", protocol: notKept(small()), rows: keyed(1, 1, 1), chunk: 1, results: []Result{Retryable}, split: true, defers: true,
	}, [sizes]bound{{0, 1, 0}, {1, 1, 0}, {2, 1, 0}}},
	{world{ // rows that others are writing while a window is read, of which only a dirty read knows
		name: "held", rows: keyed(1, 1, 2), chunk: 2, results: []Result{Retryable}, held: true, defers: true,
	}, [sizes]bound{{0, 1, 0}, {1, 1, 0}, {2, 1, 0}}},
	{world{ // the same in claims in two halves
		name: "held in halves", rows: keyed(1, 1, 2), chunk: 1, results: []Result{Retryable}, held: true, split: true, defers: true,
	}, [sizes]bound{{0, 0, 0}, {0, 1, 0}, {1, 1, 0}}},
	{world{ // a row that kills whoever sends it
		name: "poison", rows: keyed(1, 2, 1, 0), limits: []int{4}, window: 4, chunk: 2, poison: 2,
	}, [sizes]bound{{0, 0, 0}, {1, 0, 0}, {2, 0, 0}}},
	{world{ // three workers
		name: "three workers", rows: keyed(1, 1, 2), workers: 3, chunk: 2, results: []Result{Retryable},
	}, [sizes]bound{{1, 0, 0}, {1, 1, 0}, {3, 1, 0}}},
	{world{ // a window that is smaller than the shard
		name: "small window", rows: keyed(1, 1, 2), limits: []int{1, 2}, window: 2, chunk: 2, results: []Result{Retryable, Refused}, defers: true,
	}, [sizes]bound{{0, 1, 0}, {1, 1, 0}, {2, 2, 0}}},
}

// sized returns a world with its defaults filled in.
func sized(t *testing.T, name string, s size) *world {
	t.Helper()
	for i := range worlds {
		if worlds[i].name != name {
			continue
		}
		w, b := worlds[i].world, worlds[i].bounds[s]
		w.faults, w.failures, w.repairs = b.faults, b.failures, b.repairs
		if w.protocol.MaxAttempts == 0 {
			w.protocol = small()
		}
		if w.shards == nil {
			w.shards = []Class{Normal}
		}
		if w.limits == nil {
			w.limits, w.window = []int{2}, 3
		}
		w.workers = max(w.workers, 2)
		return &w
	}
	t.Fatalf("there is no world %q", name)
	return nil
}
