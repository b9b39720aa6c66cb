package explore

import (
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

var update = flag.Bool("update", false, "write scenarios.json")

// mutations are mistakes, a world in which each does harm, and the invariant that it breaks.
var mutations = []struct {
	name     string
	mutation mutation
	world    string
	breaks   string
}{
	{"marks are made without the token", noFence, "faults", Fence},
	{"a failure is written over published", overwrites, "faults", FinalStates},
	{"rows are claimed in the order of their times", byTime, "faults", Order},
	{"claims pass by rows in other hands", ignoresHeld, "faults", Order},
	{"a claim does not look again when it takes", takesBlindly, "halves", FinalStates},
	{"a crash is charged to all rows of the claim", chargesAll, "faults", Attempts},
	{"an outage costs an attempt", spendsOnOutage, "failures", Attempts},
	{"no message is ever abandoned", neverGivesUp, "failures", Attempts},
	{"what follows a failed message is sent", sendsFollowers, "failures", Order},
	{"a worker sends after the end of its lease", sendsLate, "faults", LateSend},
	{"what failed counts as published", guessesPublished, "failures", Confirmed},
	{"what was delivered goes back", forgetsDelivered, "failures", Duplicates},
	{"followers pass a block that is not done", advancesEarly, "blocks", Order},
	{"the block of an abandoned row replaces one that holds another row", replacesBlock, "late words", NothingLost},
	{"a block holds back what another class has of its key", blocksEveryClass, "classes", Progress},
	{"a row is requeued and its block is not", requeueIgnoresBlocks, "on_abandon: block", Progress},
	{"a claim takes what it chose before a row of the key came back", takesStale, "replays in halves", OneHand},
	{"nobody learns that a lease that was over is renewed", renewsUnseen, "replays in halves", OneHand},
	{"blocks are changed as was decided before another change", changesStale, "blocks in halves", NothingLost},
	{"a row becomes a block that waits for nothing any more", blocksBlindly, "blocks in halves", NothingLost},
	{"a purge does not look again when it removes", purgesBlindly, "operators", FinalStates},
	{"rows are removed without the token", removesUnfenced, "not kept", Fence},
	{"followers pass a block whose row is still there", advancesEarly, "blocks of rows not kept", Order},
	{"what failed is removed as if it was delivered", guessesPublished, "not kept", Confirmed},
}

// Each mistake is found, in the fewest steps that lead to it. The ways to them are the scenarios
// that every store must follow the model through. The other scenarios are the ways to the mutants of
// package core (integration/mutants/core), which TestExplore finds; they stay as they were found.
func TestMutations(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	list := make([]Scenario, len(mutations))
	var all sync.WaitGroup
	for i, m := range mutations {
		w := sized(t, m.world, long)
		w.protocol.broken = m.mutation
		all.Go(func() { list[i] = scenarioOf(t, m.name, w, m.breaks) })
	}
	all.Wait()
	others := slices.DeleteFunc(Scenarios(), func(known Scenario) bool {
		return slices.ContainsFunc(list, func(s Scenario) bool { return s.Name == known.Name })
	})
	text := scenarioText(t, slices.Concat(list, others))
	if *update {
		require.NoError(t, os.WriteFile("scenarios.json", []byte(text), 0o600))
		return
	}
	assert.JSONEq(t, string(scenarios), text, "run go test ./internal/explore -run TestMutations -update")
}

// scenarioOf explores a world until the mistake shows.
func scenarioOf(t *testing.T, name string, w *world, breaks string) (s Scenario) {
	t.Helper()
	x := &exploration{world: w, only: breaks}
	found := x.explore()
	if !assert.NotNil(t, found, "%s: nothing was found in %d states", name, len(x.origins)) {
		return s
	}
	t.Logf("%s: found in %d states\n%s", name, len(x.origins), found)
	return Scenario{
		Name: name, Harm: found.Violation.String(), Workers: w.workers,
		MaxAttempts: w.protocol.MaxAttempts, BlockAbandoned: w.protocol.BlockAbandoned, DeletePublished: w.protocol.DeletePublished, Steps: found.trace,
	}
}

// Where nothing orders the writers of a key, its rows can become visible against their ids, and no
// claim can know. This is why the guarantee is for keys whose writers share a lock.
func TestWritersWithoutALock(t *testing.T) {
	t.Parallel()
	w := sized(t, "faults", long)
	w.unlocked = true
	found := (&exploration{world: w}).explore()
	require.NotNil(t, found)
	assert.Equal(t, Order, found.Name, found)
	t.Log(found)
}

// scenarioText is JSON with one line for each scenario and one for each of its steps.
func scenarioText(t *testing.T, list []Scenario) string {
	t.Helper()
	encode := func(value any) string {
		text, err := json.Marshal(value)
		require.NoError(t, err)
		return string(text)
	}
	texts := make([]string, len(list))
	for i, s := range list {
		steps := make([]string, len(s.Steps))
		for k, step := range s.Steps {
			steps[k] = "\n  " + encode(step)
		}
		s.Steps = nil
		texts[i] = strings.Replace(encode(s), "null", "["+strings.Join(steps, ",")+"]", 1)
	}
	return "[" + strings.Join(texts, ",\n") + "]\n"
}

func scenarioStep(a *Action, reply *Reply) ScenarioStep {
	return ScenarioStep{Text: Describe(a, reply), Action: *a, Token: reply.Token}
}
