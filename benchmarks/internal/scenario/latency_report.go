package scenario

import (
	"slices"

	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
)

// P3: against a loop by hand in the same process. P4: from another process, in milliseconds;
// without a notification it is the default poll.min, since messages come more often than poll.max.
const (
	sameProcessTarget = 1.3
	notifiedTarget    = 1.2
	pollingTarget     = 20
)

// report compares run by run.
func (l Latency) report(o *Options, cases []*path) {
	s := o.Report.Scenario("latency")
	at := func(p *path, run int, share float64) float64 {
		return report.Milliseconds(report.Percentile(p.results[run], share))
	}
	for _, p := range cases {
		for run := range p.results {
			switch p.name {
			case fanoutNotified:
				s.AddAtMost(p.name, "p50", "ms", at(p, run, 0.5), notifiedTarget)
			case fanoutPolling:
				s.AddAtMost(p.name, "p50", "ms", at(p, run, 0.5), pollingTarget)
			default:
				s.Add(p.name, "p50", "ms", at(p, run, 0.5))
			}
			s.Add(p.name, "p99", "ms", at(p, run, 0.99))
		}
	}
	for _, pair := range [][2]string{{fanoutSame, handSame}, {fanoutNotified, handNotified}} {
		ours, hand := pathOf(cases, pair[0]), pathOf(cases, pair[1])
		if ours == nil || hand == nil {
			continue
		}
		for run := range ours.results {
			p50, p99 := at(ours, run, 0.5)/at(hand, run, 0.5), at(ours, run, 0.99)/at(hand, run, 0.99)
			if ours.name == fanoutSame {
				s.AddRatio(ours.name, "p50 against by hand", p50, sameProcessTarget)
				s.AddRatio(ours.name, "p99 against by hand", p99, sameProcessTarget)
			} else {
				s.Add(ours.name, "p50 against by hand", "x", p50)
				s.Add(ours.name, "p99 against by hand", "x", p99)
			}
		}
	}
}

func pathOf(cases []*path, name string) *path {
	i := slices.IndexFunc(cases, func(p *path) bool { return p.name == name })
	if i < 0 {
		return nil
	}
	return cases[i]
}
