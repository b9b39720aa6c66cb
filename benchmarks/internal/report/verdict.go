package report

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Verdict is what was measured about one target.
type Verdict struct {
	// Target is its number, and What it is about.
	Target string `json:"target"`
	What   string `json:"what"`
	// Figure says what was measured.
	Figure string `json:"figure"`
	// Wanted is the limit, such as "<= 1.10".
	Wanted string `json:"wanted"`
	// Measured is the median over all runs, in Unit.
	Measured float64 `json:"measured"`
	Unit     string  `json:"unit"`
	// Ratio of what was measured to the limit.
	Ratio float64 `json:"ratio"`
	// Met is nil where nothing was measured, or where the run was a short one.
	Met *bool `json:"met,omitempty"`
	// Command measures it anew.
	Command string `json:"command"`
}

// Verdict puts a figure that has a target of its own in the form of a verdict.
func (r *Report) Verdict(f *Figure, command string) Verdict {
	v := Verdict{Figure: f.Case + ": " + f.Name, Measured: f.Median, Unit: f.Unit, Met: f.Met, Command: command}
	switch {
	case f.AtMost != nil:
		v.Wanted, v.Ratio = "<= "+format(*f.AtMost), f.Median / *f.AtMost
	case f.AtLeast != nil:
		v.Wanted, v.Ratio = ">= "+format(*f.AtLeast), f.Median / *f.AtLeast
	}
	return v
}

// AtMost judges a figure by a limit that is not its own.
func (r *Report) AtMost(f *Figure, limit float64, command string) Verdict {
	limited := *f
	limited.AtMost, limited.AtLeast, limited.Met = &limit, nil, nil
	(&Scenario{report: r}).judge(&limited)
	return r.Verdict(&limited, command)
}

// writeTargets writes the verdicts as a table.
func (r *Report) writeTargets(w io.Writer) error {
	if len(r.Targets) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "target\twhat\tfigure\twanted\tmeasured\tunit\tof the limit\t\tmeasured by")
	for _, v := range r.Targets {
		if v.Wanted == "" {
			fmt.Fprintf(table, "%s\t%s\t%s\t\t\t\t\t\t%s\n", v.Target, v.What, v.Figure, v.Command)
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", v.Target, v.What, v.Figure, v.Wanted, format(v.Measured), v.Unit, format(v.Ratio), v.word(), v.Command)
	}
	return table.Flush()
}

func (v *Verdict) word() string {
	switch {
	case v.Met == nil:
		return "not judged"
	case *v.Met:
		return "met"
	default:
		return "MISSED"
	}
}
