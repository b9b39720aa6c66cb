package jsonfields

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// A Renaming turns the JSON that encoding/json writes of a type into that with names in camelCase. It is immutable. The
// nil one, for a type that has nothing to rename, returns all as it is.
type Renaming struct{ root *node }

// node is what is renamed in the JSON of a type; nil is nothing.
type node struct {
	members map[string]member // of a struct, by the names that encoding/json writes
	elem    *node             // of a map, slice or array
	renames bool              // here or below
}

type member struct {
	name  string
	value *node
}

// CamelCase returns what gives the fields of a type without a JSON name one in camelCase: in structs within structs,
// pointers, slices, arrays and maps, whose keys stay, wherever encoding/json itself decides what is written. Values of types with a
// MarshalJSON or MarshalText, and what is in interfaces, stay as they are. The error names two fields of a struct that
// decoders could not tell apart, which match names in any case.
func CamelCase(t reflect.Type) (*Renaming, error) {
	b := builder{}
	root, err := b.of(t)
	if err != nil {
		return nil, err
	}
	for changes := true; changes; { // types can hold themselves
		changes = false
		for _, n := range b {
			if n != nil && !n.renames && n.reaches() {
				n.renames, changes = true, true
			}
		}
	}
	for _, n := range b {
		n.prune()
	}
	if root == nil || !root.renames {
		return nil, nil //nolint:nilnil // there is nothing to rename
	}
	return &Renaming{root}, nil
}

// builder has the node of each type.
type builder map[reflect.Type]*node

func (b builder) of(t reflect.Type) (*node, error) {
	for pointers := 0; t.Kind() == reflect.Pointer; pointers++ {
		if t = t.Elem(); pointers > 100 { // type P *P
			return nil, nil //nolint:nilnil // nothing is renamed
		}
	}
	if writesItself(t) {
		return nil, nil //nolint:nilnil // nothing is renamed
	}
	if known, met := b[t]; met {
		return known, nil
	}
	var err error
	switch t.Kind() {
	case reflect.Struct:
		n := &node{members: map[string]member{}}
		b[t] = n
		return n, b.structOf(n, t)
	case reflect.Map, reflect.Slice, reflect.Array:
		n := new(node)
		b[t] = n
		n.elem, err = b.of(t.Elem())
		return n, err
	default:
		return nil, nil //nolint:nilnil // nothing is renamed
	}
}

func (b builder) structOf(n *node, t reflect.Type) error {
	fields := Of(t)
	for i := range fields {
		f := &fields[i]
		name := f.CamelCase()
		for j := range i {
			other := &fields[j]
			if strings.EqualFold(name, other.Name) && (name != f.Name || other.CamelCase() != other.Name) {
				return fmt.Errorf("%s and %s of %s would have one name in camelCase, %q, if case is ignored as decoders do", other.GoName, f.GoName, t, name)
			}
		}
		value, err := b.of(f.Type)
		if err != nil {
			return err
		}
		n.members[f.Name] = member{name, value}
		n.renames = n.renames || name != f.Name
	}
	return nil
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// writesItself reports whether code of the type's own writes it, at least where it has an address.
func writesItself(t reflect.Type) bool {
	pointer := reflect.PointerTo(t)
	return pointer.Implements(jsonMarshaler) || pointer.Implements(textMarshaler)
}

// reaches reports whether something below is renamed.
func (n *node) reaches() bool {
	if n.elem != nil && n.elem.renames {
		return true
	}
	for _, m := range n.members {
		if m.value != nil && m.value.renames {
			return true
		}
	}
	return false
}

// prune lets go of what renames nothing, so that it is passed over.
func (n *node) prune() {
	if n.elem != nil && !n.elem.renames {
		n.elem = nil
	}
	for name, m := range n.members {
		if m.value != nil && !m.value.renames {
			n.members[name] = member{m.name, nil}
		}
	}
}

// Rename returns JSON with the names changed, and else byte for byte as it was, in new memory. The JSON is what encoding/json has
// written of the type, compact.
func (r *Renaming) Rename(text []byte) []byte {
	if r == nil {
		return text
	}
	w := renamer{in: text, out: make([]byte, 0, len(text))}
	w.value(r.root)
	return append(w.out, text[w.copied:]...)
}

// renamer reads JSON, and copies up to each name that changes.
type renamer struct {
	in, out    []byte
	at, copied int
}

func (w *renamer) value(n *node) {
	switch {
	case n == nil:
		w.skip()
	case w.peek() == '{':
		w.object(n)
	case w.peek() == '[' && n.members == nil:
		for first := true; w.more(first, ']'); first = false {
			w.value(n.elem)
		}
	default: // null
		w.skip()
	}
}

func (w *renamer) object(n *node) {
	for first := true; w.more(first, '}'); first = false {
		begin := w.at + 1
		w.text()
		name := w.in[min(begin, w.at):max(begin, w.at-1)]
		w.at++ // the colon
		value := n.elem
		if m, known := n.members[string(name)]; known {
			value = m.value
			if m.name != string(name) {
				w.out = append(append(w.out, w.in[w.copied:begin]...), m.name...)
				w.copied = begin + len(name)
			}
		}
		w.value(value)
	}
}

// more reports whether an element or member follows, and goes to it, or behind the end.
func (w *renamer) more(first bool, end byte) bool {
	if first {
		w.at++ // the bracket
	}
	switch c := w.peek(); {
	case c == end:
		w.at++
		return false
	case first:
		return w.at < len(w.in)
	case c == ',':
		w.at++
		return w.at < len(w.in)
	default: // it is no JSON: what is left stays as it is
		w.at = len(w.in)
		return false
	}
}

// skip goes behind a value.
func (w *renamer) skip() {
	for depth := 0; w.at < len(w.in); {
		switch w.in[w.at] {
		case '"':
			w.text()
		case '{', '[':
			depth++
			w.at++
		case '}', ']':
			if depth == 0 {
				return
			}
			depth--
			w.at++
		case ',':
			if depth == 0 {
				return
			}
			w.at++
		default: // within a number or a word, or a colon
			w.at++
		}
	}
}

// text goes behind a string.
func (w *renamer) text() {
	for w.at++; w.at < len(w.in); w.at++ {
		switch w.in[w.at] {
		case '\\':
			w.at++
		case '"':
			w.at++
			return
		}
	}
	w.at = len(w.in) // it is no JSON
}

func (w *renamer) peek() byte {
	if w.at < len(w.in) {
		return w.in[w.at]
	}
	return 0
}
