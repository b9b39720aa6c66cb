package inbox

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/google/uuid"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/dbtable"
)

// DefaultTable is the name of the inbox table unless [WithTable] gives another one.
const DefaultTable = "inbox_messages"

// maxConsumerLength is the most characters that the name of a consumer may have, those beyond the
// basic plane (emoji) counted twice, as SQL Server does: it is part of the key, and SQL Server's
// keys are short.
const maxConsumerLength = 200

// maxSourceLength is the most characters of a source, counted in the same way and for the same
// reason.
const maxSourceLength = 200

// maxText cuts the type of a message.
const maxText = 512

// An Option refines what works on an inbox table, [NewHandlers] included. All that work on one table
// for one consumer must be given the same ones.
type Option func(*settings)

func (o Option) refine(h *Handlers) { h.options = append(h.options, o) }

// settings of one call.
type settings struct {
	table   string
	byToken bool
	decoder Decoder

	maxDeadLetter int // bytes
}

// WithTable names the inbox table, optionally with its schema: letters, digits and underscores, at
// most 48. Default: [DefaultTable].
func WithTable(name string) Option { return func(s *settings) { s.table = name } }

// WithTokens makes the deduplication data of a consumer live exactly as long as it is needed. The
// producer creates a token for each message and consumer in its own transaction, before the message
// can be sent; see [Expect]. [Handle] takes the token away in the transaction that handles the
// message, and a message without a token is a [Duplicate]. Nothing is left of a handled message,
// and copies are recognised forever, without a retention.
//
// It needs one database for producer and consumer, and it needs every message to have its token:
// turn it on at the producer first, and at the consumer when it has handled everything that was
// sent before. A message that was sent without a token is taken for a duplicate.
func WithTokens() Option { return func(s *settings) { s.byToken = true } }

// WithDecoder gives [Redeliver] and [NewRedeliverer] the decoder of the consumer, so that they read
// dead letters as it does. It is no option of [NewHandlers] and [Handle]: consumers have it in their
// [ConsumerConfig].
func WithDecoder(d Decoder) Option { return func(s *settings) { s.decoder = d } }

// prepare applies options and finds the statements for a handle.
func prepare(db *gorm.DB, options []Option) (settings, *statements, error) {
	s := settings{table: DefaultTable, maxDeadLetter: DefaultMaxDeadLetterBytes}
	for _, option := range options {
		option(&s)
	}
	if db == nil || db.Statement == nil || db.Dialector == nil {
		return s, nil, errors.New("inbox: the GORM handle is nil or was not opened: use gorm.Open")
	}
	if s.maxDeadLetter <= 0 || s.maxDeadLetter > MaxDeadLetterBytes {
		return s, nil, fmt.Errorf("inbox: WithMaxDeadLetterBytes is %d: give 1 to %d, or leave it out for %d", s.maxDeadLetter, MaxDeadLetterBytes, DefaultMaxDeadLetterBytes)
	}
	texts, err := statementsFor(db.Name(), s.table)
	return s, texts, err
}

// The databases, in GORM's own words.
const (
	postgres  = "postgres"
	sqlite    = "sqlite"
	sqlServer = "sqlserver"
	mySQL     = "mysql" // MariaDB, too
)

// The values of the column status.
const (
	statusHandled    = "handled"
	statusFailed     = "failed"
	statusDeadLetter = "dead_letter"
	statusRedriven   = "redriven"
	statusExpected   = "expected"
)

//go:embed sql
var sqlFiles embed.FS

// statements are the texts for one table in one kind of database.
type statements struct {
	dialect, table            string
	claim, claimToken, look   statement
	count, countToken         statement
	deadLetters, redriven     statement // lists
	progress, types           statement
	probing                   statement // on PostgreSQL
	redrive, redriveAll       statement
	finish, finishToken       statement
	expect                    statement
	purge                     map[string]statement // by status
	lockOld                   map[string]statement // by status: goes before a purge where that locks first
	lockDead                  statement            // goes before redriveAll where that locks first
	migrate, versions, record statement
	lock                      statement // empty where one transaction writes at a time anyway
	release                   statement // of a lock that does not end with a transaction
	packet                    statement // the largest that the server takes; empty where that is no bound
}

// A statement takes its parameters by position.
type statement struct {
	text string
	// places are the numbers of the parameters, from 0, in the order in which the text has them:
	// on MySQL, where a parameter has no number. nil elsewhere.
	places []int
}

// args are the arguments as the text takes them.
func (s statement) args(given []any) []any {
	if s.places == nil {
		return given
	}
	args := make([]any, len(s.places))
	for i, place := range s.places {
		args[i] = given[place]
	}
	return args
}

// after changes, by this statement, what another one has locked in the same transaction. On MySQL a
// statement that changes rows passes over none that are locked, and locks the gaps between them.
func (s statement) after(ctx context.Context, db *gorm.DB, lock statement, args ...any) (changed int64, err error) {
	type key struct {
		Consumer string `json:"consumer"`
		ID       string `json:"id"`
		Source   string `json:"source"`
	}
	session := db.Session(&gorm.Session{NewDB: true, Context: ctx})
	err = session.Transaction(func(tx *gorm.DB) error {
		keys, err := queryAll(ctx, outside(tx), lock, args, func(rows *sql.Rows) (k key, err error) {
			err = rows.Scan(&k.Consumer, &k.ID, &k.Source)
			return k, err
		})
		if err != nil || len(keys) == 0 {
			return err
		}
		list, err := json.Marshal(keys)
		if err != nil {
			return err
		}
		changed, err = exec(ctx, outside(tx), s, string(list))
		return err
	}, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	return changed, err
}

// numbered finds parameters: ?1, ?2 and so on.
var numbered = regexp.MustCompile(`\?[1-9]`)

// newStatement makes a statement of a text in which parameters have numbers.
func newStatement(dialect, text string) statement {
	if dialect != mySQL {
		return statement{text: text}
	}
	s := statement{places: []int{}}
	s.text = numbered.ReplaceAllStringFunc(text, func(number string) string {
		s.places = append(s.places, int(number[1]-'1'))
		return "?"
	})
	return s
}

type statementsKey struct{ dialect, table string }

// known are the statements by dialect and table, built once.
var known sync.Map // statementsKey -> *statements

// statementsFor checks a dialect and a table.
func statementsFor(dialect, table string) (*statements, error) {
	key := statementsKey{dialect, table}
	if found, ok := known.Load(key); ok {
		return found.(*statements), nil //nolint:forcetypeassert // nothing else is stored
	}
	if err := checkTable(dialect, table); err != nil {
		return nil, err
	}
	built, _ := known.LoadOrStore(key, newStatements(dialect, table))
	return built.(*statements), nil //nolint:forcetypeassert // nothing else is stored
}

func checkTable(dialect, table string) error {
	switch dialect {
	case postgres, sqlite, sqlServer, mySQL:
	default:
		return fmt.Errorf("inbox: database %q is not supported: use postgres, sqlserver, mysql or sqlite", dialect)
	}
	if err := dbtable.CheckName(table, DefaultTable); err != nil {
		return fmt.Errorf("inbox: %w", err)
	}
	if err := dbtable.CheckAmong(table, sqlFiles, "sql"); err != nil {
		return fmt.Errorf("inbox: %w", err)
	}
	return nil
}

func newStatements(dialect, table string) *statements {
	withStatus := func(name, status string) statement {
		return newStatement(dialect, strings.ReplaceAll(render(dialect, name, table), "{{status}}", status))
	}
	read := func(name string) statement { return withStatus(name, "") }
	s := &statements{
		dialect: dialect, table: table,
		claim: read("claim"), claimToken: read("claim_token"), count: read("count"), countToken: read("count_token"),
		look: read("look"), deadLetters: withStatus("list", statusDeadLetter), redriven: withStatus("list", statusRedriven),
		redrive: read("redrive"), redriveAll: read("redrive_all"), finish: read("finish"), finishToken: read("finish_token"),
		expect: read("expect"), purge: map[string]statement{},
		progress: read("progress"), types: read("types"),
		migrate: read("migrate"), versions: read("versions"), record: read("record"),
	}
	for _, status := range []string{statusHandled, statusFailed, statusDeadLetter, statusRedriven, statusExpected} {
		s.purge[status] = withStatus("purge", status)
	}
	if dialect != sqlite {
		s.lock = read("lock")
	}
	if dialect == postgres {
		s.probing = read("probe")
	}
	if dialect == mySQL {
		s.release, s.lockDead, s.packet, s.lockOld = read("release"), read("lock_dead"), read("packet"), map[string]statement{}
		for status := range s.purge {
			s.lockOld[status] = withStatus("lock_old", status)
		}
	}
	return s
}

// render reads a statement, and what it shares with others.
func render(dialect, name, table string) string {
	text := body(dialect, name)
	for _, part := range []string{"lock_message", "free", "keys"} {
		if name := "{{" + part + "}}"; strings.Contains(text, name) {
			text = strings.ReplaceAll(text, name, body(dialect, "part_"+part))
		}
	}
	return dbtable.Render(text, table)
}

// body is a file without its leading comment, which is for readers of the file and is not sent with
// each call.
func body(dialect, name string) string {
	text, err := fs.ReadFile(sqlFiles, "sql/"+dialect+"/"+name+".sql")
	if err != nil {
		panic(err) // an embedded file
	}
	body := string(text)
	for strings.HasPrefix(body, "--") {
		_, body, _ = strings.Cut(body, "\n")
	}
	return strings.TrimSpace(body)
}

// ValidateConsumer refuses a name that could not be, or not be found again, in the table. Consumers
// ask at their start.
func ValidateConsumer(consumer string) error {
	switch {
	case consumer == "":
		return errors.New("inbox: the consumer has no name: messages are distinguished by consumer and key, so give it one")
	case characters(consumer) > maxConsumerLength:
		return fmt.Errorf("inbox: the consumer's name %.20q... has %d characters: give it at most %d", consumer, characters(consumer), maxConsumerLength)
	case !utf8.ValidString(consumer) || strings.ContainsRune(consumer, 0) || strings.TrimSpace(consumer) != consumer:
		return fmt.Errorf("inbox: the consumer's name %q: use valid UTF-8 without NUL, and no space at its ends", consumer)
	}
	return nil
}

// ValidateSource refuses a name of a source that could not be in the table as it is. Consumers ask
// at their start about one that they were given.
func ValidateSource(source string) error {
	switch {
	case source == "":
		return errors.New("inbox: the source has no name: give it that of the stream or subscription")
	case storedSource(source) != source:
		return fmt.Errorf("inbox: the source %.40q: give it at most %d characters of valid UTF-8 without NUL, and no space at its ends", source, maxSourceLength)
	}
	return nil
}

// storedSource is a source as the table has it: itself where it can, else its beginning with a
// digest of the whole.
func storedSource(source string) string {
	if characters(source) <= maxSourceLength && utf8.ValidString(source) && !strings.ContainsRune(source, 0) && strings.TrimSpace(source) == source {
		return source
	}
	digest := sha256.Sum256([]byte(source))
	readable := strings.ReplaceAll(strings.ToValidUTF8(cut(source, maxSourceLength/2), "\uFFFD"), "\x00", "\uFFFD")
	return strings.TrimSpace(readable) + "~" + hex.EncodeToString(digest[:])
}

// characters are counted as by SQL Server, in UTF-16.
func characters(s string) (n int) {
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n
}

// checkMessage refuses what has no identity.
func checkMessage(m *Message) error {
	if m == nil {
		return Permanent(errors.New("inbox: the message is nil"))
	}
	if err := ValidateConsumer(m.Consumer); err != nil {
		return Unavailable(err) // the message is not to blame
	}
	if m.Key == uuid.Nil {
		return Permanent(fmt.Errorf("inbox: the message %q of %s has no key: make messages with Decode, or set Key to KeyOf(source, id)", m.ID, m.Source))
	}
	return nil
}

// plain makes a text that every database takes: valid, without NUL, not too long; nil where there
// is none.
func plain(s string) any {
	if s == "" {
		return nil
	}
	if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	}
	return cut(s, maxText)
}

// cut shortens a text to at most n bytes, at the end of a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
