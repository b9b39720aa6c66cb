package gormplugin

import (
	"strings"

	"github.com/gorm-fanout/fanout/outbox"
)

// control is what one statement of an SQL text does to the transaction that it runs in.
type control struct {
	kind controlKind
	name string // of a savepoint, as the database compares names
}

type controlKind int

const (
	controlNone controlKind = iota
	savepointSet
	savepointRollback
	savepointRelease
	nestedBegin       // SQL Server: a transaction within the transaction
	nestedCommit      // SQL Server: the end of one, or else of the transaction
	transactionEnd    // committed, rolled back, or prepared for a commit in two phases
	transactionMayEnd // MySQL: it may commit by what is not in the text, such as a routine
	controlUnknown    // there is transaction control, and what it does cannot be told
)

// readControl reads what the statements of an SQL text do to the transaction, in turn, and how many
// statements there are. Most texts do nothing to it, which their first byte tells.
//
// It knows the statements that set, roll back to, or release a savepoint:
//
//	SAVEPOINT x · ROLLBACK [WORK | TRANSACTION] TO [SAVEPOINT] x · RELEASE [SAVEPOINT] x    PostgreSQL, SQLite, MySQL
//	SAVE {TRAN | TRANSACTION} x · ROLLBACK {TRAN | TRANSACTION} x                           SQL Server
//
// those that end the transaction:
//
//	{ROLLBACK | ABORT | COMMIT | END} [WORK | TRANSACTION] [AND [NO] CHAIN]                 PostgreSQL
//	PREPARE TRANSACTION 'x'                                                                 PostgreSQL
//	{ROLLBACK | COMMIT | END} [TRANSACTION [x]]                                             SQLite
//	ROLLBACK [WORK | TRAN | TRANSACTION]                                                    SQL Server
//	{ROLLBACK | COMMIT} [WORK] [AND [NO] CHAIN] [[NO] RELEASE]                              MySQL
//
// on MySQL also those that commit by themselves, such as CREATE TABLE and LOCK TABLES
// (https://dev.mysql.com/doc/refman/8.4/en/implicit-commit.html), and those that may do so, such as
// CALL and EXECUTE,
//
// and SQL Server's transactions within transactions:
//
//	BEGIN [DISTRIBUTED] {TRAN | TRANSACTION} [x] · COMMIT [WORK | {TRAN | TRANSACTION} [x]]
//
// with keywords in any case, and with comments. A statement that begins as one of them and goes on
// in another way is controlUnknown. On SQL Server, so is transaction control that is no statement
// of its own between semicolons, or that shares a text with IF, WHILE, BEGIN ... END and the like.
// The time that reading takes is in proportion to the length of the text.
func readControl(dialect outbox.Dialect, text string) (controls []control, statements int) {
	if isOrdinary(dialect, text) {
		return nil, 1
	}
	s := script{lexer: lexer{dialect: dialect, rest: text}}
	for s.next() {
		statements++
		if found := s.statement(); found.kind != controlNone {
			controls = append(controls, found)
		}
	}
	if s.misread && mentionsControl(dialect, text) || s.branches && len(controls) > 0 {
		controls = []control{{kind: controlUnknown}}
	}
	return controls, statements
}

// isOrdinary recognises nearly all there is: one statement whose first letters are those of an
// INSERT, SELECT, UPDATE and so on. On SQL Server, where statements need no semicolons between
// them, all of the text must be read.
func isOrdinary(dialect outbox.Dialect, text string) bool {
	if text == "" || dialect == outbox.SQLServer {
		return text == ""
	}
	switch first := text[0] | 0x20; {
	case dialect == outbox.MySQL:
		if !is(text[:min(6, len(text))], "INSERT", "UPDATE", "DELETE", "SELECT") {
			return false
		}
	case strings.IndexByte("abcepr", first) >= 0:
		return false
	case first == 's':
		if len(text) == 1 || text[1]|0x20 != 'e' { // SELECT and SET, but not SAVEPOINT
			return false
		}
	default:
		if first < 'a' || first > 'z' {
			return false
		}
	}
	semicolon := strings.IndexByte(text, ';')
	return semicolon < 0 || strings.Trim(text[semicolon+1:], asciiSpace) == ""
}

// mentionsControl looks for the words of transaction control anywhere, in quotes and comments too.
// It is for texts of which it is not certain where a quote ends.
func mentionsControl(dialect outbox.Dialect, text string) bool {
	l := lexer{dialect: dialect, rest: text}
	for l.rest != "" {
		switch word := l.word(); {
		case word == "":
			l.rest = l.rest[1:]
		case is(word, "SAVEPOINT", "RELEASE", "SAVE", "ROLLBACK", "COMMIT", "END", "ABORT", "PREPARE"), dialect == outbox.MySQL && is(word, commitsOnMySQL...):
			return true
		}
	}
	return false
}

// script reads the statements of a text.
type script struct {
	lexer

	branches bool // SQL Server: not all statements need have run
}

// next moves on to the next statement.
func (s *script) next() bool {
	for {
		s.skip()
		if !strings.HasPrefix(s.rest, ";") {
			return s.rest != ""
		}
		s.rest = s.rest[1:]
	}
}

// atEnd reports whether the statement ends here.
func (s *script) atEnd() bool {
	s.skip()
	return s.rest == "" || s.rest[0] == ';'
}

// statement reads one statement, up to its semicolon.
func (s *script) statement() control {
	first := s.word()
	var found control
	switch s.dialect {
	case outbox.SQLServer:
		found = s.onSQLServer(first)
	case outbox.MySQL:
		found = s.onMySQL(first)
	case outbox.Postgres, outbox.SQLite:
		found = s.control(first)
	}
	if found.kind != controlNone && s.atEnd() {
		return found
	}
	hidden := s.pass(first)
	if hidden || found.kind != controlNone {
		return control{kind: controlUnknown}
	}
	return control{}
}

// control reads what follows the first word of a statement of PostgreSQL or SQLite.
func (s *script) control(first string) control {
	switch {
	case is(first, "SAVEPOINT"):
		return s.named(savepointSet)
	case is(first, "RELEASE"):
		s.accept("SAVEPOINT")
		return s.named(savepointRelease)
	case is(first, "ROLLBACK"):
		transaction := s.accept("TRANSACTION", "WORK")
		if s.accept("TO") {
			s.accept("SAVEPOINT")
			return s.named(savepointRollback)
		}
		return s.end(transaction)
	case is(first, "COMMIT", "END", "ABORT"):
		return s.end(s.accept("TRANSACTION", "WORK"))
	case is(first, "PREPARE") && s.accept("TRANSACTION"):
		s.pass("")
		return control{kind: transactionEnd}
	default:
		return control{}
	}
}

// end reads the end of a statement that ends the transaction.
func (s *script) end(transaction bool) control {
	switch {
	case s.dialect == outbox.SQLite:
		if transaction && !s.atEnd() {
			s.name() // of the transaction; SQLite does not look at it
		}
	case s.accept("AND"):
		if s.accept("NO"); !s.accept("CHAIN") {
			return control{kind: controlUnknown}
		}
	case !transaction && s.accept("PREPARED"): // another transaction, which has left its session
		s.pass("")
		return control{}
	}
	return control{kind: transactionEnd}
}

// named reads the name that ends a statement.
func (s *script) named(kind controlKind) control {
	name, ok := s.name()
	if !ok {
		kind = controlUnknown
	}
	return control{kind: kind, name: name}
}

// commitsOnMySQL are the first words of statements that commit whatever is in progress.
var commitsOnMySQL = []string{
	"ALTER", "ANALYZE", "BEGIN", "CACHE", "CHECK", "CLONE", "CREATE", "DROP", "FLUSH", "GRANT", "INSTALL", "LOCK", "OPTIMIZE", "RENAME", "REPAIR", "RESET", "REVOKE",
	"START", "TRUNCATE", "UNINSTALL",
}

// onMySQL reads what follows the first word of a statement of MySQL.
func (s *script) onMySQL(first string) control {
	switch {
	case is(first, "SAVEPOINT", "RELEASE"):
		return s.control(first)
	case is(first, "ROLLBACK", "COMMIT"):
		s.accept("WORK", "TRANSACTION")
		if is(first, "ROLLBACK") && s.accept("TO") {
			s.accept("SAVEPOINT")
			return s.named(savepointRollback)
		}
		return s.endOnMySQL()
	case is(first, "CREATE", "DROP") && s.isTemporary(), is(first, "ANALYZE") && !s.accept("TABLE", "LOCAL", "NO_WRITE_TO_BINLOG"):
		return control{}
	case is(first, commitsOnMySQL...), is(first, "SET") && s.accept("PASSWORD", "DEFAULT"):
		s.pass("")
		return control{kind: transactionEnd}
	case s.mayCommit(first):
		s.pass("")
		return control{kind: transactionMayEnd}
	case is(first, "SET") && s.setsAutocommit():
		return control{kind: transactionEnd}
	case is(first, "XA", "CASE", "FOR", "IF", "LOOP", "REPEAT", "WHILE"): // on MariaDB, not only in routines
		return control{kind: controlUnknown}
	default:
		return control{}
	}
}

// mayCommit recognises what commits by what is not in the text, or on MySQL and not on MariaDB.
func (s *script) mayCommit(first string) bool {
	return is(first, "CALL", "EXECUTE", "BACKUP", "CHANGE", "IMPORT", "STOP") || is(first, "LOAD") && s.accept("INDEX") || is(first, "SET") && s.accept("STATEMENT")
}

// isTemporary recognises what makes or drops a temporary table, which leaves the transaction as it is.
func (s *script) isTemporary() bool {
	if s.accept("OR") {
		s.accept("REPLACE")
	}
	return s.accept("TEMPORARY") && s.accept("TABLE", "TABLES")
}

// endOnMySQL reads the end of a statement that ends the transaction.
func (s *script) endOnMySQL() control {
	if s.accept("AND") {
		if s.accept("NO"); !s.accept("CHAIN") {
			return control{kind: controlUnknown}
		}
	}
	if no := s.accept("NO"); !s.accept("RELEASE") && no {
		return control{kind: controlUnknown}
	}
	return control{kind: transactionEnd}
}

// setsAutocommit looks for the word in the rest of a statement.
func (s *script) setsAutocommit() (found bool) {
	for s.skip(); s.rest != "" && s.rest[0] != ';'; s.skip() {
		if word := s.word(); word != "" {
			found = found || is(word, "autocommit")
		} else if !s.quoted() {
			s.rest = s.rest[1:]
		}
	}
	return found
}

// onSQLServer reads what follows the first word of a statement of SQL Server.
func (s *script) onSQLServer(first string) control {
	switch {
	case is(first, "CREATE", "ALTER") && s.definesCode():
		s.rest = ""
		return control{}
	case is(first, "SAVE") && s.accept("TRANSACTION", "TRAN"):
		return s.named(savepointSet)
	case is(first, "ROLLBACK"):
		if s.accept("TRANSACTION", "TRAN") && !s.atEnd() {
			return s.named(savepointRollback)
		}
		s.accept("WORK")
		return control{kind: transactionEnd}
	case is(first, "COMMIT"):
		if !s.accept("WORK") && s.accept("TRANSACTION", "TRAN") {
			s.name() // of the inner transaction; SQL Server does not look at it
		}
		return control{kind: nestedCommit}
	case is(first, "BEGIN") && s.beginsTransaction():
		s.name()
		return control{kind: nestedBegin}
	default:
		s.branches = s.branches || isBranch(first)
		return control{}
	}
}

// definesCode recognises the definition of a procedure or the like: its body is the rest of the
// text, and does not run.
func (s *script) definesCode() bool {
	before := s.lexer
	if s.accept("OR") {
		s.accept("ALTER")
	}
	if s.accept("PROCEDURE", "PROC", "FUNCTION", "TRIGGER") {
		return true
	}
	s.lexer = before
	return false
}

// beginsTransaction tells BEGIN TRANSACTION from the BEGIN of a block.
func (s *script) beginsTransaction() bool {
	s.accept("DISTRIBUTED")
	return s.accept("TRANSACTION", "TRAN")
}

func isBranch(word string) bool {
	return is(word, "IF", "ELSE", "WHILE", "BEGIN", "GOTO", "RETURN")
}

// pass moves on to the semicolon that ends the statement with this first word. On SQL Server it
// tells whether it has met transaction control on the way.
func (s *script) pass(first string) (hidden bool) {
	code := body{creates: is(first, "CREATE")}
	for {
		s.punctuation()
		if s.rest == "" || s.rest[0] == ';' && code.depth == 0 {
			break
		}
		word := s.word()
		switch {
		case word == "":
			if !s.quoted() && !s.space() {
				s.rest = s.rest[1:]
			}
		case s.dialect == outbox.SQLServer:
			hidden = s.hides(word) || hidden
		case code.creates:
			code.note(&s.lexer, word)
		}
	}
	s.misread = s.misread || code.depth > 0
	return hidden
}

// body is that of a function in PostgreSQL (BEGIN ATOMIC ... END) or of a trigger in SQLite, whose
// statements have semicolons of their own.
type body struct {
	creates bool // the statement may have one
	trigger bool
	depth   int // blocks that are open
}

// note takes notice of the next word of the statement.
func (b *body) note(l *lexer, word string) {
	switch {
	case is(word, "TRIGGER"):
		b.trigger = true
	case is(word, "CASE") && b.depth > 0:
		b.depth++
	case is(word, "END") && b.depth > 0:
		b.depth--
	case is(word, "BEGIN") && b.depth == 0:
		if l.dialect == outbox.SQLite && b.trigger || l.accept("ATOMIC") {
			b.depth = 1
		}
	}
}

// hides reports whether a word within a statement of SQL Server begins another one, which is
// transaction control.
func (s *script) hides(word string) bool {
	if word[0] == '@' { // most words of a large INSERT
		return false
	}
	if is(word, "COMMIT", "ROLLBACK") || is(word, "SAVE") && s.accept("TRANSACTION", "TRAN") || is(word, "BEGIN") && s.beginsTransaction() {
		return true
	}
	s.branches = s.branches || isBranch(word)
	return false
}
