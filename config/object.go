package config

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// object is a mapping that is being read. A key that is not there reads as absent; close reports
// those that were never read.
type object struct {
	*reader

	path   string
	at     position
	fields []*field
	known  []string
	broken bool // what stands there is no mapping; reported
	// Ignored are known keys that were refused where they are there, and that no message recommends.
	ignored func(name string) bool
	shape   *shape // what it takes; nil unless that is being described
	// Sections are the mappings below this one that an adapter's settings were decoded from.
	sections map[string]*object
}

// field is one key of an object, or one entry of a list.
type field struct {
	name  string
	path  string
	key   position
	at    position // of the value
	value ast.Node // nil when it was wrong and has been reported
	bad   bool

	// Of a scalar, once it was read:
	source   string // as the file has it, for messages
	text     string // with its variables expanded
	variable bool   // text depends on a variable, so it has the type that it looks like
}

// open reads a mapping. Nothing at all (a key with all below it commented out) counts as an empty
// one. The object is never nil.
func (r *reader) open(node ast.Node, path string, at position) *object {
	o := &object{reader: r, path: path, at: at}
	if node == nil {
		return o
	}
	var pairs []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.NullNode:
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	default:
		o.broken = true
		r.problemf(positionOf(node), path, "must be a mapping of keys, but is %s", kind(node))
	}
	for _, pair := range pairs {
		o.add(pair)
	}
	return o
}

func (o *object) add(pair *ast.MappingValueNode) {
	at := positionOf(pair.Key)
	switch pair.Key.Type() {
	case ast.StringType, ast.IntegerType, ast.FloatType, ast.BoolType, ast.NullType, ast.InfinityType, ast.NanType:
	case ast.MergeKeyType:
		o.problemf(at, o.path, "merge keys (<<) are not supported: write the keys out")
		return
	default:
		o.problemf(at, o.path, "a key must be a plain name")
		return
	}
	f := &field{name: pair.Key.GetToken().Value, key: at}
	f.path = join(o.path, f.name)
	if first := o.find(f.name); first != nil {
		o.problemf(at, o.path, "duplicate key %s: the first one is in line %d", shown(f.name), first.key.line)
		return
	}
	o.fields = append(o.fields, f)
	f.at = positionOf(pair.Value)
	if pair.Value.Type() == ast.NullType {
		f.at = at // where nothing stands, the parser's position is of no use
	}
	f.value = pair.Value
}

func (o *object) find(name string) *field {
	for _, f := range o.fields {
		if f.name == name {
			return f
		}
	}
	return nil
}

// get returns a field by its known name, looking through aliases; nil when it is absent or its
// value was reported.
func (o *object) get(name string) *field {
	o.known = append(o.known, name)
	f := o.find(name)
	if f == nil {
		return nil
	}
	f.value = o.plain(f.value, f.path)
	if f.value == nil {
		f.bad = true
		return nil
	}
	return f
}

// has reports whether the file has the key, with whatever value.
func (o *object) has(name string) bool { return o.find(name) != nil }

// sound reports whether none of the fields has been reported, so that comparing them makes sense.
func (o *object) sound(names ...string) bool {
	for _, name := range names {
		if f := o.find(name); f != nil && f.bad {
			return false
		}
	}
	return true
}

// where is the position of the first of the fields that is there, or else of the object.
func (o *object) where(names ...string) position {
	for _, name := range names {
		if f := o.find(name); f != nil {
			return f.at
		}
	}
	return o.at
}

// rejectf reports a field as wrong.
func (r *reader) rejectf(f *field, format string, args ...any) {
	f.bad = true
	r.problemf(f.at, f.path, format, args...)
}

// object opens a mapping below this one.
func (o *object) object(name string) *object {
	f, below := o.get(name), o.shape.below(name)
	if f == nil {
		return &object{reader: o.reader, path: join(o.path, name), at: o.at, broken: o.has(name), shape: below}
	}
	opened := o.open(f.value, f.path, f.key)
	opened.shape = below
	return opened
}

// close reports the keys that are not settings.
func (o *object) close() {
	if o.shape != nil {
		o.shape.closed = true
	}
	known := make(map[string]bool, len(o.known))
	for _, name := range o.known {
		known[name] = true
	}
	recommended := o.known
	if o.ignored != nil {
		recommended = slices.DeleteFunc(slices.Clone(o.known), o.ignored)
	}
	for _, f := range o.fields {
		if !known[f.name] {
			hint := suggest(f.name, recommended)
			if strings.Contains(f.name, " ") { // no key has a space: it is the rest of a value
				hint += "; a value with a comma within {} needs quotes"
			}
			o.problemf(f.key, o.path, "unknown key %s%s", shown(f.name), hint)
		}
	}
}
