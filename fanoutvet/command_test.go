package fanoutvet_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The command says the same under go vet, which runs it once for each package, and by itself, where
// it sees all of them.
func TestCommand(t *testing.T) {
	t.Parallel()
	fanoutvet, dir := tool(t), shop(t)
	var vetted, alone, vettedFine, aloneFine result
	var commands sync.WaitGroup
	commands.Go(func() { vetted = run(t, dir, "go", "vet", "-vettool="+fanoutvet, "./...") })
	commands.Go(func() { alone = run(t, dir, fanoutvet, "./...") })
	commands.Go(func() { vettedFine = run(t, dir, "go", "vet", "-vettool="+fanoutvet, "./fine", "./domain") })
	commands.Go(func() { aloneFine = run(t, dir, fanoutvet, "./fine", "./domain") })
	commands.Wait()

	require.Error(t, vetted.err)
	require.Error(t, alone.err)
	found := findings(dir, vetted.out)
	assert.Contains(t, found, "loops/loops.go:17:3: o.Raise raises an event on o, a copy of an element of orders that is neither saved nor stored back: "+
		"unless GORM loaded it, the event is lost; range over the index: for i := range orders { o := &orders[i] ... }")
	assert.Equal(t, found, findings(dir, alone.out))
	for _, finding := range found {
		assert.NotRegexp(t, "^(fine|domain)/", finding)
	}
	for _, fine := range []result{vettedFine, aloneFine} {
		require.NoError(t, fine.err)
		assert.Empty(t, fine.out)
	}
}

// What the command fixes is reported no more, and compiles.
func TestCommandFixes(t *testing.T) {
	t.Parallel()
	if os.Getenv("FANOUT_TEST_SPREAD") == "1" {
		t.Skip("make test-all runs it: what is fixed, TestReports compares, and this compiles the library three times more")
	}
	fanoutvet, dir := tool(t), shop(t)
	report := func() []string {
		vetted := run(t, dir, "go", "vet", "-vettool="+fanoutvet, "./...") // far quicker than the command by itself
		require.Error(t, vetted.err)
		return findings(dir, vetted.out)
	}

	found := report()
	run(t, dir, fanoutvet, "-fix", "./...") // it exits with 0 or not, as versions of its library differ in that
	require.NoError(t, run(t, dir, "go", "vet", "./...").err, "what the fixes leave compiles")
	fixed := report()
	assert.NotEmpty(t, fixed)
	assert.Less(t, len(fixed), len(found))
}

// findings are the reports in what the command prints, sorted, with the names of files as they are
// in the module. Those of a package and of its variant with tests are the same.
func findings(dir, out string) (found []string) {
	at := regexp.MustCompile(`^[\w./-]+\.go:\d+:\d+: `)
	for line := range strings.Lines(out) {
		line = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(line), dir+string(filepath.Separator)), "./")
		if at.MatchString(line) {
			found = append(found, line)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
