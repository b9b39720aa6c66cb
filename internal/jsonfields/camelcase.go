package jsonfields

import (
	"strings"
	"unicode"
)

// CamelCase is the member's name where those without one in their tag get one in camelCase.
func (f *Field) CamelCase() string {
	if f.Named {
		return f.Name
	}
	return camelCase(f.Name)
}

// camelCase turns the name of a Go field into lowerCamelCase, by the rule that an acronym is a word as any other (Google
// Java Style Guide, section 5.3): OrderID is orderId, HTTPServer httpServer, ID id, and IDs, by Go's way to write
// plurals, ids. Digits belong to the word before them. Nothing but the case of letters changes, so encoding/json, which
// matches names in any case, still decodes the field; a name in which a letter has no such other case stays.
func camelCase(name string) string {
	letters := []rune(name)
	isUpper := func(i int) bool { return i < len(letters) && unicode.IsUpper(letters[i]) }
	isLower := func(i int) bool { return i < len(letters) && unicode.IsLower(letters[i]) }
	isPlural := func(i int) bool { return i < len(letters) && letters[i] == 's' && !isLower(i+1) }
	var out strings.Builder
	for i := 0; i < len(letters); {
		if !isUpper(i) {
			out.WriteRune(letters[i])
			i++
			continue
		}
		end := i + 1 // of the capitals that are one word
		for isUpper(end) {
			end++
		}
		if end > i+1 && isLower(end) && !isPlural(end) {
			end-- // the last one begins the next word
		}
		first := letters[i]
		if i == 0 {
			first = unicode.ToLower(first)
		}
		out.WriteRune(first)
		for _, letter := range letters[i+1 : end] {
			out.WriteRune(unicode.ToLower(letter))
		}
		i = end
	}
	if camel := out.String(); strings.EqualFold(camel, name) {
		return camel
	}
	return name
}
