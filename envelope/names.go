package envelope

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"
)

// goName is how application code writes the type: shop.Changed[shop.Order].
// reflect prints type arguments with their whole import path.
func goName(t reflect.Type) string {
	if t == nil {
		return "nil"
	}
	return shortenPaths(cleanReflectName(t.String()))
}

// fqn is the value of domain.fqn: import path and type. Type arguments keep
// their import paths, since two packages may hold types of one name.
func fqn(t reflect.Type) string {
	if t.Kind() == reflect.Pointer { // of an event with an encoding
		t = t.Elem()
	}
	name := cleanReflectName(t.Name())
	switch {
	case name == "": // struct{...}, map[string]any
		return cleanReflectName(t.String())
	case t.PkgPath() == "": // string
		return name
	default:
		return t.PkgPath() + "." + name
	}
}

// eventName is the event's name on the wire unless Name says otherwise: the type
// name, with the names of type arguments appended (Changed[shop.Order] is
// ChangedOrder). It is empty for an unnamed type.
func eventName(t reflect.Type) string {
	if t.Kind() == reflect.Pointer { // of an event with an encoding
		t = t.Elem()
	}
	return flattenTypeArgs(cleanReflectName(t.Name()), "")
}

// cleanReflectName removes what the compiler adds to names: "·1" behind types
// declared in a function, "%2e" for a dot in the last element of an import path.
func cleanReflectName(s string) string {
	s = strings.ReplaceAll(s, "%2e", ".")
	for {
		at := strings.Index(s, "·")
		if at < 0 {
			return s
		}
		end := at + len("·")
		for end < len(s) && s[end] >= '0' && s[end] <= '9' {
			end++
		}
		s = s[:at] + s[end:]
	}
}

// shortenPaths cuts every import path in a type expression to its last element.
func shortenPaths(s string) string {
	var out strings.Builder
	start := 0 // of what is not yet written
	for i := range len(s) {
		switch c := s[i]; {
		case c == '/':
			start = i + 1
		case strings.IndexByte("[]{}()*, ;\"", c) >= 0:
			out.WriteString(s[start : i+1])
			start = i + 1
		}
	}
	out.WriteString(s[start:])
	return out.String()
}

// flattenTypeArgs turns Pair[example.com/shop.Order,int] into PairOrderInt, with
// separator between the names.
func flattenTypeArgs(s, separator string) string {
	base, args, generic := strings.Cut(s, "[")
	if !generic {
		return s
	}
	var out strings.Builder
	out.WriteString(base)
	for _, word := range strings.FieldsFunc(args, func(r rune) bool {
		return strings.ContainsRune("[]{}()*, ;\"", r)
	}) {
		if dot := strings.LastIndexAny(word, "./"); dot >= 0 {
			word = word[dot+1:]
		}
		out.WriteString(separator)
		out.WriteString(upperFirst(word))
	}
	return out.String()
}

func upperFirst(s string) string {
	r, size := utf8.DecodeRuneInString(s)
	if size == 0 {
		return ""
	}
	return string(unicode.ToUpper(r)) + s[size:]
}

// pascalCase turns the snake_case name of a context into the first part of wire
// types: order_handling is OrderHandling.
func pascalCase(s string) string {
	var out strings.Builder
	for word := range strings.SplitSeq(s, "_") {
		out.WriteString(upperFirst(word))
	}
	return out.String()
}

// isContextName: lower snake_case. No "-" and no ":", which separate the parts of
// a stream, no capitals, because some brokers and collations ignore case.
func isContextName(s string) bool {
	for word := range strings.SplitSeq(s, "_") {
		if word == "" || !containsOnly(word, isLowerASCII, isDigit) {
			return false
		}
	}
	return isLowerASCII(s[0])
}

// isEventName: what may stand between the dots of a wire type.
func isEventName(s string) bool {
	return s != "" && !isDigit(s[0]) && s[0] != '_' &&
		containsOnly(s, isLowerASCII, isUpperASCII, isDigit, func(c byte) bool { return c == '_' })
}

func containsOnly(s string, classes ...func(byte) bool) bool {
next:
	for i := range len(s) {
		for _, is := range classes {
			if is(s[i]) {
				continue next
			}
		}
		return false
	}
	return true
}

func isLowerASCII(c byte) bool { return c >= 'a' && c <= 'z' }
func isUpperASCII(c byte) bool { return c >= 'A' && c <= 'Z' }
func isDigit(c byte) bool      { return c >= '0' && c <= '9' }

// textFlaw says what is wrong with a string that ends up in a column, a broker
// attribute or a header; nil if nothing is. Databases refuse NUL and broken
// UTF-8, and a line break in a header is an injection.
func textFlaw(s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("%q is not valid UTF-8", s)
	}
	for i := range len(s) {
		if s[i] < 0x20 || s[i] == 0x7f {
			return fmt.Errorf("%q contains a control character", s)
		}
	}
	return nil
}
