package config

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// scalar reads a single value and expands its variables. ok is false when a problem was reported.
func (r *reader) scalar(f *field) (ok bool) {
	switch n := f.value.(type) {
	case *ast.StringNode:
		f.source = n.Value
	case *ast.LiteralNode:
		f.source = n.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode, *ast.BoolNode:
		f.source = n.GetToken().Value
	case *ast.NullNode:
		r.rejectf(f, "has no value: give it one, or remove it")
		return false
	default:
		r.rejectf(f, "must be a single value, but is %s", kind(f.value))
		return false
	}
	var flaws []string
	f.text, f.variable, flaws = expand(f.source, r.lookup)
	if len(flaws) > 0 && r.onlyUnset(f) {
		f.bad = true // so that nothing is compared with it
		return false
	}
	for _, flaw := range flaws {
		r.rejectf(f, "%s%s", flaw, r.hint)
	}
	return len(flaws) == 0
}

// onlyUnset reports whether all that is wrong with a value are variables that are not set and need
// not be.
func (r *reader) onlyUnset(f *field) bool {
	section, _, _ := strings.Cut(f.path, ".")
	if !slices.Contains(r.unsetIn, section) {
		return false
	}
	_, _, others := expand(f.source, func(string) (string, bool) { return "", true })
	return len(others) == 0
}

// readText reads a text that is not empty and has no control characters.
func (r *reader) readText(f *field) (ok bool) { return r.readTextWithout(f, unicode.IsControl) }

// readTextWithout reads a text that is not empty and has none of some characters.
func (r *reader) readTextWithout(f *field, refused func(rune) bool) (ok bool) {
	if !r.scalar(f) {
		return false
	}
	switch kind := kind(f.value); {
	case kind == "a number":
		r.rejectf(f, "is a number: put it in quotes to use it as text")
	case kind != "a text":
		r.rejectf(f, "is %s: put it in quotes to use it as text", kind)
	case f.text == "" && f.variable:
		r.rejectf(f, "is empty once its variables are expanded: set them, or remove it")
	case f.text == "":
		r.rejectf(f, "is empty: give it a value, or remove it")
	case strings.ContainsFunc(f.text, refused):
		r.rejectf(f, "contains a line break or another control character")
	}
	return !f.bad
}

// text reads a text into dst. It returns nil when there is none, or a problem was reported.
func (o *object) text(name string, dst *string) *field {
	o.takes(name, textShape)
	f := o.get(name)
	if f == nil || !o.readText(f) {
		return nil
	}
	*dst = f.text
	return f
}

// secret reads a text that no message may show.
func (o *object) secret(name string, dst *Secret) {
	o.text(name, (*string)(dst))
}

// choice reads one of a few words. It returns "" when there is none, or a problem was reported.
func (o *object) choice(name string, words ...string) string {
	var word string
	f := o.text(name, &word)
	o.takes(name, func() map[string]any { return choiceShape(words) })
	if f == nil {
		return ""
	}
	if !slices.Contains(words, word) {
		o.rejectf(f, "%s is not known%s", shown(f.source), suggest(f.source, words))
		return ""
	}
	return word
}

// list reads a list of texts and returns those that are in order.
func (o *object) list(name string) []*field {
	o.takes(name, func() map[string]any { return listShape(textShape()) })
	f := o.get(name)
	if f == nil || f.value.Type() == ast.NullType {
		return nil
	}
	sequence, ok := f.value.(*ast.SequenceNode)
	if !ok {
		o.rejectf(f, "must be a list, as in [a, b], but is %s", kind(f.value))
		return nil
	}
	items := make([]*field, 0, len(sequence.Values))
	for i, node := range sequence.Values {
		item := &field{path: fmt.Sprintf("%s[%d]", f.path, i), at: positionOf(node)}
		if item.value = o.plain(node, item.path); item.value != nil && o.readText(item) {
			items = append(items, item)
		} else {
			f.bad = true
		}
	}
	return items
}

// boolean reads true or false into dst.
func (o *object) boolean(name string, dst *bool) *field {
	o.takes(name, booleanShape)
	f := o.get(name)
	if f == nil || !o.scalar(f) {
		return nil
	}
	if !o.looksLike(f, ast.BoolType) || f.text != "true" && f.text != "false" {
		if _, err := ParseDuration(f.text); name == "keep" && err == nil {
			o.rejectf(f, "must be true or false: how long published rows are kept is cleanup.published_retention, or retention.published of a broker")
			return nil
		}
		o.rejectf(f, "must be true or false")
		return nil
	}
	*dst = f.text == "true"
	return f
}

var integerTypes = []ast.NodeType{ast.IntegerType, ast.FloatType}

var wholeNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// integer reads a whole number from 1 to most; math.MaxInt32 where there is no upper end.
func (o *object) integer(name string, dst *int, most int) {
	o.takes(name, func() map[string]any { return integerShape(1, most) })
	f := o.get(name)
	if f == nil || !o.scalar(f) {
		return
	}
	if !o.looksLike(f, integerTypes...) && !o.outsized(f) || !wholeNumber.MatchString(f.text) {
		o.rejectf(f, "must be a whole number in plain digits, without quotes")
		return
	}
	n, err := strconv.ParseInt(f.text, 10, 64)
	switch tooLarge := err != nil || n > int64(most); {
	case most < math.MaxInt32 && (tooLarge || n < 1):
		o.rejectf(f, "is %s: use 1 to %d", shown(f.source), most)
	case tooLarge:
		o.rejectf(f, "is %s: use at most %d", shown(f.source), most)
	case n < 1:
		o.rejectf(f, "is %s: use at least 1", shown(f.source))
	default:
		*dst = int(n)
	}
}

// limit reads a whole number that may be negative, and reports whether there was one.
func (o *object) limit(name string, dst *int, least, most int) bool {
	o.takes(name, func() map[string]any { return integerShape(least, most) })
	f := o.get(name)
	if f == nil || !o.scalar(f) {
		return false
	}
	n, err := strconv.Atoi(f.text)
	if err != nil || !wholeNumber.MatchString(f.text) || !o.looksLike(f, integerTypes...) {
		o.rejectf(f, "must be a whole number in plain digits, without quotes")
		return false
	}
	if n < least || n > most {
		o.rejectf(f, "is %s: use %d to %d", shown(f.source), least, most)
		return false
	}
	*dst = n
	return true
}

// number reads a finite number; most is math.MaxFloat64 where there is no upper end.
func (o *object) number(name string, dst *float64, least, most float64) *field {
	o.takes(name, func() map[string]any { return numberShape(least, most) })
	f := o.get(name)
	if f == nil || !o.scalar(f) {
		return nil
	}
	n, err := strconv.ParseFloat(f.text, 64)
	if err != nil || !o.looksLike(f, integerTypes...) || strings.ContainsAny(f.text, "xXnN_") {
		o.rejectf(f, "must be a number, without quotes")
		return nil
	}
	if n < least || n > most {
		if most == math.MaxFloat64 {
			o.rejectf(f, "is %s: use at least %g", shown(f.source), least)
		} else {
			o.rejectf(f, "is %s: use a fraction from %g to %g", shown(f.source), least, most)
		}
		return nil
	}
	*dst = n
	return f
}

// duration reads a duration of at least the given length; at least 0 means a positive one.
func (o *object) duration(name string, dst *time.Duration, least time.Duration) {
	o.takes(name, durationShape)
	f := o.get(name)
	if f == nil || !o.scalar(f) {
		return
	}
	d, err := ParseDuration(f.text)
	switch {
	case err != nil:
		o.rejectf(f, "%s %s", shown(f.source), err)
	case d <= 0:
		o.rejectf(f, "is %s: use a positive duration", shown(f.source))
	case d < least:
		o.rejectf(f, "is %s: use at least %s", shown(f.source), short(least))
	default:
		*dst = d
	}
}

// outsized reports whether an unquoted value is a number too large for the YAML library, which
// takes it for a text.
func (o *object) outsized(f *field) bool {
	return f.value.GetToken().Type == token.StringType && len(f.source) > 18
}

// looksLike reports whether a scalar is of one of these types. A value with a variable in it has
// the type that its text has.
func (o *object) looksLike(f *field, types ...ast.NodeType) bool {
	return f.variable || slices.Contains(types, f.value.Type())
}
