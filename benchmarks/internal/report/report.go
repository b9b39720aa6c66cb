// Package report collects what benchmarks measure and prints it, for people and as JSON.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is what one call of the benchmarks found. It is not safe for concurrent use.
type Report struct {
	// Started is when, by this machine's clock.
	Started time.Time `json:"started"`
	// Arguments of the command.
	Arguments []string `json:"arguments"`
	// Seed of every choice that was left to chance.
	Seed uint64 `json:"seed"`
	// Short is true for a run that tries out the harness: its times mean nothing, and nothing is
	// judged.
	Short bool `json:"short"`
	// Machine on which this process ran.
	Machine Machine `json:"machine"`
	// Servers by name, each with its version.
	Servers map[string]string `json:"servers"`
	// Figures in the order in which they were first seen.
	Figures []*Figure `json:"figures"`
	// Targets of the project, where the report is to judge them.
	Targets []Verdict `json:"targets,omitempty"`
}

// Machine is what figures depend on.
type Machine struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	CPUs int    `json:"cpus"`
	Go   string `json:"go"`
}

// Figure is one thing that was measured, once in each run.
type Figure struct {
	// Scenario, Case and Name say what was measured; together they are unique.
	Scenario string `json:"scenario"`
	Case     string `json:"case"`
	Name     string `json:"name"`
	// Unit of the values: ms, s, B, MiB, rows; "x" is a ratio.
	Unit string `json:"unit"`
	// Runs are the values in the order of the runs.
	Runs []float64 `json:"runs"`
	// Median of the runs.
	Median float64 `json:"median"`
	// AtMost or AtLeast is the target, both nil where there is none; Met tells whether the median
	// keeps it.
	AtMost  *float64 `json:"at_most,omitempty"`
	AtLeast *float64 `json:"at_least,omitempty"`
	Met     *bool    `json:"met,omitempty"`
}

// New begins a report.
func New(arguments []string, seed uint64, short bool) *Report {
	return &Report{
		Started: time.Now(), Arguments: arguments, Seed: seed, Short: short, Servers: map[string]string{},
		Machine: Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()},
	}
}

// Scenario is a part of a report. Its zero value is of no use; [Report.Scenario] makes one.
type Scenario struct {
	report *Report
	name   string
}

// Scenario returns the part of the report that belongs to one scenario.
func (r *Report) Scenario(name string) *Scenario { return &Scenario{report: r, name: name} }

// Add notes what one run has measured.
func (s *Scenario) Add(of, name, unit string, value float64) *Figure {
	figure := s.figure(of, name)
	figure.Unit = unit
	figure.Runs = append(figure.Runs, value)
	figure.Median = Median(figure.Runs)
	s.judge(figure)
	return figure
}

// AddRatio notes a ratio that should, by its median over all runs, not be above its target. Short
// runs are not judged.
func (s *Scenario) AddRatio(of, name string, value, atMost float64) {
	figure := s.Add(of, name, "x", value)
	figure.AtMost = &atMost
	s.judge(figure)
}

// AddRatioAtLeast is like AddRatio for a ratio that should not be below its target.
func (s *Scenario) AddRatioAtLeast(of, name string, value, atLeast float64) {
	figure := s.Add(of, name, "x", value)
	figure.AtLeast = &atLeast
	s.judge(figure)
}

// judge compares the median with the targets that the figure has.
func (s *Scenario) judge(figure *Figure) {
	if s.report.Short || figure.AtMost == nil && figure.AtLeast == nil {
		return
	}
	met := (figure.AtMost == nil || figure.Median <= *figure.AtMost) && (figure.AtLeast == nil || figure.Median >= *figure.AtLeast)
	figure.Met = &met
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

// WriteText writes the report as a table.
func (r *Report) WriteText(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "scenario\tcase\tfigure\tmedian\tunit\truns\ttarget")
	for _, f := range r.Figures {
		runs := make([]string, len(f.Runs))
		for i, value := range f.Runs {
			runs[i] = format(value)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", f.Scenario, f.Case, f.Name, format(f.Median), f.Unit, strings.Join(runs, " "), f.verdict())
	}
	if err := errors.Join(table.Flush(), r.writeTargets(w)); err != nil {
		return err
	}
	servers := make([]string, 0, len(r.Servers))
	for name, version := range r.Servers {
		servers = append(servers, name+" "+version)
	}
	slices.Sort(servers)
	note := ""
	if r.Short {
		note = "; SHORT: this tries out the harness, the times mean nothing"
	}
	_, err := fmt.Fprintf(w, "\n%s/%s, %d CPUs, %s, %s, seed %d%s\n", r.Machine.OS, r.Machine.Arch, r.Machine.CPUs, r.Machine.Go,
		strings.Join(servers, ", "), r.Seed, note)
	return err
}

// WriteJSON writes the report for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

func (f *Figure) verdict() string {
	var target string
	switch {
	case f.AtMost != nil:
		target = "<= " + format(*f.AtMost)
	case f.AtLeast != nil:
		target = ">= " + format(*f.AtLeast)
	default:
		return ""
	}
	switch {
	case f.Met == nil:
		return target
	case *f.Met:
		return target + " met"
	default:
		return target + " MISSED"
	}
}

// format keeps three digits that mean something.
func format(value float64) string {
	switch {
	case value >= 100 || value <= -100 || value == 0:
		return strconv.FormatFloat(value, 'f', 0, 64)
	case value >= 10 || value <= -10:
		return strconv.FormatFloat(value, 'f', 1, 64)
	default:
		return strconv.FormatFloat(value, 'f', 2, 64)
	}
}
