package gormplugin

import (
	"context"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

func init() { //nolint:gochecknoinits // the plugin reads them before any test runs
	lookTime, promptLookTime = time.Minute, time.Minute
}

// Listeners is the number of functions that a plugin keeps for its commits.
func (p *Plugin) Listeners() int {
	return p.listeners.Len()
}

// LookNow looks after transactions that were not seen to end.
func (p *Plugin) LookNow(ctx context.Context) { p.outcomes.lookNow(ctx) }

// LookLater does what the timer does.
func (p *Plugin) LookLater() { p.outcomes.lookLater() }

// Watched is the number of events whose outcome is not known.
func (p *Plugin) Watched() int {
	p.outcomes.mu.Lock()
	defer p.outcomes.mu.Unlock()
	return p.outcomes.watched
}

// ControlOf tells what the statements of a text open and end.
func ControlOf(dialect outbox.Dialect, text string) []bool { return controlOf(dialect, text) }
