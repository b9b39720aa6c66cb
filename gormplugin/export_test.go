package gormplugin

// Listeners is the number of functions that a plugin keeps for its commits.
func (p *Plugin) Listeners() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.listeners)
}
