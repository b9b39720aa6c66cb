package gormplugin

// Listeners is the number of functions that a plugin keeps for its commits.
func (p *Plugin) Listeners() int {
	return len(p.listening())
}
