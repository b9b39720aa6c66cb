package inbox

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"
	"unicode/utf8"
)

// besideField is the member of a dead letter's attributes in the table that is an object: what a
// [Decoder] needs of the delivery and is no attribute of text.
const besideField = "fanout"

// beside is that object. Texts that need not be UTF-8 are in base64.
type beside struct {
	OrderingKey []byte      `json:"ordering_key,omitempty"` // the broker's own, where it is not that of the attributes
	Source      string      `json:"source,omitempty"`       // where the column has it cut
	Position    string      `json:"position,omitempty"`
	Published   *time.Time  `json:"published,omitempty"`
	Binary      [][2][]byte `json:"binary,omitempty"` // attributes, name and value, that are not UTF-8
}

// storedAttributes are those of a message as the table has them; source is the column's.
func storedAttributes(m *Message, source string) (string, error) {
	b := beside{Position: m.Position}
	if m.BrokerKey != m.Attributes[FieldOrderingKey] {
		b.OrderingKey = []byte(m.BrokerKey)
	}
	if m.Source != source {
		b.Source = m.Source
	}
	if !m.Published.IsZero() {
		at := m.Published.UTC()
		b.Published = &at
	}
	all := make(map[string]any, len(m.Attributes)+1)
	for _, name := range slices.Sorted(maps.Keys(m.Attributes)) {
		value := m.Attributes[name]
		if name == besideField || !utf8.ValidString(name) || !utf8.ValidString(value) {
			b.Binary = append(b.Binary, [2][]byte{[]byte(name), []byte(value)})
		} else {
			all[name] = value
		}
	}
	if b.OrderingKey != nil || b.Source != "" || b.Position != "" || b.Published != nil || b.Binary != nil {
		all[besideField] = &b
	}
	text, err := json.Marshal(all)
	return string(text), err
}

// readAttributes reads what [storedAttributes] has written. A row that an operator has written by hand
// may hold anything.
func (m *DeadLetter) readAttributes(text string) {
	var all map[string]json.RawMessage
	_ = json.Unmarshal([]byte(text), &all)
	if all != nil {
		m.Attributes = make(map[string]string, len(all))
	}
	for name, member := range all {
		var value string
		if json.Unmarshal(member, &value) == nil {
			m.Attributes[name] = value
		} else if name == besideField {
			_ = json.Unmarshal(member, &m.beside)
		}
	}
	for _, pair := range m.beside.Binary {
		m.Attributes[string(pair[0])] = string(pair[1])
	}
}

// raw is the delivery that has become a dead letter, as a [Decoder] reads it.
func (m *DeadLetter) raw() *RawMessage {
	raw := &RawMessage{
		Payload: m.Payload, Attributes: m.Attributes, OrderingKey: cmp.Or(string(m.beside.OrderingKey), m.Attributes[FieldOrderingKey]),
		Source: cmp.Or(m.beside.Source, m.Source), Position: cmp.Or(m.beside.Position, m.Key.String()),
	}
	if m.beside.Published != nil {
		raw.Published = *m.beside.Published
	}
	return raw
}
