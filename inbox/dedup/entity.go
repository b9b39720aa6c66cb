package dedup

import (
	"context"
	"errors"
)

// ErrConflict is what [Entities].Save answers, or wraps, when the entity is not the one that was
// loaded any more.
var ErrConflict = errors.New("dedup: the entity was changed meanwhile")

// A Version tells two states of an entity apart: a counter, an ETag, a revision. Empty means that
// the entity is not there yet. A version never comes again for the same entity.
type Version string

// An Entity is what one write of the store of entities holds. Its state and its outbox are written
// together, or not at all.
type Entity[S any] struct {
	// State is the application's. Its zero value is what the handler gets of an entity that is not
	// there yet.
	State S
	// Version is that of the load, or of the last save.
	Version Version
	// Outbox is this package's. It is encoded as JSON without loss. Stores keep it beside the
	// state, and never look into it.
	Outbox Outbox
}

// Entities is the application's store of entities, in any database. Its methods are called
// concurrently, for the same entity too.
//
// Errors are taken for an outage, which is no fault of the message and does not use up its
// attempts, unless they are marked as inbox.Permanent. deduptest.RunEntities tests an
// implementation.
type Entities[S any] interface {
	// Load reads an entity. One that is not there is no error: its version is empty, its state what
	// a new one has. It must see every save that has returned before. The result shares nothing
	// with that of another call, as the handler changes it.
	Load(ctx context.Context, id string) (Entity[S], error)
	// Save writes state and outbox in one atomic write, if the entity in the store has still the
	// version of this one (where that is empty: if there is none), and returns the version that it
	// has now. Otherwise it writes nothing and returns [ErrConflict].
	//
	// After another error it is not known whether the entity was saved; the message is delivered
	// again and finds out. The same goes for a client that repeats a save by itself and gets a
	// conflict with its own first try.
	Save(ctx context.Context, id string, entity Entity[S]) (Version, error)
}
