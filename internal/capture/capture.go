// Package capture is how units of work and inboxes find the capture plugin of a GORM handle, so that
// domain code does not depend on package gormplugin, which implements it.
package capture

import (
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/journal"
)

const (
	// PluginName is the name under which the capture plugin is registered with GORM.
	PluginName = "fanout"
	// HooksName is the name under which the plugin registers its [Hooks].
	HooksName = PluginName + ":hooks"
)

// Hooks are what a unit of work needs of the capture plugin.
type Hooks interface {
	// Publish writes an event without an aggregate in the transaction of tx.
	Publish(tx *gorm.DB, event *journal.Raised) error
	// Track treats an aggregate, given as a pointer, as written by the transaction of tx. source
	// says which one it is; nil for a model of GORM's, of which that is known.
	Track(tx *gorm.DB, aggregate any, source *envelope.Source) error
	// AfterCommit runs f once the outermost transaction of tx has committed.
	AfterCommit(tx *gorm.DB, f func()) error
	// Wrap returns a handle like db whose transactions are captured, also where db is one of
	// db.Connection.
	Wrap(db *gorm.DB) *gorm.DB
}

// HooksOf are those of the handle's plugin; ok is false where it has none.
func HooksOf(db *gorm.DB) (hooks Hooks, ok bool) {
	hooks, ok = db.Plugins[HooksName].(Hooks)
	return hooks, ok
}
