package driver

import "context"

// A Listener is a store that hears at once of rows that other processes have committed: PostgreSQL's LISTEN. What it hears is a
// hint and may be lost; polling is what rows rely on.
type Listener interface {
	// Listen opens a connection of its own and listens until ctx ends or the connection fails; the error says why, with no
	// password in it. It calls began once it listens, and then heard with the text of each announcement, all from the goroutine of
	// the call.
	Listen(ctx context.Context, began func(), heard func(text string)) error
	// Notify sends a text to all who listen, by another connection than that of Listen.
	Notify(ctx context.Context, text string) error
}
