// Package strictjson decodes JSON from outside: from clients, partners and rows that others have
// written. The package encoding/json takes the last of several members of one name, and takes a
// member for another one whose name differs only in case; two readers of one text can so understand
// two things. Here both are errors. It is safe for concurrent use.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
)

// An AmbiguousError says which member of a text can be understood in two ways.
type AmbiguousError struct {
	// Path of the member, its names joined by dots; elements of arrays are not numbered.
	Path   string
	Reason string
}

// Error implements error.
func (e *AmbiguousError) Error() string { return "member " + strconv.Quote(e.Path) + " " + e.Reason }

var errNotUTF8 = errors.New("it is not valid UTF-8")

// Unmarshal decodes a text into a value of a type of ours: in every object each name occurs once,
// and a name that differs from that of a field only in case is an error. Unknown members are
// ignored. The error is an [*AmbiguousError] or that of encoding/json.
func Unmarshal(text []byte, into any) error {
	if err := check(text, into, true); err != nil {
		return err
	}
	return json.Unmarshal(text, into) //nolint:wrapcheck // callers say what they decode
}

// UnmarshalKnown is [Unmarshal], but a member that is not known is an error.
func UnmarshalKnown(text []byte, into any) error {
	if err := check(text, into, true); err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into) //nolint:wrapcheck // callers say what they decode
}

// UnmarshalLoose decodes into a value of a type that is not ours. Names may differ from those of
// its fields in case, as encoding/json allows, but no two members may be for one field.
func UnmarshalLoose(text []byte, into any) error {
	if err := check(text, into, false); err != nil {
		return err
	}
	return json.Unmarshal(text, into) //nolint:wrapcheck // callers say what they decode
}

func check(text []byte, into any, exact bool) error {
	if !utf8.Valid(text) {
		return errNotUTF8
	}
	if !json.Valid(text) { // the scanner relies on it; encoding/json says what is wrong
		var anything json.RawMessage
		return json.Unmarshal(text, &anything) //nolint:wrapcheck // callers say what they decode
	}
	s := scanner{text: text, exact: exact}
	return s.value(typeOf(into))
}

// scanner reads JSON that is known to be valid.
type scanner struct {
	text  []byte
	pos   int
	exact bool
	names [][]byte // of the members of all objects that are open, innermost last
}

// value reads one value that is to be decoded into a t; nil stands for a type that is not looked
// into.
func (s *scanner) value(t *shape) error {
	switch s.next() {
	case '{':
		return s.object(t)
	case '[':
		return s.array(t.element())
	case '"':
		s.string()
	default:
		for s.pos < len(s.text) && !bytes.ContainsRune(terminators, rune(s.text[s.pos])) {
			s.pos++
		}
	}
	return nil
}

// terminators end a number, true, false and null.
var terminators = []byte(",]} \t\r\n") //nolint:gochecknoglobals // a constant

// next skips white space and shows what follows.
func (s *scanner) next() byte {
	for {
		switch c := s.text[s.pos]; c {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return c
		}
	}
}

// string returns what stands between the quotes.
func (s *scanner) string() []byte {
	s.pos++
	start := s.pos
	for s.text[s.pos] != '"' {
		if s.text[s.pos] == '\\' {
			s.pos++
		}
		s.pos++
	}
	s.pos++
	return s.text[start : s.pos-1]
}

func (s *scanner) array(element *shape) error {
	for s.pos++; s.next() != ']'; {
		if s.text[s.pos] == ',' {
			s.pos++
			continue
		}
		if err := s.value(element); err != nil {
			return err
		}
	}
	s.pos++
	return nil
}

func (s *scanner) object(t *shape) error {
	outer := len(s.names)
	var many map[string]struct{}
	for s.pos++; s.next() != '}'; {
		if s.text[s.pos] == ',' {
			s.pos++
			continue
		}
		name := unescape(s.string())
		field, as, err := t.member(name, s.exact)
		if err != nil {
			return err
		}
		s.names = append(s.names, as)
		if repeated(s.names[outer:], &many) {
			return &AmbiguousError{Path: string(name), Reason: "occurs twice: leave one out"}
		}
		s.next()
		s.pos++ // the colon
		if err := s.value(field); err != nil {
			return under(name, err)
		}
	}
	s.pos++
	s.names = s.names[:outer]
	return nil
}

// few is how many names are compared one by one.
const few = 32

// repeated tells whether the last of the names was there before.
func repeated(names [][]byte, many *map[string]struct{}) bool {
	before, last := names[:len(names)-1], names[len(names)-1]
	if len(names) <= few {
		return slices.ContainsFunc(before, func(name []byte) bool { return bytes.Equal(name, last) })
	}
	if *many == nil {
		*many = make(map[string]struct{}, 2*few)
		for _, name := range before {
			(*many)[string(name)] = struct{}{}
		}
	}
	_, found := (*many)[string(last)]
	(*many)[string(last)] = struct{}{}
	return found
}

// unescape is the name as encoding/json reads it.
func unescape(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	var name string
	if err := json.Unmarshal(append(append([]byte{'"'}, raw...), '"'), &name); err != nil { // it is valid
		return raw
	}
	return []byte(name)
}

// under completes the path of an error on its way out.
func under(name []byte, err error) error {
	var ambiguous *AmbiguousError
	if errors.As(err, &ambiguous) {
		ambiguous.Path = fmt.Sprintf("%s.%s", name, ambiguous.Path)
	}
	return err
}
