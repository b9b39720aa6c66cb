package protocol

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
	{"a key is claimed while a later row of it is claimed", ignoresInHand, "operators", OneHand},
	{"claims leave out rows in backoff and take what follows", leavesGaps, "failures", Order},
	{"claims take what is behind a block", ignoresBlocks, "blocks", Order},
	{"claims of one class do not look at the others", ignoresClasses, "classes", Order},
	{"a claim does not look again when it takes", takesBlindly, "halves", FinalStates},
	{"a lease that ran out is not recovered", recoversNothing, "faults", Progress},
	{"a crash is charged to all rows of the claim", chargesAll, "faults", Attempts},
	{"an outage costs an attempt", spendsOnOutage, "failures", Attempts},
	{"no message is ever given up", neverGivesUp, "failures", Attempts},
	{"what follows a failed message is sent", sendsFollowers, "failures", Order},
	{"a worker sends after the end of its lease", sendsLate, "faults", LateSend},
	{"what failed counts as published", guessesPublished, "failures", Confirmed},
	{"what was delivered goes back", forgetsDelivered, "failures", Duplicates},
	{"followers pass a block that is not done", advancesEarly, "blocks", Order},
	{"claimed rows are deferred", defersLeased, "blocks", OneClaim},
	{"the block of an abandoned row replaces one that holds another row", replacesBlock, "late words", NothingLost},
	{"a row is requeued and its block is not", requeueIgnoresBlocks, "on_abandon: block", Progress},
	{"a purge does not look again when it removes", purgesBlindly, "operators", FinalStates},
}

// Each mistake is found, in the fewest steps that lead to it. The ways to them are the scenarios that every store must
// follow the model through.
func TestMutations(t *testing.T) {
	t.Parallel()
	list := make([]Scenario, len(mutations))
	for i, m := range mutations {
		w := sized(t, m.world, normal)
		w.protocol.broken = m.mutation
		x := &exploration{world: w, only: m.breaks}
		found := x.explore()
		require.NotNil(t, found, "%s: nothing was found in %d states", m.name, len(x.origins))
		t.Logf("%s: found in %d states\n%s", m.name, len(x.origins), found)
		list[i] = Scenario{
			Name: m.name, Harm: found.Violation.String(), Workers: w.workers,
			MaxAttempts: w.protocol.MaxAttempts, BlockAbandoned: w.protocol.BlockAbandoned, Steps: found.trace,
		}
	}
	text := scenarioText(t, list)
	if *update {
		require.NoError(t, os.WriteFile("scenarios.json", []byte(text), 0o600))
		return
	}
	assert.Equal(t, string(scenarios), text, "run go test ./outbox/internal/protocol -run TestMutations -update")
}

// Where nothing orders the writers of a key, its rows can become visible against their ids, and no claim can know. This is
// why the guarantee is for keys whose writers share a lock.
func TestWritersWithoutALock(t *testing.T) {
	t.Parallel()
	w := sized(t, "faults", normal)
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
