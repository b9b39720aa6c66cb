package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/strictjson"
)

// reserved names of flat fields that come from columns of their own.
var reserved = []string{brokers.FieldID, brokers.FieldType, brokers.FieldOrderingKey, brokers.FieldCorrelationID, brokers.FieldContentType}

// ParseHeaders reads the headers column: a JSON object whose values are strings, each name once.
// The attributes are sorted by name. The names id, type, ordering_key, correlation_id and
// content-type are refused, since the columns of these names fill them. The error is a
// *MalformedError.
func ParseHeaders(text string) ([]brokers.Attribute, error) {
	attributes, ok := plainHeaders(text)
	if !ok {
		var err error
		if attributes, err = decodeHeaders(text); err != nil {
			return nil, err
		}
	}
	for _, a := range attributes {
		if slices.Contains(reserved, a.Name) {
			return nil, &MalformedError{"headers", fmt.Sprintf("holds %q, which has a column of its own", a.Name)}
		}
	}
	return attributes, nil
}

// decodeHeaders reads headers of any form.
func decodeHeaders(text string) ([]brokers.Attribute, error) {
	var headers map[string]*string
	if err := strictjson.Unmarshal([]byte(text), &headers); err != nil {
		reason := "is not a JSON object of strings"
		var (
			syntax    *json.SyntaxError
			ambiguous *strictjson.AmbiguousError
		)
		switch {
		case errors.As(err, &syntax):
			reason = fmt.Sprintf("is not valid JSON at byte %d", syntax.Offset)
		case errors.As(err, &ambiguous):
			reason = "is ambiguous: " + ambiguous.Error()
		}
		return nil, &MalformedError{"headers", reason}
	}
	if headers == nil {
		return nil, &MalformedError{"headers", "is not a JSON object of strings"}
	}
	attributes := make([]brokers.Attribute, 0, len(headers))
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if headers[name] == nil {
			return nil, &MalformedError{"headers", "is not a JSON object of strings"}
		}
		attributes = append(attributes, brokers.Attribute{Name: name, Value: *headers[name]})
	}
	return attributes, nil
}

// plainHeaders reads headers as nearly all are: an object of strings of printable ASCII without
// escapes. Each message has some, and encoding/json would take a quarter of the processor time of a
// relay that drains a backlog. ok is false for whatever else a JSON text can be, right or wrong,
// and for names that occur twice: that is for decodeHeaders to judge.
func plainHeaders(text string) (attributes []brokers.Attribute, ok bool) {
	rest, ok := token(text, "{")
	if !ok {
		return nil, false
	}
	attributes = make([]brokers.Attribute, 0, 4)
	for more := trimSpace(rest) != "}"; more; {
		var a brokers.Attribute
		if a.Name, rest, ok = plainString(rest); !ok {
			return nil, false
		}
		if rest, ok = token(rest, ":"); !ok {
			return nil, false
		}
		if a.Value, rest, ok = plainString(rest); !ok {
			return nil, false
		}
		attributes = append(attributes, a)
		rest, more = token(rest, ",")
	}
	if rest = trimSpace(rest); rest != "}" {
		return nil, false
	}
	slices.SortFunc(attributes, func(a, b brokers.Attribute) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(attributes); i++ {
		if attributes[i].Name == attributes[i-1].Name {
			return nil, false
		}
	}
	return attributes, true
}

// plainString cuts a string of printable ASCII without escapes off the text.
func plainString(text string) (value, rest string, ok bool) {
	text, ok = token(text, `"`)
	if !ok {
		return "", text, false
	}
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"':
			return text[:i], text[i+1:], true
		case c < ' ' || c > '~' || c == '\\':
			return "", text, false
		}
	}
	return "", text, false
}

// token cuts one off the text, with the space before it; where the text begins otherwise it stays
// as it is.
func token(text, token string) (rest string, ok bool) {
	if rest, ok = strings.CutPrefix(trimSpace(text), token); ok {
		return rest, true
	}
	return text, false
}

// trimSpace cuts off what JSON allows around its tokens.
func trimSpace(text string) string { return strings.Trim(text, " \t\r\n") }
