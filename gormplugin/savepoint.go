package gormplugin

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gorm-fanout/fanout/outbox"
)

type savepointKind int

const (
	savepointNone savepointKind = iota
	savepointSet
	savepointRollback
	savepointRelease
	transactionEnd
)

type savepointChange struct {
	kind savepointKind
	name string
}

// parseSavepoint reads a statement that sets, rolls back to, or releases a savepoint:
//
//	SAVEPOINT x · ROLLBACK [WORK | TRANSACTION] TO [SAVEPOINT] x · RELEASE [SAVEPOINT] x      PostgreSQL, SQLite
//	SAVE {TRAN | TRANSACTION} x · ROLLBACK {TRAN | TRANSACTION} x                            SQL Server
//
// or one that ends the transaction:
//
//	{ROLLBACK | ABORT | COMMIT | END} [WORK | TRANSACTION] [AND [NO] CHAIN]                  PostgreSQL, SQLite
//	ROLLBACK [WORK | TRAN | TRANSACTION]            SQL Server, where a COMMIT may close an inner BEGIN TRANSACTION
//
// Keywords in any case, comments and a final semicolon allowed. Names are folded as the database compares them: SQLite
// whatever their case, PostgreSQL unless they are quoted, SQL Server not at all. Everything else is neither.
func parseSavepoint(dialect outbox.Dialect, query string) savepointChange {
	if query != "" && strings.IndexByte("IUDWiudw", query[0]) >= 0 {
		return savepointChange{} // INSERT, UPDATE, DELETE, WITH: nearly all there is
	}
	s := scanner{rest: query, dialect: dialect}
	switch s.keyword() {
	case "SAVEPOINT":
		return s.change(savepointSet)
	case "RELEASE":
		s.accept("SAVEPOINT")
		return s.change(savepointRelease)
	case "SAVE":
		if s.accept("TRANSACTION") || s.accept("TRAN") {
			return s.change(savepointSet)
		}
	case "ROLLBACK":
		return s.rollback()
	case "ABORT", "COMMIT", "END":
		if !s.accept("WORK") {
			s.accept("TRANSACTION")
		}
		if dialect != outbox.SQLServer && s.over() {
			return savepointChange{kind: transactionEnd}
		}
	}
	return savepointChange{}
}

// scanner reads words from the front of a statement.
type scanner struct {
	rest    string
	dialect outbox.Dialect
}

// rollback reads what follows ROLLBACK.
func (s *scanner) rollback() savepointChange {
	transaction := s.accept("TRANSACTION") || s.accept("TRAN")
	if !transaction {
		s.accept("WORK")
	}
	if s.accept("TO") {
		s.accept("SAVEPOINT")
		return s.change(savepointRollback)
	}
	if s.over() {
		return savepointChange{kind: transactionEnd}
	}
	if transaction {
		return s.change(savepointRollback)
	}
	return savepointChange{}
}

// change ends a statement: the name, and nothing after it.
func (s *scanner) change(kind savepointKind) savepointChange {
	name, ok := s.name()
	if !ok || !s.over() {
		return savepointChange{}
	}
	return savepointChange{kind: kind, name: name}
}

// over reports whether nothing more follows that matters.
func (s *scanner) over() bool {
	if s.accept("AND") {
		s.accept("NO")
		s.accept("CHAIN")
	}
	s.skip()
	s.rest = strings.TrimPrefix(s.rest, ";")
	s.skip()
	return s.rest == ""
}

// skip passes over space and comments.
func (s *scanner) skip() {
	for {
		s.rest = strings.TrimLeftFunc(s.rest, unicode.IsSpace)
		switch {
		case strings.HasPrefix(s.rest, "--"):
			_, s.rest, _ = strings.Cut(s.rest, "\n")
		case strings.HasPrefix(s.rest, "/*"):
			s.skipComment()
		default:
			return
		}
	}
}

// skipComment passes over a block comment. They nest, but for SQLite's.
func (s *scanner) skipComment() {
	depth := 0
	for s.rest != "" {
		switch {
		case strings.HasPrefix(s.rest, "/*") && (depth == 0 || s.dialect != outbox.SQLite):
			depth++
			s.rest = s.rest[2:]
		case strings.HasPrefix(s.rest, "*/"):
			depth--
			s.rest = s.rest[2:]
			if depth == 0 {
				return
			}
		default:
			s.rest = s.rest[1:]
		}
	}
}

// word returns the letters, digits and underscores at the front.
func (s *scanner) word() string {
	end := strings.IndexFunc(s.rest, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_$#@", r)
	})
	if end < 0 {
		end = len(s.rest)
	}
	return s.rest[:end]
}

func (s *scanner) keyword() string {
	s.skip()
	word := s.word()
	s.rest = s.rest[len(word):]
	return strings.ToUpper(word)
}

func (s *scanner) accept(keyword string) bool {
	s.skip()
	word := s.word()
	if !strings.EqualFold(word, keyword) {
		return false
	}
	s.rest = s.rest[len(word):]
	return true
}

// name reads an identifier, quoted in any of the databases' ways. Within quotes a doubled closing quote stands for one.
func (s *scanner) name() (string, bool) {
	s.skip()
	first, _ := utf8.DecodeRuneInString(s.rest)
	closing, quoted := map[rune]string{'"': `"`, '`': "`", '[': "]", '\'': "'"}[first]
	if !quoted {
		word := s.word()
		s.rest = s.rest[len(word):]
		if s.dialect != outbox.SQLServer {
			word = strings.ToLower(word)
		}
		return word, word != ""
	}
	s.rest = s.rest[1:]
	var name strings.Builder
	for {
		part, rest, ok := strings.Cut(s.rest, closing)
		name.WriteString(part)
		s.rest = rest
		if !ok {
			return "", false
		}
		if !strings.HasPrefix(rest, closing) {
			break
		}
		name.WriteString(closing)
		s.rest = rest[len(closing):]
	}
	if s.dialect == outbox.SQLite {
		return strings.ToLower(name.String()), name.Len() > 0
	}
	return name.String(), name.Len() > 0
}
