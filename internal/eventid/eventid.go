// Package eventid is how the id of a message is derived from that of its event, where an event leaves as several.
package eventid

import (
	"crypto/sha256"

	"github.com/google/uuid"
)

// kept are the bytes of an id that are the event's: the time and the version of a UUIDv7, which keep ids in order, and
// the variant. So all ids of one event are close together in an index.
const kept = 9

// Derive returns the id of the message that is an event under another type. The same event and type have the same id.
func Derive(event uuid.UUID, wireType string) uuid.UUID {
	sum := sha256.Sum256(append(event[:], wireType...))
	copy(event[kept:], sum[:])
	return event
}

// Bounds returns the first and the last id that messages of the same event can have, and few others.
func Bounds(id uuid.UUID) (first, last uuid.UUID) {
	first, last = id, id
	for i := kept; i < len(id); i++ {
		first[i], last[i] = 0, 0xff
	}
	return first, last
}

// A Message has an id and a type.
type Message struct {
	ID   uuid.UUID
	Type string
}

// Of reports which of these messages, among them all that are known between [Bounds], are of the same event as one id.
// The event's own id has to be among them for those of derived ids to be known.
func Of(id uuid.UUID, messages []Message) []bool {
	event := id
	for i := range messages {
		for j := range messages {
			if messages[j].ID == id && messages[i].ID != id && Derive(messages[i].ID, messages[j].Type) == id {
				event = messages[i].ID
			}
		}
	}
	same := make([]bool, len(messages))
	for i, m := range messages {
		same[i] = m.ID == id || m.ID == event || Derive(event, m.Type) == m.ID
	}
	return same
}
