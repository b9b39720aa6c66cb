package jsonschema

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Report takes one change: whether it breaks readers, where it is, and what it is.
type Report func(breaking bool, path, change string)

// maxSteps bounds what is compared, members and pairs of schemas: the definitions of two files can
// be paired in every combination.
const maxSteps = 200_000

var errTooComplex = errors.New("jsonschema: the two schemas have too many parts to compare")

// Compare reports what has changed from one checked schema to another, for who reads what they
// describe. A change is breaking if something that could be read no longer comes (a field, a value
// of an enum), or something comes that did not have to be expected (null, another type, a value
// that the enum did not have, no field where there always was one). Whatever else changes is
// compatible: a further field, or a narrower promise. The error is for schemas that are too complex
// to compare.
func Compare(before, after *Schema, path string, report Report) error {
	c := &comparison{before: before, after: after, report: report, seen: map[[2]*Schema]bool{}}
	c.schemas(before, after, path)
	if c.steps > maxSteps {
		return errTooComplex
	}
	return nil
}

type comparison struct {
	before, after *Schema // where references are found
	report        Report
	seen          map[[2]*Schema]bool
	steps, depth  int
}

func (c *comparison) breaking(path, change string)   { c.report(true, path, change) }
func (c *comparison) compatible(path, change string) { c.report(false, path, change) }

// promise reports something of which readers could be sure: gone it is breaking, new it is not.
func (c *comparison) promise(path string, before, after bool, gone, added string) {
	switch {
	case before && !after:
		c.breaking(path, gone)
	case after && !before:
		c.compatible(path, added)
	}
}

// text reports a promise that has a value, such as a format.
func (c *comparison) text(path, what, before, after string) {
	switch {
	case before == after:
	case before == "":
		c.compatible(path, what+" "+after+" added")
	case after == "":
		c.breaking(path, what+" "+before+" removed")
	default:
		c.breaking(path, what+" changed from "+before+" to "+after)
	}
}

// resolved is the schema behind references, and whether null is taken as well.
func resolved(s, root *Schema) (*Schema, bool) {
	null := s.TakesNull()
	if len(s.AnyOf) > 0 {
		s = s.AnyOf[0]
	}
	if target, err := s.resolve(root); err == nil { // Check has followed them
		s = target
	}
	return s, null || s.TakesNull()
}

func (c *comparison) schemas(before, after *Schema, path string) {
	b, nullBefore := resolved(before, c.before)
	a, nullAfter := resolved(after, c.after)
	if len(b.Type) > 0 && len(a.Type) > 0 {
		c.promise(path, !nullBefore, !nullAfter, "may be null now", "is never null now")
	}
	pair := [2]*Schema{b, a}
	if c.seen[pair] { // a definition is reported where it is met first
		return
	}
	c.seen[pair] = true
	c.depth++
	defer func() { c.depth-- }()
	c.steps += 1 + len(b.Properties) + len(a.Properties)
	if c.depth > maxDepth {
		c.steps = maxSteps + 1
	}
	if c.steps > maxSteps {
		return
	}
	if c.types(b, a, path) {
		c.values(b, a, path)
		c.objects(b, a, path)
		c.lists(b, a, path)
	}
}

// types reports whether there is more to compare.
func (c *comparison) types(b, a *Schema, path string) bool {
	before, after := typesWithoutNull(b), typesWithoutNull(a)
	switch covered, covers := allIn(after, before), allIn(before, after); {
	case covered && covers:
		return true
	case covered:
		c.compatible(path, "type narrowed from "+list(before)+" to "+list(after))
		return len(before) > 0
	case covers:
		c.breaking(path, "type widened from "+list(before)+" to "+list(after))
	default:
		c.breaking(path, "type changed from "+list(before)+" to "+list(after))
	}
	return false
}

func typesWithoutNull(s *Schema) []string {
	return slices.DeleteFunc(slices.Clone(s.Type), func(t string) bool { return t == Null && len(s.Type) > 1 })
}

// allIn reports whether every type is one of those, of which none means any.
func allIn(types, those []string) bool {
	if len(those) == 0 {
		return true
	}
	for _, t := range types {
		if !slices.Contains(those, t) && (t != Integer || !slices.Contains(those, Number)) {
			return false
		}
	}
	return len(types) > 0
}

func list(types []string) string {
	if len(types) == 0 {
		return "any"
	}
	return strings.Join(types, " or ")
}

// values compares what is said of scalars.
func (c *comparison) values(b, a *Schema, path string) {
	before, isRange := ranges[b.Format]
	after, alsoRange := ranges[a.Format]
	switch {
	case !isRange || !alsoRange || b.Format == a.Format:
		c.text(path, "format", b.Format, a.Format)
	case after.least >= before.least && after.most <= before.most:
		c.compatible(path, "range narrowed from "+b.Format+" to "+a.Format)
	default:
		c.breaking(path, "range widened from "+b.Format+" to "+a.Format)
	}
	c.text(path, "pattern", b.Pattern, a.Pattern)
	if b.ContentEncoding != a.ContentEncoding {
		c.breaking(path, "encoding changed from "+orNone(b.ContentEncoding)+" to "+orNone(a.ContentEncoding))
	}
	c.text(path, "constant", string(b.Const), string(a.Const))
	c.enums(b.Enum, a.Enum, path)
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// enums compares lists of values, of which null is compared elsewhere.
func (c *comparison) enums(before, after []json.RawMessage, path string) {
	switch {
	case len(before) == 0 && len(after) == 0:
		return
	case len(before) == 0:
		c.compatible(path, "limited to "+join(after))
		return
	case len(after) == 0:
		c.breaking(path, "no longer limited to "+join(before))
		return
	}
	if gone := without(before, after); len(gone) > 0 {
		c.breaking(path, "enum narrowed: "+join(gone)+" no longer comes")
	}
	if added := without(after, before); len(added) > 0 {
		c.breaking(path, "enum widened: "+join(added)+" comes too, which readers do not know")
	}
}

func without(these, those []json.RawMessage) (left []json.RawMessage) {
	for _, value := range these {
		same := func(other json.RawMessage) bool { return string(other) == string(value) }
		if string(value) != Null && !slices.ContainsFunc(those, same) {
			left = append(left, value)
		}
	}
	return left
}

func join(values []json.RawMessage) string {
	texts := make([]string, len(values))
	for i := range values {
		texts[i] = string(values[i])
	}
	return strings.Join(texts, ", ")
}

// span is what a number of a format can be.
type span struct{ least, most float64 }

var ranges = map[string]span{
	"int8": {math.MinInt8, math.MaxInt8}, "int16": {math.MinInt16, math.MaxInt16},
	"int32": {math.MinInt32, math.MaxInt32}, "int64": {math.MinInt64, math.MaxInt64},
	"uint8": {0, math.MaxUint8}, "uint16": {0, math.MaxUint16}, "uint32": {0, math.MaxUint32}, "uint64": {0, math.MaxUint64},
	"float": {-math.MaxFloat32, math.MaxFloat32}, "double": {-math.MaxFloat64, math.MaxFloat64},
}

// objects compares members.
func (c *comparison) objects(b, a *Schema, path string) {
	for name, before := range sorted(b.Properties) {
		after, still := a.Properties[name]
		if !still {
			c.breaking(path+"."+name, "removed")
			continue
		}
		c.schemas(before, after, path+"."+name)
		c.promise(path+"."+name, slices.Contains(b.Required, name), slices.Contains(a.Required, name),
			"may be absent now", "is always present now, though not in messages of before")
	}
	for name := range sorted(a.Properties) {
		if b.Properties[name] == nil {
			c.compatible(path+"."+name, "added")
		}
	}
	c.optional(b.PropertyNames, a.PropertyNames, path+".(names)", false)
	c.optional(b.AdditionalProperties, a.AdditionalProperties, path+".*", true)
}

// lists compares elements and their number.
func (c *comparison) lists(b, a *Schema, path string) {
	c.optional(b.Items, a.Items, path+"[]", false)
	bound := func(n *int) string {
		if n == nil {
			return ""
		}
		return strconv.Itoa(*n)
	}
	c.text(path, "least number of elements", bound(b.MinItems), bound(a.MinItems))
	c.text(path, "greatest number of elements", bound(b.MaxItems), bound(a.MaxItems))
}

// optional compares parts that one of the two may lack. closed says that one is another kind of
// object with it: a map is none with fields.
func (c *comparison) optional(before, after *Schema, path string, closed bool) {
	switch {
	case before == nil && after == nil:
	case before != nil && after != nil:
		c.schemas(before, after, path)
	case before == nil && !closed:
		c.compatible(path, "limited now")
	case before == nil:
		c.breaking(path, "fields became a map")
	case closed:
		c.breaking(path, "a map became fields")
	default:
		c.breaking(path, "no longer limited")
	}
}
