package envelope

import (
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
)

// Event is something that happened, raised and not yet sealed. Build it with
// [NewEvent].
type Event struct {
	// ID is the message id (headers.id): the same on every broker, and the same
	// when the transaction is retried, so that consumers can deduplicate.
	ID uuid.UUID

	// Time is when the event was raised: UTC, whole microseconds.
	Time time.Time

	// Data is the event itself, a value of a registered type. It is encoded by
	// [Catalog.Seal], at the commit: until then nobody should change maps, slices
	// or pointers inside it.
	Data any

	// Options refine the event type's own. Those that describe a type (Published,
	// Name, Version) are refused by [Catalog.Seal].
	Options []Option
}

// NewEvent gives data its identity: a UUIDv7 and the current time. Both are fixed
// here and not at the commit, so that a retried transaction writes the same ids.
// Data is checked by [Catalog.Seal].
func NewEvent(data any, opts ...Option) Event {
	now := time.Now().UTC().Truncate(time.Microsecond)
	return Event{ID: newID(uuid.NewV7, now), Time: now, Data: data, Options: opts}
}

// newID falls back on the runtime's own generator when the operating system has
// no randomness to give: an event is not a secret, and losing one because of that
// would be worse. The fallback keeps the layout of UUIDv7 (RFC 9562, section 5.7).
func newID(newV7 func() (uuid.UUID, error), now time.Time) uuid.UUID {
	if id, err := newV7(); err == nil {
		return id
	}
	const version, variant = 7 << 12, 1 << 63
	high, low := rand.Uint64(), rand.Uint64()
	ms := uint64(now.UnixMilli())
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[:8], ms<<16|version|high&0x0fff)
	binary.BigEndian.PutUint64(id[8:], variant|low>>2)
	return id
}
