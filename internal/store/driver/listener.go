package driver

import "context"

// A Listener is a store that is notified of rows that other processes commit: PostgreSQL's LISTEN.
// Notifications are hints and may be lost; polling finds all rows.
type Listener interface {
	// Listen opens a connection of its own and listens until ctx ends or the connection fails; the
	// error says why, with no password in it. It calls began once it listens, then received with
	// the text of each notification, all from the goroutine of the call.
	Listen(ctx context.Context, began func(), received func(text string)) error
	// Notify sends a text to all listeners, on another connection than that of Listen.
	Notify(ctx context.Context, text string) error
}
