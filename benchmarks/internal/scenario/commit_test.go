package scenario

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
)

const benchOutput = `goos: linux
BenchmarkCommitPath/postgres-2         	     500	       0.99 event/by-hand	       451.5 event-µs	         1.01 no-event/plain	         1.02 other-model/plain
BenchmarkCommitPath/discard-2         	     500	       1.5 event/by-hand	       9.5 event-µs
PASS
`

// Figures of the benchmark are read with their targets, which the database that does nothing has
// not.
func TestReadCommits(t *testing.T) {
	t.Parallel()
	r := report.New(nil, 1, false)
	require.NoError(t, readCommits(r.Scenario("commit"), []byte(benchOutput)))
	figures := map[string]*report.Figure{}
	for _, f := range r.Figures {
		figures[f.Case+" "+f.Name] = f
	}
	require.Len(t, figures, 6)
	assert.InDelta(t, 0.99, figures["postgres event/by-hand"].Median, 0)
	require.NotNil(t, figures["postgres event/by-hand"].AtMost)
	assert.InDelta(t, eventTarget, *figures["postgres event/by-hand"].AtMost, 0)
	assert.InDelta(t, noEventTarget, *figures["postgres no-event/plain"].AtMost, 0)
	assert.InDelta(t, 451.5, figures["postgres event"].Median, 0)
	assert.Nil(t, figures["discard event/by-hand"].AtMost)

	require.ErrorContains(t, readCommits(r.Scenario("commit"), []byte("PASS\n")), "no ratios")
	require.ErrorContains(t, readCommits(r.Scenario("commit"), []byte("BenchmarkCommitPath/sqlite-2 5 fast µs\n")), "prints")
}
