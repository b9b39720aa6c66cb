package schemacheck

import (
	"regexp"
	"slices"
	"strings"
)

// A Token is a piece of an SQL text: a string, a quoted name, a word, or any other character but a
// blank.
type Token struct {
	// Text as it was written.
	Text string
	// Space is true when blanks or a comment stood before it.
	Space bool
}

var tokens = regexp.MustCompile(`--[^\n]*|(?s:/\*.*?\*/)|[Nn]?'(?:[^']|'')*'|"(?:[^"]|"")*"|\[\w+\]|` + "`(?:[^`]|``)*`" + `|[\w.$@#]+|\S`)

// Scan cuts an SQL text into tokens, without its comments.
func Scan(text string) []Token {
	var (
		found []Token
		end   int
		space bool
	)
	for _, at := range tokens.FindAllStringIndex(text, -1) {
		token := text[at[0]:at[1]]
		space = space || at[0] > end
		end = at[1]
		if strings.HasPrefix(token, "--") || strings.HasPrefix(token, "/*") {
			space = true
			continue
		}
		found = append(found, Token{token, space})
		space = false
	}
	return found
}

// Word is the token as it compares: words and names in lower case, names without quotes, strings
// without the N of Unicode.
func (t Token) Word() string {
	switch {
	case strings.HasSuffix(t.Text, "'"):
		return t.Text[strings.IndexByte(t.Text, '\''):]
	case len(t.Text) > 1 && strings.ContainsAny(t.Text[:1], "\"`["):
		return strings.ToLower(t.Text[1 : len(t.Text)-1])
	default:
		return strings.ToLower(t.Text)
	}
}

// Text joins tokens again, each comment and each run of blanks being one space.
func Text(tokens []Token) string {
	var b strings.Builder
	for i, token := range tokens {
		if i > 0 && token.Space {
			b.WriteByte(' ')
		}
		b.WriteString(token.Text)
	}
	return b.String()
}

// Group is the part of tokens that is in the parenthesis which the token at open begins, without
// it.
func Group(tokens []Token, open int) []Token {
	depth := 0
	for i := open; i < len(tokens); i++ {
		switch tokens[i].Text {
		case "(":
			depth++
		case ")":
			depth--
		}
		if depth == 0 {
			return tokens[open+1 : max(open+1, i)]
		}
	}
	return nil
}

// Index is where the first token of this word stands, or the number of tokens where none does.
func Index(tokens []Token, word string) int {
	at := slices.IndexFunc(tokens, func(t Token) bool { return t.Word() == word })
	if at < 0 {
		return len(tokens)
	}
	return at
}

// Split cuts at the separators that stand in no parenthesis, and leaves out what is empty.
func Split(tokens []Token, separator string) [][]Token {
	var (
		items        [][]Token
		start, depth int
	)
	for i, token := range append(slices.Clip(tokens), Token{Text: separator}) {
		switch token.Text {
		case "(":
			depth++
		case ")":
			depth--
		case separator:
			if depth == 0 {
				if i > start {
					items = append(items, tokens[start:i])
				}
				start = i + 1
			}
		}
	}
	return items
}
