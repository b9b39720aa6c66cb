package report

// AddAtMost notes a value that should, by its median over all runs, not be above its target. Short
// runs are not judged.
func (s *Scenario) AddAtMost(of, name, unit string, value, atMost float64) {
	figure := s.Add(of, name, unit, value)
	figure.AtMost = &atMost
	s.judge(figure)
}
