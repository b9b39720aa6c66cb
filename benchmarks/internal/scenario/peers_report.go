package scenario

// P1: Fanout as a multiple of other projects that are tuned.
const (
	riverTarget     = 4
	watermillTarget = 6
)

// reportPeers compares each case of Fanout with each of the other projects, run by run.
func (b Backlog) reportPeers(o *Options, sides []*contest) {
	s := o.Report.Scenario("drain")
	for _, c := range sides {
		if c.kind != oneKey && c.kind != manyKeys && c.kind != unordered {
			continue
		}
		for _, other := range sides {
			if other.peer == nil {
				continue
			}
			for i := range c.results {
				ratio, name := c.results[i].rate()/other.results[i].rate(), "times "+other.name
				switch {
				case other.kind == riverTuned && c.kind == manyKeys:
					s.AddRatioAtLeast(c.name, name, ratio, riverTarget)
				case other.kind == watermillTuned && c.kind == manyKeys:
					s.AddRatioAtLeast(c.name, name, ratio, watermillTarget)
				default:
					s.Add(c.name, name, "x", ratio)
				}
			}
		}
	}
}
