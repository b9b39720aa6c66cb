package targets

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
)

// of are the verdicts on one target.
func of(verdicts []report.Verdict, target string) (found []report.Verdict) {
	for _, v := range verdicts {
		if v.Target == target {
			found = append(found, v)
		}
	}
	return found
}

func yes() *bool { b := true; return &b }
func no() *bool  { b := false; return &b }

// Every target has a line, also one about which nothing was measured, and says how it can be.
func TestNothingMeasured(t *testing.T) {
	t.Parallel()
	verdicts := Judge(report.New(nil, 1, false))
	ids := make([]string, 0, len(verdicts))
	for _, v := range verdicts {
		ids = append(ids, v.Target)
		assert.Equal(t, "not measured", v.Figure)
		assert.NotEmpty(t, v.What)
		assert.Contains(t, v.Command, "make bench")
		assert.Nil(t, v.Met)
	}
	assert.Equal(t, []string{"P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P11"}, ids)
}

// What a scenario judges goes to its target, with the verdict that it has; what it only tells goes
// to none.
func TestJudged(t *testing.T) {
	t.Parallel()
	r := report.New(nil, 1, false)
	drain := r.Scenario("drain")
	drain.AddRatioAtLeast("fanout, 1000 keys", "of the limit", 0.51, 0.85)
	drain.AddRatioAtLeast("fanout, unordered", "of the limit", 0.95, 0.9)
	drain.AddRatioAtLeast("fanout, unordered", "of the minimal table's limit", 0.6, 0.9)
	drain.Add("by hand", "of the limit", "x", 1)
	r.Scenario("latency").AddAtMost("fanout, same process", "p50", "ms", 0.6, 1.2)
	r.Scenario("latency").AddAtMost("fanout, another process, notified", "p50", "ms", 1.3, 1.2)
	r.Scenario("idle").AddAtMost("1 broker", "statements of each broker", "/s", 0.1, 0.2)
	verdicts := Judge(r)
	assert.Equal(t, []report.Verdict{{
		Target: "P1", What: "drain with order per key, fences on", Figure: "fanout, 1000 keys: of the limit", Wanted: ">= 0.85",
		Measured: 0.51, Unit: "x", Ratio: 0.6, Met: no(), Command: `make bench ARGS="drain"`,
	}}, of(verdicts, "P1"))
	both := of(verdicts, "P2")
	require.Len(t, both, 2, "one for each of the two loops by hand")
	assert.Equal(t, []*bool{yes(), no()}, []*bool{both[0].Met, both[1].Met})
	for id, want := range map[string]*bool{"P3": yes(), "P4": no(), "P11": yes()} {
		found := of(verdicts, id)
		require.Len(t, found, 1, id)
		assert.Equal(t, want, found[0].Met, id)
	}
}

// Log and round trips have their limits here, and are compared with the loop by hand run by run,
// not by medians.
func TestDerived(t *testing.T) {
	t.Parallel()
	r := report.New(nil, 1, false)
	s := r.Scenario("drain")
	for run, ours := range []float64{540, 700, 560} {
		s.Add("fanout, 1000 keys", "log", "B/msg", ours)
		s.Add("by hand, outbox table, 2 workers", "log", "B/msg", []float64{270, 700, 500}[run])
		s.Add("fanout, 1000 keys", "round trips", "/1000 msgs", 5.1)
	}
	found := of(Judge(r), "P6")
	require.Len(t, found, 3)
	assert.Equal(t, yes(), found[0].Met)
	assert.InDelta(t, 560, found[0].Measured, 0)
	assert.Equal(t, no(), found[1].Met)
	assert.InDelta(t, 1.12, found[1].Measured, 1e-9)
	assert.Contains(t, found[1].Figure, "by hand, outbox table, 2 workers")
	assert.Equal(t, no(), found[2].Met)
	for _, figure := range r.Figures {
		assert.Nil(t, figure.AtMost, "the report's own figures stay without a target")
	}
}

// A short run judges nothing.
func TestShort(t *testing.T) {
	t.Parallel()
	r := report.New(nil, 1, true)
	r.Scenario("purge").AddRatioAtLeast("forced", "drain, of the rate without", 0.5, 0.9)
	r.Scenario("drain").Add("fanout, 1000 keys", "log", "B/msg", 700)
	r.Targets = Judge(r)
	for _, v := range r.Targets {
		assert.Nil(t, v.Met, v.Target)
	}
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	assert.Regexp(t, `P10 .*forced: drain, of the rate without +>= 0\.90 +0\.50 +x +0\.56 +not judged +make bench ARGS="purge"`, text.String())
	assert.Regexp(t, `P11 .*not measured +make bench ARGS="idle"`, text.String())
}
