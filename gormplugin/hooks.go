package gormplugin

import (
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/capture"
	"github.com/gorm-fanout/fanout/internal/wakeup"
)

// hooks are what other packages of the library need of the plugin, and no one else. They are
// registered beside it, as a plugin of their own that does nothing.
type hooks struct{ *Plugin }

var (
	_ capture.Hooks = hooks{}
	_ wakeup.Source = hooks{}
)

// Name implements gorm.Plugin.
func (hooks) Name() string { return capture.HooksName }

// Initialize implements gorm.Plugin.
func (hooks) Initialize(*gorm.DB) error { return nil }

// Wrap implements capture.Hooks; see the function [Wrap].
func (p hooks) Wrap(db *gorm.DB) *gorm.DB {
	wrapped := p.wrap(db.Statement.ConnPool, db.Name())
	if wrapped == nil {
		return db
	}
	session := db.WithContext(db.Statement.Context) // with a statement of its own
	session.Statement.ConnPool = wrapped
	return session
}

// OnCommit implements wakeup.Source: f is called after each commit that wrote rows, with one wake-up per broker.
// f runs in the goroutine that commits: it must return quickly, and must not keep the slice. It
// reports whether a relay in this process delivers these rows. That is how the relay of the
// application's own process is woken. cancel removes f.
func (p hooks) OnCommit(f func(wakeUps []wakeup.WakeUp) (served bool)) (cancel func()) {
	return p.listeners.OnCommit(f)
}
