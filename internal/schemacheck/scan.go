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

const (
	commentPattern = `--[^\n]*|(?s:/\*.*?\*/)|`
	namePattern    = `"(?:[^"]|"")*"|\[\w+\]|` + "`(?:[^`]|``)*`" + `|[\w.$@#]+|\S`
)

var (
	tokens = regexp.MustCompile(commentPattern + `[Nn]?'(?:[^']|'')*'|` + namePattern)
	// MySQL escapes characters in strings, and writes what older servers shall pass over in comments
	// that it reads itself.
	mysqlTokens  = regexp.MustCompile(commentPattern + `'(?:[^'\\]|\\.|'')*'|` + namePattern)
	mysqlComment = regexp.MustCompile(`(?s)/\*!\d*(.*?)\*/`)
)

// Scan cuts an SQL text into tokens, without its comments, and without the character sets that MySQL
// writes in front of strings (_utf8mb4'pending'): they are those of the session that made the table.
func Scan(dialect Dialect, text string) []Token {
	pattern := tokens
	if dialect == MySQL {
		pattern, text = mysqlTokens, mysqlComment.ReplaceAllString(text, "$1")
	}
	var (
		found []Token
		end   int
		space bool
	)
	for _, at := range pattern.FindAllStringIndex(text, -1) {
		token := text[at[0]:at[1]]
		space = space || at[0] > end
		end = at[1]
		if strings.HasPrefix(token, "--") || strings.HasPrefix(token, "/*") {
			space = true
			continue
		}
		if last := len(found) - 1; dialect == MySQL && last >= 0 && !space && strings.HasSuffix(token, "'") && strings.HasPrefix(found[last].Text, "_") {
			space, found = found[last].Space, found[:last]
		}
		found = append(found, Token{token, space})
		space = false
	}
	return found
}

// Word is the token as it compares: words and names in lower case, names without quotes, strings
// without the N of Unicode.
func (t Token) Word() string {
	if strings.HasSuffix(t.Text, "'") {
		return t.Text[strings.IndexByte(t.Text, '\''):]
	}
	return strings.ToLower(unquoted(t))
}

// unquoted is a name as the catalog has it.
func unquoted(name Token) string {
	if len(name.Text) > 1 && strings.ContainsAny(name.Text[:1], "\"`[") {
		return name.Text[1 : len(name.Text)-1]
	}
	return name.Text
}

// is reports whether the tokens begin with these words.
func is(tokens []Token, words ...string) bool {
	for i, word := range words {
		if i >= len(tokens) || tokens[i].Word() != word {
			return false
		}
	}
	return true
}

// at is a token, or none behind the last one.
func at(tokens []Token, n int) Token {
	if n < 0 || n >= len(tokens) {
		return Token{}
	}
	return tokens[n]
}

// from are the tokens from one on.
func from(tokens []Token, n int) []Token { return tokens[min(n, len(tokens)):] }

// Text joins tokens again, each comment and each run of blanks being one space. It drops the backticks of
// MySQL, which a session can have left out when it made the table (sql_quote_show_create).
func Text(tokens []Token) string {
	var b strings.Builder
	for i, token := range tokens {
		if i > 0 && token.Space {
			b.WriteByte(' ')
		}
		b.WriteString(strings.Trim(token.Text, "`"))
	}
	return b.String()
}

// group is the part of tokens that is in the parenthesis which the token at open begins, without
// it.
func group(tokens []Token, open int) []Token {
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

// unwrap is an expression without the parentheses around all of it.
func unwrap(tokens []Token) []Token {
	for len(tokens) > 2 && tokens[0].Text == "(" && len(group(tokens, 0)) == len(tokens)-2 {
		tokens = tokens[1 : len(tokens)-1]
	}
	return tokens
}

// find is where the first token of this word stands, or the number of tokens where none does.
func find(tokens []Token, word string) int {
	at := slices.IndexFunc(tokens, func(t Token) bool { return t.Word() == word })
	if at < 0 {
		return len(tokens)
	}
	return at
}

// split cuts at the separators that stand in no parenthesis, and leaves out what is empty.
func split(tokens []Token, separator string) [][]Token {
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
