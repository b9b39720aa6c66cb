package envelope

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/google/uuid"
)

// Event is something that happened, raised and not yet sealed. Build it with
// [NewEvent].
type Event struct { //nolint:recvcheck // From follows NewEvent, whose result has no address
	// ID is the message id (headers.id): the same on every broker, and the same
	// when the transaction is retried, so that consumers can deduplicate.
	ID uuid.UUID

	// Time is when the event was raised: UTC, whole microseconds.
	Time time.Time

	// Data is the event itself, a value of a registered type. [NewEvent] has encoded
	// it: nothing that becomes of it afterwards, or of the maps, slices and pointers
	// in it, changes the message. In an Event built as a literal [Catalog.Seal]
	// encodes it.
	Data any

	// Options refine the event type's own. Those that describe a type (Published,
	// Name, Version) are refused by [Catalog.Seal].
	Options []Option

	source *Source // see From
	raised raised
}

// raised is what NewEvent has found out about the data; the zero value is that of
// an Event built as a literal.
type raised struct {
	json    []byte
	err     error     // why there is no JSON
	derived []derived // by registration of the event's type
}

func (r *raised) known() bool { return r.json != nil || r.err != nil }

// NewEvent gives data its identity, a UUIDv7 and the current time, and encodes it.
// All of this happens here and not at the commit, so that a message tells what was
// when the event was raised, and a retried transaction writes the same one. The
// functions of the options [Key] and [NotBefore] are called here, too, those of the
// event's type and those given.
//
// A field with the tag `fanout:"id"` that is zero gets the id of the aggregate when the message is made,
// and such an event is encoded once more then: see [Event.Identified].
//
// What is wrong with the data or the options, a panic in its MarshalJSON or in one
// of the functions included, is reported by [Catalog.Seal]. The event holds its
// JSON until it is let go: as many bytes as its payload, about, which the outbox
// bounds when it writes it.
func NewEvent(data any, opts ...Option) Event {
	if isQuiet() {
		panic(errContractRaises) // what is there to see to it makes an error of it
	}
	// First: should encoding it raise another event, that one is older in everything.
	encoded := encodeRaised(data)
	options := fixOptions(data, opts)
	now := time.Now().UTC().Truncate(time.Microsecond)
	return Event{ID: newID(uuid.NewV7, now), Time: now, Data: data, Options: options, raised: encoded}
}

// From returns the event with the aggregate that raised it, for writers that are given events alone,
// such as outbox.Writer. Its id and time stay the same, so an event can be made before the database
// has made the key of its aggregate:
//
//	placed := envelope.NewEvent(OrderPlaced{Customer: "ada"})
//	... // INSERT INTO orders ... RETURNING id
//	placed = placed.From(envelope.Source{Aggregate: "Order", ID: strconv.Itoa(id)})
//
// Without it an event belongs to no aggregate, and has no ordering key but that of [Key].
func (e Event) From(source Source) Event {
	e.source = &source
	return e
}

// Source returns what was given to [Event.From]; the zero Source where nothing was.
func (e *Event) Source() Source {
	if e.source == nil {
		return Source{}
	}
	return *e.source
}

func encodeRaised(data any) (r raised) {
	t := reflect.TypeOf(data)
	if t == nil {
		return r
	}
	if isPointer := t.Kind() == reflect.Pointer; !isPointer {
		r.json, r.err = encodeJSON(addressable(data))
	}
	if r.err != nil || r.json == nil { // no event, as Seal will say, unless a registration can encode it
		if !hasEncoding(t) {
			return r
		}
	}
	r.derived = derive(t, data, r.json)
	for _, d := range r.derived {
		if d.encoded != nil && r.json == nil {
			r.json, r.err = d.encoded.json, d.encoded.err
		}
	}
	return r
}

// SameData reports whether two events say the same: data of one type with the same
// JSON, as it was when they were raised. Of events built as literals it is not known,
// and the answer is false.
func (e *Event) SameData(other *Event) bool {
	return e.raised.json != nil && bytes.Equal(e.raised.json, other.raised.json) &&
		reflect.TypeOf(e.Data) == reflect.TypeOf(other.Data)
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
