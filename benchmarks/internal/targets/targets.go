// Package targets holds what is to be reached, and judges a report by it.
package targets

import (
	"slices"
	"strings"

	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
)

// target is one of the goals of the project.
type target struct {
	id, what string
	// command of make that measures it.
	command string
	// judge finds the verdicts in a report.
	judge []rule
}

// A rule finds verdicts in a report, none where it holds nothing of the kind.
type rule func(r *report.Report) []report.Verdict

// all are the goals, by number.
func all() []target {
	return []target{
		{"P1", "drain with order per key, fences on", bench("drain"), []rule{judged("drain", not("unordered"), anything)}},
		{"P2", "drain without order", bench("drain"), []rule{judged("drain", has("unordered"), anything)}},
		{"P3", "commit to broker in one process, 50 tx/s", bench("latency"), []rule{judged("latency", not("another process"), anything)}},
		{"P4", "commit to broker through another process", bench("latency"), []rule{judged("latency", has("another process"), anything)}},
		{"P5", "commit of a GORM transaction", bench("commit"), []rule{judged("commit", anything, anything)}},
		{"P6", "claim and mark: log and round trips", bench("drain"), []rule{
			atMost("drain", orderedDrain, has("log"), 600),
			ratio("drain", "fanout, 1000 keys", "by hand, outbox table, 2 workers", "log", 1.05),
			atMost("drain", orderedDrain, has("round trips"), 5),
		}},
		{"P7", "ten million rows against 200,000", bench("claims"), []rule{judged("claims", anything, anything)}},
		{"P8", "a transaction left open for 90 s", bench("idle-transaction"), []rule{judged("idle-transaction", anything, anything)}},
		{"P9", "one of three brokers hangs", bench("hung"), []rule{judged("hung", anything, anything)}},
		{"P10", "purge of a million rows beside a drain", bench("purge"), []rule{judged("purge", anything, anything)}},
		{"P11", "nothing to do, looks every 10 s", bench("idle"), []rule{judged("idle", anything, anything)}},
	}
}

func bench(scenario string) string { return `make bench ARGS="` + scenario + `"` }

// Judge lists, for each target, what the report says about it; a target that was not measured is
// listed as such.
func Judge(r *report.Report) []report.Verdict {
	var verdicts []report.Verdict
	for _, t := range all() {
		var found []report.Verdict
		for _, rule := range t.judge {
			found = append(found, rule(r)...)
		}
		if len(found) == 0 {
			found = []report.Verdict{{Figure: "not measured"}}
		}
		for i := range found {
			found[i].Target, found[i].What = t.id, t.what
			if found[i].Command == "" {
				found[i].Command = t.command
			}
		}
		verdicts = append(verdicts, found...)
	}
	return verdicts
}

// match tells whether a case or a figure, by its name, belongs to a rule.
type match func(name string) bool

func anything(string) bool { return true }

func has(text string) match { return func(name string) bool { return strings.Contains(name, text) } }

func not(text string) match { return func(name string) bool { return !strings.Contains(name, text) } }

func orderedDrain(name string) bool { return strings.HasPrefix(name, "fanout, ") }

// judged takes what a scenario judges itself.
func judged(scenario string, of, name match) rule {
	return func(r *report.Report) (verdicts []report.Verdict) {
		for _, f := range r.Figures {
			if f.Scenario == scenario && of(f.Case) && name(f.Name) && (f.AtMost != nil || f.AtLeast != nil) {
				verdicts = append(verdicts, r.Verdict(f, bench(scenario)))
			}
		}
		return verdicts
	}
}

// atMost judges figures of a scenario that has no target for them itself.
func atMost(scenario string, of, name match, limit float64) rule {
	return func(r *report.Report) (verdicts []report.Verdict) {
		for _, f := range r.Figures {
			if f.Scenario == scenario && of(f.Case) && name(f.Name) {
				verdicts = append(verdicts, r.AtMost(f, limit, bench(scenario)))
			}
		}
		return verdicts
	}
}

// ratio judges how often one case has a figure of another one, run by run.
func ratio(scenario, of, to, name string, limit float64) rule {
	return func(r *report.Report) []report.Verdict {
		find := func(of string) *report.Figure {
			i := slices.IndexFunc(r.Figures, func(f *report.Figure) bool { return f.Scenario == scenario && f.Case == of && f.Name == name })
			if i < 0 {
				return nil
			}
			return r.Figures[i]
		}
		one, other := find(of), find(to)
		if one == nil || other == nil {
			return nil
		}
		quotient := &report.Figure{Scenario: scenario, Case: of, Name: name + ", times " + to, Unit: "x"}
		for i := range min(len(one.Runs), len(other.Runs)) {
			quotient.Runs = append(quotient.Runs, one.Runs[i]/other.Runs[i])
		}
		quotient.Median = report.Median(quotient.Runs)
		return []report.Verdict{r.AtMost(quotient, limit, bench(scenario))}
	}
}
