package outbox

import (
	"slices"
	"strings"

	"github.com/gorm-fanout/fanout/brokers"
)

// plainHeaders reads headers as nearly all are: an object of strings of printable ASCII without escapes. Each message has some, and
// encoding/json would take a quarter of the processor time of a relay that drains a backlog. ok is false for whatever else a JSON
// text can be, right or wrong, and for names that occur twice: that is for decodeHeaders to judge.
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

// token cuts one off the text, with the space before it; where the text begins otherwise it stays as it is.
func token(text, token string) (rest string, ok bool) {
	if rest, ok = strings.CutPrefix(trimSpace(text), token); ok {
		return rest, true
	}
	return text, false
}

// trimSpace cuts off what JSON allows around its tokens.
func trimSpace(text string) string { return strings.Trim(text, " \t\r\n") }
