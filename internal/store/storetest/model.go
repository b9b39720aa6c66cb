package storetest

import (
	"encoding/binary"
	"flag"
	"os"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/internal/explore"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

var modelTests = []test{
	{name: "AnySchedule", run: testAnySchedule},
	{name: "Scenarios", run: testScenarios},
}

// Each action costs a database some statements, and SQLite under the race detector some more: so a
// run makes fewer schedules than rapid's default of 100, unless -rapid.checks says otherwise. A
// failure prints the seed that replays it. With FANOUT_TEST_SCHEDULES=1000 a run makes 1,000
// schedules, the same ones each time.
func init() { //nolint:gochecknoinits // a default must be in place before the flags are read
	_ = flag.Set("rapid.checks", "25")
	_ = flag.Set("rapid.nofailfile", "true")
	if schedules := os.Getenv("FANOUT_TEST_SCHEDULES"); schedules != "" {
		if err := flag.Set("rapid.checks", schedules); err != nil {
			panic("FANOUT_TEST_SCHEDULES: " + err.Error() + ": give the number of schedules, e.g. 1000")
		}
		_ = flag.Set("rapid.seed", "1")
	}
}

// A modelRun takes one schedule through the transition function of package protocol and through a
// store at once, and compares them after each action: what the store answers, and then every row,
// every block and the shards that are ready.
type modelRun struct {
	*table
	keys     []string // a key's number in the model is 1 + its place in here
	protocol *explore.Protocol
	state    explore.State
	// anyOutcome has batches completed in ways that no worker would choose, with order and without
	// in turns. The invariants are not for these schedules; a store must follow the model all the
	// same.
	anyOutcome bool
	most       int                  // how many rows there are at a time
	leases     map[int]driver.Lease // by the model's token
	loose      []uuid.UUID          // message ids that put a row without a key into the shard of the test
	ids        uint64               // message ids given to rows that have a key
	compared   int                  // states of rows
	besides    []int64              // rows that the next filter of an operator names, and its action is not for
}

// A modelT is a *testing.T or a *rapid.T.
type modelT interface {
	require.TestingT
	Log(args ...any)
}

// newModelRun starts with an empty table.
func (t *table) newModelRun(keys []string, loose []uuid.UUID, workers int) *modelRun {
	t.exec("DELETE FROM {t}_key_blocks")
	t.exec("DELETE FROM {t}")
	return &modelRun{
		table: t, keys: keys, protocol: explore.Default(), state: explore.NewState(workers), most: modelRows / 2,
		leases: map[int]driver.Lease{}, loose: loose,
	}
}

// modelRows is how many rows a schedule writes at most.
const modelRows = 80

// testAnySchedule runs random schedules of writers, workers, crashes, time and operators.
func testAnySchedule(t *table) {
	keys, loose := t.keys(4), t.looseIDs(modelRows)
	rapid.Check(t, func(rt *rapid.T) {
		// In a small world few rows of few keys are in few hands, and what can go wrong between
		// them does so more often.
		small := rapid.IntRange(0, 2).Draw(rt, "size") > 0
		workers, own := 4, keys
		if small {
			workers, own = 2, keys[:rapid.IntRange(1, 2).Draw(rt, "keys")]
		}
		run := t.newModelRun(own, loose, workers)
		if small {
			run.most = rapid.IntRange(2, 6).Draw(rt, "rows at a time")
		}
		run.protocol.MaxAttempts = rapid.IntRange(1, 3).Draw(rt, "max_attempts")
		run.protocol.DeletePublished = rapid.Bool().Draw(rt, "keep: false")
		run.protocol.BlockAbandoned = rapid.Bool().Draw(rt, "on_abandon: block")
		run.anyOutcome = rapid.Bool().Draw(rt, "any outcome")
		run.write(rt)
		rt.Repeat(map[string]func(*rapid.T){"next": run.next, "": func(rt *rapid.T) { run.compare(rt) }})
		if !run.anyOutcome {
			run.finish(rt)
		}
	})
}

// A scenario is the shortest way in which one mistake in the protocol does harm. A store that
// follows the protocol, and so the model, all the way has not made that mistake; what the scenario
// says after that need not be possible.
func testScenarios(t *table) {
	keys, loose := t.keys(4), t.looseIDs(modelRows)
	for _, s := range explore.Scenarios() {
		t.Log("scenario:", s.Name)
		run := t.newModelRun(keys, loose, s.Workers)
		run.protocol.MaxAttempts, run.protocol.BlockAbandoned, run.protocol.DeletePublished = s.MaxAttempts, s.BlockAbandoned, s.DeletePublished
		rows, tokens := map[int]int{}, map[int]int{} // those of the scenario, and those here
		for _, step := range s.Steps {
			a := step.Action
			a.ID, a.Token = rows[a.ID], tokens[a.Token]
			reply, ok := run.do(t, &a)
			if ok && a.Kind == explore.Write {
				rows[step.Action.Rows[0].ID] = a.Rows[0].ID
			}
			if ok && a.Kind == explore.Claim {
				tokens[step.Token] = reply.Token
			}
			run.compare(t)
		}
	}
}

// newID gives the same ids in every run of a schedule, so that a failure can be replayed and made
// shorter.
func (run *modelRun) newID(key string) (id uuid.UUID) {
	if key == "" {
		id, run.loose = run.loose[0], run.loose[1:]
		return id
	}
	run.ids++
	binary.BigEndian.PutUint64(id[8:], run.ids)
	return id
}

// looseIDs finds message ids that put a row without a key into the shard of the test.
func (t *table) looseIDs(n int) (ids []uuid.UUID) {
	t.Helper()
	for i := uint64(1); len(ids) < n; i++ {
		row := newRow("")
		row.MessageID = uuid.UUID{0: 1}
		binary.BigEndian.PutUint64(row.MessageID[8:], i)
		if t.here(&row) {
			ids = append(ids, row.MessageID)
		}
	}
	return ids
}
