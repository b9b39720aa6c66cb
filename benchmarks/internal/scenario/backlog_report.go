package scenario

import "github.com/gorm-fanout/fanout/benchmarks/internal/report"

// P1 and P2: of two loops by hand, one on the outbox's own table, which is the limit of what claims
// and marks can do with it, and one on the smallest table that does the job, which is what a team
// compares with that has no outbox yet; and times row by row.
const (
	orderedTarget   = 0.85
	unorderedTarget = 0.9
	rowByRowTarget  = 30
)

// report compares all cases with the fastest of each of the two limits, run by run.
func (b Backlog) report(o *Options, sides []*contest) {
	s := o.Report.Scenario("drain")
	for _, c := range sides {
		for i := range c.results {
			s.Add(c.name, "rate", "msgs/s", c.results[i].rate())
			c.results[i].report(s, c.name)
		}
	}
	for _, to := range []struct {
		name string
		best *contest
	}{{"of the limit", fastest(sides, limit)}, {"of the minimal table's limit", fastest(sides, leaner)}} {
		if to.best == nil {
			continue
		}
		o.logf("drain: %q is %s", to.name, to.best.name)
		for _, c := range sides {
			for i := range c.results {
				ratio := c.results[i].rate() / to.best.results[i].rate()
				switch c.kind {
				case manyKeys:
					s.AddRatioAtLeast(c.name, to.name, ratio, orderedTarget)
				case unordered:
					s.AddRatioAtLeast(c.name, to.name, ratio, unorderedTarget)
				default:
					s.Add(c.name, to.name, "x", ratio)
				}
			}
		}
	}
	slow := fastest(sides, rowByRow)
	for _, c := range sides {
		for i := range c.results {
			if slow != nil && c.kind == manyKeys {
				s.AddRatioAtLeast(c.name, "times row by row", c.results[i].rate()/slow.results[i].rate(), rowByRowTarget)
			}
		}
	}
}

// report prints what a case has cost.
func (m *measured) report(s *report.Scenario, name string) {
	rows := float64(m.rows)
	if m.cpu > 0 {
		s.Add(name, "CPU of the process", "µs/msg", float64(m.cpu.Microseconds())/rows)
	}
	if m.observed {
		s.Add(name, "CPU of the database", "µs/msg", float64(m.database.Microseconds())/rows)
	}
	s.Add(name, "log", "B/msg", float64(m.wal)/rows)
	if m.trips > 0 { // they are counted
		s.Add(name, "round trips", "/1000 msgs", 1000*float64(m.trips)/rows)
	}
}

// fastest is the case of a kind that took the least time for a message in all runs together; nil
// where none was measured.
func fastest(sides []*contest, of kind) (best *contest) {
	var highest float64
	for _, c := range sides {
		var all measured
		for _, m := range c.results {
			all.add(m)
		}
		if c.kind == of && all.rate() > highest {
			best, highest = c, all.rate()
		}
	}
	return best
}
