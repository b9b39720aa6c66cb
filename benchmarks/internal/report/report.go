// Package report collects the figures of the benchmarks and prints them.
package report

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Report holds the figures of one call of the benchmarks. It is not safe for concurrent use.
type Report struct {
	// Seed of every random choice.
	Seed uint64
	// Short runs try out the harness. Their times mean nothing, and no target is judged.
	Short bool
	// Servers by name, each with its version.
	Servers map[string]string
	// Figures in the order in which they were first added.
	Figures []*Figure
}

// Figure is one quantity, measured once in each run.
type Figure struct {
	// Scenario, Case and Name together are unique.
	Scenario string
	Case     string
	Name     string
	// Unit of the values: ms, s, B, MiB, rows; "x" is a ratio.
	Unit   string
	Runs   []float64
	Median float64
	// Target is the number of the project's target that the limit belongs to; empty for a limit of
	// the scenario alone.
	Target string
	// AtMost and AtLeast are limits of the median; at most one of them is set.
	AtMost  *float64
	AtLeast *float64
}

// New begins a report.
func New(seed uint64, short bool) *Report {
	return &Report{Seed: seed, Short: short, Servers: map[string]string{}}
}

// Scenario is the part of a report that belongs to one scenario.
type Scenario struct {
	report *Report
	name   string
}

// Scenario returns the part of the report with this name.
func (r *Report) Scenario(name string) *Scenario { return &Scenario{report: r, name: name} }

// Add notes the value of one run.
func (s *Scenario) Add(of, name, unit string, value float64) *Figure {
	figure := s.figure(of, name)
	figure.Unit = unit
	figure.Runs = append(figure.Runs, value)
	figure.Median = Median(figure.Runs)
	return figure
}

// AddTimes notes the median and the 99th percentile of some times, in milliseconds.
func (s *Scenario) AddTimes(of, prefix string, times []time.Duration) (p50, p99 *Figure) {
	return s.Add(of, prefix+"p50", "ms", Milliseconds(Percentile(times, 0.5))),
		s.Add(of, prefix+"p99", "ms", Milliseconds(Percentile(times, 0.99)))
}

// AddRatio notes a percentile of some times as a multiple of that of others.
func (s *Scenario) AddRatio(of, name string, share float64, times, others []time.Duration) *Figure {
	return s.Add(of, fmt.Sprintf("%s, p%.0f", name, 100*share), "x", float64(Percentile(times, share))/float64(Percentile(others, share)))
}

func (s *Scenario) figure(of, name string) *Figure {
	i := slices.IndexFunc(s.report.Figures, func(f *Figure) bool { return f.Scenario == s.name && f.Case == of && f.Name == name })
	if i >= 0 {
		return s.report.Figures[i]
	}
	figure := &Figure{Scenario: s.name, Case: of, Name: name}
	s.report.Figures = append(s.report.Figures, figure)
	return figure
}

// LimitAtMost sets an upper limit of the median, for a target of the project or for none.
func (f *Figure) LimitAtMost(limit float64, target string) { f.AtMost, f.Target = &limit, target }

// LimitAtLeast sets a lower limit of the median.
func (f *Figure) LimitAtLeast(limit float64, target string) { f.AtLeast, f.Target = &limit, target }

// Target is a goal of the project.
type Target struct {
	ID, What string
	// Scenario that measures it.
	Scenario string
}

// WriteText writes the report as a table, and another one of the targets, of which there may be
// none.
func (r *Report) WriteText(w io.Writer, targets []Target) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "scenario\tcase\tfigure\tmedian\tunit\truns\tlimit\t")
	for _, f := range r.Figures {
		runs := make([]string, len(f.Runs))
		for i, value := range f.Runs {
			runs[i] = format(value)
		}
		limit, verdict := r.judge(f)
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", f.Scenario, f.Case, f.Name, format(f.Median), f.Unit, strings.Join(runs, " "), limit, verdict)
	}
	if len(targets) > 0 {
		fmt.Fprintln(table, "\t\t\t\t\t\t\t\n\ttarget\tfigure\tmedian\tunit\tlimit\t\tmeasured by")
	}
	for _, target := range targets {
		r.writeTarget(table, target)
	}
	note := ""
	var servers strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.Servers)) {
		fmt.Fprintf(&servers, "; %s %s", name, r.Servers[name])
	}
	if r.Short {
		note = "; SHORT: this tries out the harness, the times mean nothing"
	}
	_, err := fmt.Fprintf(table, "\n%s/%s, %d CPUs, %s%s; seed %d%s\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), &servers, r.Seed, note)
	return errors.Join(err, table.Flush())
}

// writeTarget writes a line for each figure that belongs to a target.
func (r *Report) writeTarget(w io.Writer, target Target) {
	command, measured := `make bench ARGS="`+target.Scenario+`"`, false
	for _, f := range r.Figures {
		if f.Target == target.ID {
			measured = true
			limit, verdict := r.judge(f)
			fmt.Fprintf(w, "%s\t%s\t%s: %s\t%s\t%s\t%s\t%s\t%s\n", target.ID, target.What, f.Case, f.Name, format(f.Median), f.Unit, limit, verdict, command)
		}
	}
	if !measured {
		fmt.Fprintf(w, "%s\t%s\tnot measured\t\t\t\t\t%s\n", target.ID, target.What, command)
	}
}

// judge compares the median of a figure with its limit.
func (r *Report) judge(f *Figure) (limit, verdict string) {
	var met bool
	switch {
	case f.AtMost != nil:
		limit, met = "<= "+format(*f.AtMost), f.Median <= *f.AtMost
	case f.AtLeast != nil:
		limit, met = ">= "+format(*f.AtLeast), f.Median >= *f.AtLeast
	default:
		return "", ""
	}
	switch {
	case r.Short:
		return limit, "not judged"
	case met:
		return limit, "met"
	default:
		return limit, "MISSED"
	}
}

// format keeps three significant digits.
func format(value float64) string {
	switch size := math.Abs(value); {
	case size >= 100 || size == 0:
		return strconv.FormatFloat(value, 'f', 0, 64)
	case size >= 10:
		return strconv.FormatFloat(value, 'f', 1, 64)
	default:
		return strconv.FormatFloat(value, 'f', 2, 64)
	}
}

// Median of the values; of an even number of them the mean of the two in the middle; 0 of none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}

// Percentile is the smallest time that is at least as long as the given share of all, from 0 to 1;
// 0 of none.
func Percentile(times []time.Duration, share float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	rank := int(math.Ceil(share*float64(len(sorted)))) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

// Milliseconds of a time.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
