package scenario

import (
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
)

// report compares each case with the one by hand into the same broker, run by run.
func (l SQLite) report(o *Options, cases []*liteCase) {
	s := o.Report.Scenario("sqlite")
	for _, c := range cases {
		for i := range c.results {
			m := &c.results[i]
			if c.drain != nil {
				s.Add(c.name, "rate", "msgs/s", m.rate())
			}
			if c.drain != nil && !c.writer && m.cpu > 0 {
				s.Add(c.name, "CPU of the process", "µs/msg", float64(m.cpu.Microseconds())/float64(m.rows))
			}
			if at := slices.IndexFunc(cases, func(other *liteCase) bool { return other.name == c.hand }); at >= 0 {
				s.Add(c.name, "of the loop by hand", "x", m.rate()/cases[at].results[i].rate())
			}
			if len(c.waits[i]) > 0 {
				addWaits(s, c.name, c.waits[i])
			}
		}
	}
}

// addWaits tells how long the application's transactions took.
func addWaits(s *report.Scenario, name string, waits []time.Duration) {
	for _, share := range []struct {
		name string
		of   float64
	}{{"transaction p50", 0.5}, {"transaction p99", 0.99}} {
		s.Add(name, share.name, "ms", report.Percentile(waits, share.of).Seconds()*1000)
	}
	s.Add(name, "transaction max", "ms", slices.Max(waits).Seconds()*1000)
}
