package gormplugin

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gorm-fanout/fanout/outbox"
)

// lexer reads words from the front of an SQL text, as the database at hand would.
type lexer struct {
	dialect outbox.Dialect
	rest    string
	misread bool // it is not certain where a quote or a comment has ended
}

const asciiSpace = " \t\n\v\f\r"

// is compares a word with keywords.
func is(word string, keywords ...string) bool {
	for _, keyword := range keywords {
		if len(word) == len(keyword) && strings.EqualFold(word, keyword) {
			return true
		}
	}
	return false
}

// skip passes over space and comments.
func (l *lexer) skip() {
	for more := true; more; {
		more = l.space() || l.comment()
	}
}

func (l *lexer) space() bool {
	before := len(l.rest)
	l.rest = strings.TrimLeft(l.rest, asciiSpace)
	switch l.dialect {
	case outbox.SQLite:
		l.rest = strings.TrimPrefix(l.rest, "\ufeff")
	case outbox.SQLServer:
		l.rest = strings.TrimLeftFunc(l.rest, unicode.IsSpace)
	case outbox.Postgres, outbox.MySQL:
	}
	return len(l.rest) < before
}

// comment passes over one comment.
func (l *lexer) comment() bool {
	switch {
	case l.lineComment():
		ends := "\n"
		if l.dialect == outbox.Postgres {
			ends = "\r\n"
		}
		end := strings.IndexAny(l.rest, ends)
		if end < 0 {
			end = len(l.rest)
		}
		if l.dialect == outbox.SQLServer && strings.Contains(strings.TrimSuffix(l.rest[:end], "\r"), "\r") {
			l.misread = true // it may be that the line ends there
		}
		l.rest = l.rest[end:]
	case strings.HasPrefix(l.rest, "/*"):
		// MySQL executes what is in such a comment, from some version on.
		l.misread = l.misread || l.dialect == outbox.MySQL && (strings.HasPrefix(l.rest, "/*!") || strings.HasPrefix(l.rest, "/*M!"))
		l.block()
	default:
		return false
	}
	return true
}

// lineComment reports whether one begins here. On MySQL two minus signs are only one before a space.
func (l *lexer) lineComment() bool {
	if l.dialect == outbox.MySQL {
		return strings.HasPrefix(l.rest, "#") || strings.HasPrefix(l.rest, "--") && (len(l.rest) == 2 || l.rest[2] <= ' ')
	}
	return strings.HasPrefix(l.rest, "--")
}

// block passes over a block comment. They nest, but for SQLite's and MySQL's.
func (l *lexer) block() {
	depth, flat := 0, l.dialect == outbox.SQLite || l.dialect == outbox.MySQL
	for i := 0; i+1 < len(l.rest); i++ {
		switch l.rest[i : i+2] {
		case "/*":
			if depth == 0 || !flat {
				depth++
				i++
			}
		case "*/":
			depth--
			i++
			if depth == 0 {
				l.rest = l.rest[i+1:]
				return
			}
		}
	}
	l.rest = ""
	l.misread = l.misread || l.dialect != outbox.SQLite // where the end of the text is the end of the comment
}

// word takes the letters, digits and the like at the front.
func (l *lexer) word() string {
	end := 0
	for end < len(l.rest) {
		if inAllWords[l.rest[end]] {
			end++
			continue
		}
		size := l.inWord(end)
		if size == 0 {
			break
		}
		end += size
	}
	word := l.rest[:end]
	l.rest = l.rest[end:]
	if l.dialect == outbox.Postgres && is(word, "E") && strings.HasPrefix(l.rest, "'") {
		l.escaped()
	}
	return word
}

// Of which letters no database thinks otherwise, and what begins nothing. Texts may be long.
var inAllWords, isPunctuation = setOf("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"), setOf(" ,()=.?*+<>\n\t")

func setOf(chars string) (set [256]bool) {
	for _, c := range []byte(chars) {
		set[c] = true
	}
	return set
}

// inWord is the number of bytes of the letter at a place, or 0 where there is none.
func (l *lexer) inWord(at int) int {
	switch c := l.rest[at]; {
	case inAllWords[c]:
		return 1
	case c == '$': // in PostgreSQL it may begin a quote, which only the inside of a name cannot
		if l.dialect != outbox.Postgres || at > 0 && (l.rest[0] < '0' || l.rest[0] > '9') {
			return 1
		}
	case c == '@', c == '#':
		if l.dialect == outbox.SQLServer {
			return 1
		}
	case c >= utf8.RuneSelf:
		r, size := utf8.DecodeRuneInString(l.rest[at:])
		if l.dialect != outbox.SQLServer || !unicode.IsSpace(r) {
			return size
		}
	}
	return 0
}

// punctuation passes over what is neither a word nor the beginning of anything.
func (l *lexer) punctuation() {
	i := 0
	for i < len(l.rest) && isPunctuation[l.rest[i]] {
		i++
	}
	l.rest = l.rest[i:]
}

// accept takes the next word if it is one of the keywords.
func (l *lexer) accept(keywords ...string) bool {
	l.skip()
	before := *l
	if is(l.word(), keywords...) {
		return true
	}
	*l = before
	return false
}

// quoted passes over a string, a quoted name or a comment.
func (l *lexer) quoted() bool {
	switch l.rest[0] {
	case '\'', '"':
		if l.dialect == outbox.MySQL {
			l.escaped()
		} else {
			l.closing(l.rest[:1], true)
		}
	case '`':
		if l.dialect != outbox.SQLite && l.dialect != outbox.MySQL {
			return false
		}
		l.closing("`", true)
	case '[':
		if l.dialect == outbox.Postgres || l.dialect == outbox.MySQL { // an element of an array, or nothing
			return false
		}
		l.closing("]", l.dialect == outbox.SQLServer)
	case '$':
		return l.dialect == outbox.Postgres && l.dollars()
	default:
		return l.comment()
	}
	return true
}

// closing passes over what ends with a quote, which twice stands for one where it may be doubled,
// and returns what is in between.
func (l *lexer) closing(quote string, doubled bool) (inside string, ok bool) {
	for end := 1; ; end += 2 * len(quote) {
		n := strings.Index(l.rest[end:], quote)
		if n < 0 {
			l.rest, l.misread = "", true
			return "", false
		}
		end += n
		// In PostgreSQL without standard_conforming_strings the quote belongs to the string.
		l.misread = l.misread || l.dialect == outbox.Postgres && quote == "'" && l.rest[end-1] == '\\'
		if after := l.rest[end+1:]; !doubled || !strings.HasPrefix(after, quote) {
			inside, l.rest = l.rest[1:end], after
			return inside, true
		}
	}
}

// escaped passes over a string with backslashes: E'...' in PostgreSQL, and MySQL's. With
// NO_BACKSLASH_ESCAPES a quote behind a backslash ends the string there, which matters where another
// statement follows.
func (l *lexer) escaped() {
	quote := l.rest[0]
	for i := 1; i < len(l.rest); i++ {
		switch l.rest[i] {
		case '\\':
			i++
			l.misread = l.misread || l.dialect == outbox.MySQL && i < len(l.rest) && l.rest[i] == quote && strings.Contains(l.rest[i:], ";")
		case quote:
			l.rest = l.rest[i+1:] // of a doubled one, the second begins another string
			if l.rest != "" && l.rest[0] == quote {
				i = 0
				continue
			}
			return
		}
	}
	l.rest, l.misread = "", true
}

// dollars passes over a string of PostgreSQL's such as $$...$$ or $tag$...$tag$.
func (l *lexer) dollars() bool {
	end := 1
	for end < len(l.rest) && l.rest[end] != '$' && l.inWord(end) > 0 {
		end++
	}
	if end == len(l.rest) || l.rest[end] != '$' || '0' <= l.rest[1] && l.rest[1] <= '9' {
		return false
	}
	tag := l.rest[:end+1]
	_, after, found := strings.Cut(l.rest[len(tag):], tag)
	l.rest = after
	l.misread = l.misread || !found
	return true
}

// name reads an identifier. Names are folded as the database compares them: in SQLite and MySQL
// whatever their case, in PostgreSQL unless they are quoted, in SQL Server not at all. PostgreSQL cuts long
// ones off.
func (l *lexer) name() (name string, ok bool) {
	l.skip()
	if l.rest == "" {
		return "", false
	}
	fold := l.dialect == outbox.SQLite || l.dialect == outbox.MySQL
	switch c := l.rest[0]; {
	case l.quotesNames(c):
		quote := l.rest[:1]
		name, ok = l.closing(quote, true)
		name = strings.ReplaceAll(name, quote+quote, quote)
	case c == '[' && l.dialect == outbox.SQLite:
		name, ok = l.closing("]", false)
	case c == '[' && l.dialect == outbox.SQLServer:
		name, ok = l.closing("]", true)
		name = strings.ReplaceAll(name, "]]", "]")
	case c == '@', '0' <= c && c <= '9': // a variable, whose value is not known here, or no name
		return "", false
	default:
		name, ok = l.word(), true
		fold = l.dialect != outbox.SQLServer
	}
	if fold {
		name = foldASCII(name)
	}
	if l.dialect == outbox.Postgres {
		name = cutName(name)
	}
	return name, ok && name != ""
}

// quotesNames reports whether names can be in such quotes.
func (l *lexer) quotesNames(c byte) bool {
	return c == '"' || c == '`' && (l.dialect == outbox.SQLite || l.dialect == outbox.MySQL) || c == '\'' && l.dialect == outbox.SQLite
}

// foldASCII makes letters small as databases do: those beyond ASCII stay as they are.
func foldASCII(name string) string {
	folded := []byte(name)
	for i, c := range folded {
		if 'A' <= c && c <= 'Z' {
			folded[i] = c + 'a' - 'A'
		}
	}
	return string(folded)
}

// cutName cuts a name off as PostgreSQL does: after 63 bytes, but not within a letter.
func cutName(name string) string {
	const limit = 63
	if len(name) <= limit {
		return name
	}
	end := limit
	for end > 0 && !utf8.RuneStart(name[end]) {
		end--
	}
	return name[:end]
}
