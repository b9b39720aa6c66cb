package schemacheck

import (
	"slices"
	"strings"
)

// Fold brings SQL expressions that mean the same into the same form, as far as databases write down
// what they were told in words of their own: comments, blanks, the case of words, quotes around
// names and parentheses around everything or a single word make no difference. Strings are left as
// they are.
func Fold(text string) string {
	var words []string
	for _, token := range Scan(text) {
		words = append(words, token.Word())
	}
	return strings.Join(unwrap(words), " ")
}

// unwrap removes the parentheses around a single token, around what is in parentheses already, and
// around everything.
func unwrap(words []string) []string {
	for open := range slices.Backward(words) { // inner ones first
		if words[open] != "(" {
			continue
		}
		end := closing(words, open)
		single := end == open+2
		doubled := end > open+2 && words[open+1] == "(" && closing(words, open+1) == end-1
		everything := open == 0 && end == len(words)-1
		if end > 0 && (single || doubled || everything) {
			words = slices.Delete(words, end, end+1)
			words = slices.Delete(words, open, open+1)
		}
	}
	if len(words) > 0 && words[0] == "(" && closing(words, 0) == len(words)-1 { // there were two around everything
		return unwrap(words)
	}
	return words
}

// closing is where the parenthesis at open ends; -1 where it does not.
func closing(words []string, open int) int {
	depth := 0
	for i, t := range words[open:] {
		switch t {
		case "(":
			depth++
		case ")":
			depth--
		}
		if depth == 0 {
			return open + i
		}
	}
	return -1
}
