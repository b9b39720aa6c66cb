package envelope

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// timeLayout is RFC 3339 with always six digits of a second's fraction.
const timeLayout = "2006-01-02T15:04:05.000000Z07:00"

// writer appends JSON to a buffer, one method for each kind of member. The fixed
// part of a message is some thirty members, for which encoding/json would take
// longer than for most events.
type writer struct {
	b    []byte
	err  error // the first one; only extensions can fail
	lean bool  // members without a value are left out
}

func (w *writer) open()  { w.b = append(w.b, '{') }
func (w *writer) close() { w.b = append(w.b, '}') }

func (w *writer) openMember(name string) {
	w.name(name)
	w.open()
}

// name begins a member. The names of this package need no escaping.
func (w *writer) name(name string) {
	w.comma()
	w.b = append(w.b, '"')
	w.b = append(w.b, name...)
	w.b = append(w.b, '"', ':')
}

// comma goes before every member but the first. No value ends in "{".
func (w *writer) comma() {
	if w.b[len(w.b)-1] != '{' {
		w.b = append(w.b, ',')
	}
}

func (w *writer) null(name string) {
	if w.lean {
		return
	}
	w.name(name)
	w.b = append(w.b, "null"...)
}

func (w *writer) string(name, value string) {
	w.name(name)
	w.b = appendString(w.b, value)
}

// nullable has no value where the string is empty.
func (w *writer) nullable(name, value string) {
	if value == "" {
		w.null(name)
		return
	}
	w.string(name, value)
}

// optional leaves the member out for the empty string.
func (w *writer) optional(name, value string) {
	if value != "" {
		w.string(name, value)
	}
}

func (w *writer) int(name string, value int64) {
	w.name(name)
	w.b = strconv.AppendInt(w.b, value, 10)
}

func (w *writer) bool(name string, value bool) {
	w.name(name)
	w.b = strconv.AppendBool(w.b, value)
}

func (w *writer) uuid(name string, id uuid.UUID) {
	w.name(name)
	w.b = append(w.b, '"')
	for i, end := range [...]int{4, 6, 8, 10, 16} {
		start := [...]int{0, 4, 6, 8, 10}[i]
		if i > 0 {
			w.b = append(w.b, '-')
		}
		w.b = hex.AppendEncode(w.b, id[start:end])
	}
	w.b = append(w.b, '"')
}

func (w *writer) time(name string, t time.Time) {
	w.name(name)
	w.b = append(w.b, '"')
	w.b = t.UTC().AppendFormat(w.b, timeLayout)
	w.b = append(w.b, '"')
}

// nullableTime has no value where the time is zero.
func (w *writer) nullableTime(name string, t time.Time) {
	if t.IsZero() {
		w.null(name)
		return
	}
	w.time(name, t)
}

func (w *writer) traceParent(name string, p *TraceParent) {
	if p == nil {
		w.null(name)
		return
	}
	w.openMember(name)
	w.string("trace_id", p.TraceID)
	w.string("parent_id", p.ParentID)
	w.bool("sampled", p.Sampled)
	w.close()
}

// raw writes a value that is JSON already; none at all is null.
func (w *writer) raw(name string, value json.RawMessage) {
	w.name(name)
	if len(value) == 0 {
		value = json.RawMessage("null")
	}
	w.b = append(w.b, value...)
}

func (w *writer) base64(name string, value []byte) {
	w.name(name)
	w.b = append(w.b, '"')
	w.b = base64.StdEncoding.AppendEncode(w.b, value)
	w.b = append(w.b, '"')
}

// members writes the extensions into the object that is open, sorted by name.
func (w *writer) members(extensions Extensions) {
	names := make([]string, 0, 16) // on the stack
	for name := range extensions {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		w.comma()
		w.b = appendString(w.b, name)
		w.b = append(w.b, ':')
		w.any(extensions[name])
	}
}

func (w *writer) any(value any) {
	switch v := value.(type) {
	case nil:
		w.b = append(w.b, "null"...)
	case string:
		w.b = appendString(w.b, v)
	case bool:
		w.b = strconv.AppendBool(w.b, v)
	default:
		raw, err := encodeJSON(value)
		if err != nil && w.err == nil {
			w.err = err
		}
		w.b = append(w.b, raw...)
	}
}

// appendString appends a JSON string. Printable ASCII needs no escaping; the rest
// is left to encoding/json.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			raw, _ := encodeJSON(s) // a string always encodes
			return append(b, raw...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
