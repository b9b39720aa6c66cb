package explore

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// coreMutations are edits of the product's own code, package core, with which the same must happen.
var coreMutations = []struct {
	name          string
	file          string
	old, mistaken string
	world, breaks string
}{
	{
		"a key is claimed while a later row of it is claimed", "claim.go",
		"claimed[row.Key] = true", "claimed[row.Key] = false", "operators", OneHand,
	},
	{
		"claims leave out rows in backoff and take what follows", "claim.go",
		"v.clear, v.waits = v.clear && before.clear, v.waits || before.waits", "v.waits = v.waits || before.waits", "failures", Order,
	},
	{
		"claims take what is behind a block", "claim.go",
		"v.clear && !behind, v.waits || behind", "v.clear, v.waits || behind", "blocks", Order,
	},
	{
		"a lease that ran out is not recovered", "claim.go",
		"clear: !row.Waits,", "clear: !row.Waits && !row.Leased,", "faults", Progress,
	},
	{
		"a shard is taken as it stands though blocks hold its keys back", "claim.go",
		" || behindBlock(row) || i > 0", " || i > 0", "blocks", Order,
	},
	{
		"what crashed its process is claimed with others forever", "claim.go",
		"max(1, limits.Rows>>min(suspicion, 30))", "limits.Rows", "poison", Progress,
	},
	{
		"claims pass by a row that another transaction writes", "claim.go",
		`if row.Key == "" {`, `if row.Key == "" || row.Held {`, "held", Order,
	},
	{
		"followers stay deferred without a block", "claim.go",
		"(first[row.Key] || behindBlock(row))", "(first[row.Key] || row.HasBlock || i > 0 && w.Rows[i-1].Waits)", "blocks", NothingLost,
	},
	{
		"a block goes that has more followers", "lift.go",
		"move := len(b.Followers) >= followers", "move := len(b.Followers) > followers", "blocks", NothingLost,
	},
	{
		"a block is done when its time has come", "lift.go",
		"case b.Done:", "case b.Done || b.Due:", "blocks", Order,
	},
	{
		"a row that comes back is deferred though no block is before it", "operate.go",
		`ok && row.Key != "" && block < row.ID`, `(ok || row.Key != "") && block < row.ID`, "operators", NothingLost,
	},
	{
		"a requeue lets a key go on that waits for an operator because of another row", "operate.go",
		"(row != nil || !b.Operator)", "true", "pairs", Order,
	},
	{
		"a block is not woken when its own row is requeued", "operate.go",
		"case comes && next.ID <= b.ID &&", "case comes && next.ID == b.ID:\n\tcase comes && next.ID < b.ID &&", "on_abandon: block", Progress,
	},
}

// Each mistake is found, in the fewest steps that lead to it. The ways to them are the scenarios
// that every store must follow the model through, but for those with a dirty read, which no test can
// time. The edits of the product's code are compiled and explored with FANOUT_TEST_LONG=1 alone.
func TestMutations(t *testing.T) {
	t.Parallel()
	list := make([]Scenario, 0, len(mutations)+len(coreMutations))
	for _, m := range mutations {
		w := sized(t, m.world, normal)
		w.protocol.broken = m.mutation
		list = append(list, scenarioOf(t, m.name, w, m.breaks))
	}
	known := Scenarios()
	dirty := func(step ScenarioStep) bool { return step.Action.Request.Held > 0 }
	for _, m := range coreMutations {
		text, err := os.ReadFile(filepath.Join("..", "core", m.file))
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(text), m.old), "%s: what it edits in %s", m.name, m.file)
		if os.Getenv("FANOUT_TEST_LONG") != "" {
			mistaken := strings.Replace(string(text), m.old, m.mistaken, 1)
			if found := exploreEdited(t, m.file, mistaken, m.name, m.world, m.breaks); !slices.ContainsFunc(found.Steps, dirty) {
				list = append(list, found)
			}
			continue
		}
		if m.world == "held" {
			continue // no store can be made to read it
		}
		at := slices.IndexFunc(known, func(s Scenario) bool { return s.Name == m.name })
		require.GreaterOrEqual(t, at, 0, "%s: run FANOUT_TEST_LONG=1 go test ./internal/explore -run TestMutations -update", m.name)
		list = append(list, known[at])
	}
	text := scenarioText(t, list)
	if *update {
		require.NoError(t, os.WriteFile("scenarios.json", []byte(text), 0o600))
		return
	}
	assert.JSONEq(t, string(scenarios), text, "run FANOUT_TEST_LONG=1 go test ./internal/explore -run TestMutations -update")
}

// scenarioOf explores a world until the mistake shows.
func scenarioOf(t *testing.T, name string, w *world, breaks string) Scenario {
	t.Helper()
	x := &exploration{world: w, only: breaks}
	found := x.explore()
	require.NotNil(t, found, "%s: nothing was found in %d states", name, len(x.origins))
	t.Logf("%s: found in %d states\n%s", name, len(x.origins), found)
	return Scenario{
		Name: name, Harm: found.Violation.String(), Workers: w.workers,
		MaxAttempts: w.protocol.MaxAttempts, BlockAbandoned: w.protocol.BlockAbandoned, DeletePublished: w.protocol.DeletePublished, Steps: found.trace,
	}
}

// exploreEdited explores a world with an edited file of package core, in a process that was
// compiled with it.
func exploreEdited(t *testing.T, file, text, name, worldName, breaks string) (s Scenario) {
	t.Helper()
	dir := t.TempDir()
	original, err := filepath.Abs(filepath.Join("..", "core", file))
	require.NoError(t, err)
	edited, overlay, result := filepath.Join(dir, file), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "scenario.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: edited}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(edited, []byte(text), 0o600))
	require.NoError(t, os.WriteFile(overlay, replace, 0o600))
	cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay="+overlay, "-run=^TestEdited$", "-count=1", ".")
	cmd.Env = append(os.Environ(), "FANOUT_EDITED="+strings.Join([]string{name, worldName, breaks, result}, "|"))
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s:\n%s", name, output)
	encoded, err := os.ReadFile(result)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(encoded, &s))
	return s
}

// TestEdited is run by TestMutations, in a process that has a mistake.
func TestEdited(t *testing.T) {
	t.Parallel()
	parts := strings.Split(os.Getenv("FANOUT_EDITED"), "|")
	if len(parts) != 4 {
		t.Skip("TestMutations runs it")
	}
	encoded, err := json.Marshal(scenarioOf(t, parts[0], sized(t, parts[1], normal), parts[2]))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(parts[3], encoded, 0o600))
}

// Where nothing orders the writers of a key, its rows can become visible against their ids, and no
// claim can know. This is why the guarantee is for keys whose writers share a lock.
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
