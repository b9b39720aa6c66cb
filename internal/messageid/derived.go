// Package messageid has the ids of messages that tell one event.
package messageid

import (
	"crypto/sha256"

	"github.com/google/uuid"
)

// shared is how many bytes of an event's id those that are derived from it begin with.
const shared = 9

// Derived is the id of the message by which an event leaves under another type than its first one: a UUID of the same
// time and version.
func Derived(event uuid.UUID, wireType string) uuid.UUID {
	sum := sha256.Sum256(append(event[:], wireType...))
	copy(event[shared:], sum[:])
	return event
}

// Range is where the ids of an event's messages lie, given one of them.
func Range(of uuid.UUID) (low, high uuid.UUID) {
	low, high = of, of
	for i := shared; i < len(of); i++ {
		low[i], high[i] = 0, 0xff
	}
	return low, high
}
