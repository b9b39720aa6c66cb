package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/benchmarks/internal/chart"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
)

// withChart adds the flag for charts to a command.
func withChart(s *settings, cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringArrayVar(&s.charts, "chart", nil, "also draw the rates into this `file`, .svg or .png; may be given more than once")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		for _, path := range s.charts {
			if err := chart.Check(path); err != nil {
				return usageError{err}
			}
		}
		return nil
	}
	return cmd
}

// writeCharts draws the rates of the drain.
func (s *settings) writeCharts(r *report.Report) error {
	for _, path := range s.charts {
		if err := drainChart(r).Write(path); err != nil {
			return err
		}
	}
	return nil
}

// Prefixes of the cases.
const (
	byHandCases = "by hand, "
	fanoutCases = "fanout, "
)

// drainChart shows of the loops by hand the fastest on each table, and all else.
func drainChart(r *report.Report) *chart.Chart {
	c := &chart.Chart{Title: "Messages per second, from PostgreSQL to Redis Streams"}
	c.Kinds[chart.Limit], c.Kinds[chart.Ours], c.Kinds[chart.Other] = "the limit: loops by hand, unordered", "Fanout", "others"
	fastest := map[string]int{} // by table, the place of its bar
	runs := 0
	for _, f := range r.Figures {
		if f.Scenario != "drain" || f.Name != "rate" {
			continue
		}
		runs = max(runs, len(f.Runs))
		bar := chart.Bar{Label: labelOf(f.Case), Value: f.Median, Kind: chart.Other}
		switch {
		case strings.HasPrefix(f.Case, byHandCases):
			bar.Kind = chart.Limit
			table := f.Case[:strings.LastIndex(f.Case, ",")]
			if at, seen := fastest[table]; seen {
				if c.Bars[at].Value < bar.Value {
					c.Bars[at] = bar
				}
				continue
			}
			fastest[table] = len(c.Bars)
		case strings.HasPrefix(f.Case, fanoutCases):
			bar.Kind = chart.Ours
		}
		c.Bars = append(c.Bars, bar)
	}
	slices.SortStableFunc(c.Bars, func(a, b chart.Bar) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(b.Value, a.Value))
	})
	servers := make([]string, 0, len(r.Servers))
	for name, version := range r.Servers {
		servers = append(servers, name+" "+version)
	}
	slices.Sort(servers)
	c.Note = fmt.Sprintf("%s, all on the same %d processors; medians of %d, measured in turn on %s.",
		strings.Join(servers, " and "), r.Machine.CPUs, runs, r.Started.UTC().Format("2006-01-02"))
	if r.Short {
		c.Note = "SHORT: this tries out the harness, the rates mean nothing."
	}
	return c
}

// inThousands finds where a comma goes into a number of up to six digits.
var inThousands = regexp.MustCompile(`(\d)(\d{3})\b`)

// labelOf is what the chart calls a case.
func labelOf(name string) string {
	if rest, ours := strings.CutPrefix(name, fanoutCases); ours && rest != "unordered" {
		name = fanoutCases + "ordered, " + rest
	}
	name = inThousands.ReplaceAllString(name, "$1,$2")
	return strings.ToUpper(name[:1]) + name[1:]
}
