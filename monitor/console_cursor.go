package monitor

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gorm-fanout/fanout/internal/strictjson"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// A cursor is a place in the lists of all brokers and statuses. On its way through a client it is
// an opaque text.
type cursor struct {
	Broker string
	Status outbox.Status
	After  admin.Position
	// Walks tells that the index of searches has taken too long: rows are looked at one after the other from here on.
	Walks bool
}

// position is the place within lists.
func (c cursor) position() admin.Position {
	return admin.Position{Broker: c.Broker, Status: c.Status, Time: c.After.Time, ID: c.After.ID}
}

// wireCursor is what the text holds.
type wireCursor struct {
	Broker string        `json:"b"`
	Status outbox.Status `json:"s"`
	Time   *time.Time    `json:"t,omitempty"`
	ID     int64         `json:"i,omitempty"`
	Walks  bool          `json:"w,omitempty"`
}

func (c cursor) encode() string {
	wire := wireCursor{Broker: c.Broker, Status: c.Status, ID: c.After.ID, Walks: c.Walks}
	if !c.After.Time.IsZero() {
		at := c.After.Time.UTC()
		wire.Time = &at
	}
	text, err := json.Marshal(wire)
	if err != nil { // a time beyond the year 9999 has no text; such a row begins the list anew
		text, _ = json.Marshal(wireCursor{Broker: c.Broker, Status: c.Status}) //nolint:errchkjson // two texts always encode
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// maxCursor bounds what is decoded.
const maxCursor = 4096

func decodeCursor(text string) (cursor, error) {
	bad := refusef("messages: the cursor is none that was given out: begin without a cursor")
	if len(text) > maxCursor {
		return cursor{}, bad
	}
	source, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return cursor{}, bad
	}
	var wire wireCursor
	if strictjson.UnmarshalKnown(source, &wire) != nil || wire.Broker == "" || !wire.Status.Valid() || wire.ID < 0 || checkText("broker", wire.Broker) != nil {
		return cursor{}, bad
	}
	c := cursor{Broker: wire.Broker, Status: wire.Status, After: admin.Position{ID: wire.ID}, Walks: wire.Walks}
	if wire.Time != nil {
		c.After.Time = *wire.Time
	}
	if (wire.Time != nil) != (wire.Status.Terminal() && wire.ID > 0) { // only lists by time are continued at a time
		return cursor{}, bad
	}
	return c, nil
}

// maxText bounds names, keys, types and reasons that come from outside.
const maxText = 2000

// checkText refuses text that no row can hold.
func checkText(what, text string) error {
	switch {
	case len(text) > maxText:
		return refusef("the %s has %d bytes: use at most %d", what, len(text), maxText)
	case strings.ContainsRune(text, 0) || !utf8.ValidString(text):
		return refusef("the %s %q is no text that a row can hold", what, text)
	}
	return nil
}
