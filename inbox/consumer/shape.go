package consumer

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/gorm-fanout/fanout/inbox"
)

// maxShape bounds what is parsed: the shape of each message is asked for.
const maxShape = 64 << 10

// shapeOf says in a few words what a message that cannot be read looks like. There are as many answers
// as are written here, whatever the messages hold: the log tells shapes apart.
func shapeOf(m *inbox.Message) string {
	payload := m.Payload
	switch {
	case m.Attributes["ce-specversion"] != "":
		return "CloudEvent in binary mode"
	case payload == nil:
		return "no payload"
	case len(bytes.TrimSpace(payload)) == 0:
		return "empty"
	case payload[0] == 0 && len(payload) > 4: // magic byte and id of the schema
		return "schema registry"
	case bytes.HasPrefix(payload, []byte("Obj\x01")):
		return "Avro"
	case !utf8.Valid(payload):
		return "binary"
	case len(payload) > maxShape:
		return "long text"
	}
	return textShape(bytes.TrimSpace(payload))
}

// textShape is that of a text that is not empty.
func textShape(text []byte) string {
	known := json.Valid(text)
	switch {
	case text[0] == '{' && !known:
		return "broken JSON"
	case text[0] == '{':
		return objectShape(text)
	case text[0] == '[' && known:
		return "JSON array"
	case known:
		return "JSON value"
	}
	return "text"
}

// objectShape is that of a JSON object.
func objectShape(text []byte) string {
	var o map[string]json.RawMessage
	if json.Unmarshal(text, &o) != nil {
		return "JSON object"
	}
	if inner := o["payload"]; o["schema"] != nil && inner != nil { // as Kafka Connect writes it with schemas
		o = nil
		if json.Unmarshal(inner, &o) != nil {
			return "Kafka Connect"
		}
		if o["op"] == nil {
			return "Kafka Connect"
		}
	}
	switch {
	case o["op"] != nil && o["source"] != nil:
		return "Debezium"
	case o["specversion"] != nil:
		return "CloudEvent"
	case o["metadata"] != nil:
		return "envelope"
	}
	return "JSON object"
}
