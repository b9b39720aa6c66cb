package schemacheck

import (
	"regexp"
	"slices"
	"strings"
)

// token matches what SQL texts are made of: comments, strings, quoted names, words, and any other character but a blank.
var token = regexp.MustCompile(`--[^\n]*|(?s:/\*.*?\*/)|[Nn]?'(?:[^']|'')*'|"(?:[^"]|"")*"|\[\w+\]|` + "`(?:[^`]|``)*`" + `|[\w.$@#]+|\S`)

// Fold brings SQL expressions that mean the same into the same form, as far as databases write down what they were told in
// words of their own: comments, blanks, the case of words, quotes around names and parentheses around everything or a single
// word make no difference. Strings are left as they are.
func Fold(text string) string {
	var tokens []string
	for _, t := range token.FindAllString(text, -1) {
		switch {
		case strings.HasPrefix(t, "--") || strings.HasPrefix(t, "/*"):
		case strings.HasSuffix(t, "'"):
			tokens = append(tokens, t[strings.IndexByte(t, '\''):]) // without the N of Unicode strings
		case len(t) > 2 && strings.ContainsAny(t[:1], "\"`["):
			tokens = append(tokens, strings.ToLower(t[1:len(t)-1]))
		default:
			tokens = append(tokens, strings.ToLower(t))
		}
	}
	return strings.Join(unwrap(tokens), " ")
}

// unwrap removes the parentheses around a single token, around what is in parentheses already, and around everything.
func unwrap(tokens []string) []string {
	for open := len(tokens) - 1; open >= 0; open-- { // inner ones first
		if tokens[open] != "(" {
			continue
		}
		end := closing(tokens, open)
		single := end == open+2
		doubled := end > open+2 && tokens[open+1] == "(" && closing(tokens, open+1) == end-1
		everything := open == 0 && end == len(tokens)-1
		if end > 0 && (single || doubled || everything) {
			tokens = slices.Delete(tokens, end, end+1)
			tokens = slices.Delete(tokens, open, open+1)
		}
	}
	return tokens
}

// closing is where the parenthesis at open ends; -1 where it does not.
func closing(tokens []string, open int) int {
	depth := 0
	for i, t := range tokens[open:] {
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
