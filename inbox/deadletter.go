package inbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// The sizes of a page of [DeadLetters].
const (
	DefaultPage = 100
	MaxPage     = 1000
)

// redriveBatch is how many messages one statement redrives.
const redriveBatch = 1000

// Reject puts a message among the dead letters without running anything: it cannot be decoded, or
// its version is unknown. why is kept as its last error. A message that is handled or a dead
// letter stays as it is, which is no error either. With [WithTokens] a message without a token is
// handled. One whose id is another's is a [*RefusedError]. Where db is in a transaction, it becomes
// a dead letter when that commits. The message needs a consumer and a key, but no envelope.
func Reject(ctx context.Context, db *gorm.DB, m *Message, why error, opts ...Option) error {
	_, err := reject(ctx, db, m, why, opts...)
	return err
}

// reject also says what the message is now.
func reject(ctx context.Context, db *gorm.DB, m *Message, why error, opts ...Option) (Outcome, error) {
	s, statements, err := prepare(db, opts)
	if err != nil {
		return "", Unavailable(err)
	}
	if err := checkMessage(m); err != nil {
		return "", err
	}
	if why == nil {
		why = errors.New("rejected without a reason")
	}
	h := newHandling(s, statements, m, db)
	outcome, _, err := h.count(ctx, h.outside(), describe(ctx, why), 0, 0)
	switch {
	case refused(err):
		return "", Permanent(err)
	case err != nil:
		return "", Unavailable(fmt.Errorf("inbox: make the message a dead letter of %s: %w", s.table, explain(err)))
	}
	tellWhy(ctx, h.why(why))
	return outcome, nil
}

// A DeadLetter is a message that failed permanently, and waits for a person: who sees to the cause,
// and redrives it.
type DeadLetter struct {
	Consumer string
	Key      uuid.UUID
	// Type is cut at 512 bytes. A source that the table cannot hold as it is, such as one of more
	// than 200 characters, is cut and has a digest.
	Type, Source string
	// Attempts that have failed since it was first handed out, or redriven last.
	Attempts int
	// At is when it became a dead letter, by the database's clock, in UTC.
	At        time.Time
	LastError LastError
	// Payload and Attributes are those of the delivery that became a dead letter; see [Message]. One
	// that was too large to keep has none; see [WithMaxDeadLetterBytes].
	Payload    []byte
	Attributes map[string]string

	beside beside
}

// DeadLetterFilter chooses dead letters.
type DeadLetterFilter struct {
	// Consumer and Type, where they are not empty, are what the messages must have.
	Consumer, Type string
	// Limit is the size of a page, [DefaultPage] where it is 0, at most [MaxPage]. Payloads are
	// part of it.
	Limit int
	// After is the last message of the page before; nil for the first page.
	After *DeadLetter
}

// DeadLetters lists dead letters page by page, in the order of consumer, key and source, so that
// those of one consumer stand in the order in which they were created (SQL Server has an order of
// its own). An empty page is the end. What becomes a dead letter meanwhile may be on a later page
// or on none. Of the options it uses [WithTable].
func DeadLetters(ctx context.Context, db *gorm.DB, filter DeadLetterFilter, opts ...Option) ([]DeadLetter, error) {
	s, statements, err := prepare(db, opts)
	if err != nil {
		return nil, err
	}
	if filter.Limit < 0 || filter.Limit > MaxPage {
		return nil, fmt.Errorf("inbox: the limit of a page is %d: give one from 1 to %d, or none for %d", filter.Limit, MaxPage, DefaultPage)
	}
	if filter.Limit == 0 {
		filter.Limit = DefaultPage
	}
	page, err := list(ctx, outside(db), statements.deadLetters, filter)
	if err != nil {
		return nil, fmt.Errorf("inbox: list dead letters of %s: %w", s.table, explain(err))
	}
	return page, nil
}

func list(ctx context.Context, on conn, s statement, filter DeadLetterFilter) ([]DeadLetter, error) {
	after := filter.After
	if after == nil {
		after = &DeadLetter{}
	}
	return queryAll(ctx, on, s, []any{filter.Consumer, filter.Type, after.Consumer, after.Key.String(), filter.Limit, after.Source}, scanDeadLetter)
}

func scanDeadLetter(rows *sql.Rows) (DeadLetter, error) {
	var (
		m                          DeadLetter
		key, lastError, attributes string
		at                         moment
	)
	if err := rows.Scan(&m.Consumer, &key, &m.Type, &m.Source, &m.Attempts, &at, &lastError, &attributes, &m.Payload); err != nil {
		return m, err
	}
	m.At = at.Time
	var err error
	if m.Key, err = uuid.Parse(key); err != nil {
		return m, err
	}
	// A row that an operator has written by hand may hold anything.
	if json.Unmarshal([]byte(lastError), &m.LastError) != nil {
		m.LastError = LastError{Message: lastError}
	}
	m.readAttributes(attributes)
	return m, nil
}

// moment reads a point in time: microseconds on SQLite and MySQL.
type moment struct{ time.Time }

// Scan implements sql.Scanner.
func (m *moment) Scan(value any) error {
	switch v := value.(type) {
	case int64:
		m.Time = time.UnixMicro(v).UTC()
	case []byte: // a number as MySQL's driver reads it where no statement is prepared
		micros, err := strconv.ParseInt(string(v), 10, 64)
		m.Time = time.UnixMicro(micros).UTC()
		return err
	case time.Time:
		m.Time = v.UTC()
	default:
		return fmt.Errorf("updated_at holds a %T", value)
	}
	return nil
}

// Redrive lets dead letters of a consumer be tried again, with a fresh budget of attempts: the next
// copy that comes is handled, and [Redeliver] hands out the payload of the dead letter. It returns
// how many were redriven; keys that are no dead letters are passed over, so that it may be
// repeated. A key can be a dead letter for several sources: source, as [DeadLetter] has it, chooses
// one, and all are redriven where it is empty. Where db is in a transaction, they are redriven when
// that commits. Of the options it uses [WithTable].
//
// The fresh budget does not hold against what a running consumer still remembers of the same delivery,
// as where its broker has not got the confirmation: with the failures of before, the next one can make
// a dead letter of it again.
func Redrive(ctx context.Context, db *gorm.DB, consumer, source string, keys []uuid.UUID, opts ...Option) (int64, error) {
	s, statements, err := prepare(db, opts)
	if err == nil {
		err = ValidateConsumer(consumer)
	}
	if err != nil {
		return 0, err
	}
	var redriven int64
	for chunk := range slices.Chunk(keys, redriveBatch) {
		n, err := exec(ctx, outside(db), statements.redrive, consumer, keyList(chunk), storedSource(source))
		redriven += n
		if err != nil {
			return redriven, fmt.Errorf("inbox: redrive messages of %s: %w", s.table, explain(err))
		}
	}
	return redriven, nil
}

// RedriveAll redrives all dead letters of a consumer, in batches, or those of one type where
// messageType is not empty; see [Redrive].
func RedriveAll(ctx context.Context, db *gorm.DB, consumer, messageType string, opts ...Option) (int64, error) {
	s, statements, err := prepare(db, opts)
	if err == nil {
		err = ValidateConsumer(consumer)
	}
	if err != nil {
		return 0, err
	}
	var redriven int64
	for {
		n, err := redriveSome(ctx, db, statements, consumer, messageType)
		redriven += n
		if err != nil {
			return redriven, fmt.Errorf("inbox: redrive messages of %s: %w", s.table, explain(err))
		}
		if n < redriveBatch {
			return redriven, nil
		}
	}
}

func redriveSome(ctx context.Context, db *gorm.DB, statements *statements, consumer, messageType string) (int64, error) {
	if statements.dialect == mySQL {
		return statements.redriveAll.after(ctx, db, statements.lockDead, consumer, messageType, redriveBatch)
	}
	return exec(ctx, outside(db), statements.redriveAll, consumer, messageType, redriveBatch)
}

// exec sends a statement and tells how many rows it has changed.
func exec(ctx context.Context, on conn, s statement, args ...any) (int64, error) {
	result, err := on.ExecContext(ctx, s.text, s.args(args)...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// keyList is a list of keys as one parameter: text is bound alike by every driver.
func keyList(keys []uuid.UUID) string {
	list := make([]byte, 0, len(keys)*39+2)
	list = append(list, '[')
	for i := range keys {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, '"')
		list = append(list, keys[i].String()...)
		list = append(list, '"')
	}
	return string(append(list, ']'))
}
