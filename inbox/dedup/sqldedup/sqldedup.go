// Package sqldedup keeps what package dedup remembers in a table of PostgreSQL, SQL Server,
// MySQL, MariaDB or SQLite, through GORM and whatever driver the application links.
//
// [Migrate] makes the table. [New] is a dedup.Store: it remembers messages that were handled until
// dedup.PurgeLoop removes them. [NewTokens] is a dedup.Tokens. Both can use the same table; they do
// not see each other's entries.
//
// All reads go where writes go, also where the plugin dbresolver has replicas.
package sqldedup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/inbox/dedup"
	"github.com/gorm-fanout/fanout/internal/dbtable"
)

// An Option changes a default.
type Option func(*settings)

type settings struct{ table string }

// WithTable is the name of the table, with or without a schema. Default: [DefaultTable].
func WithTable(name string) Option { return func(s *settings) { s.table = name } }

// named are the parameters of a statement.
type named = map[string]any

// The kinds of entries.
const (
	kindHandled = "handled"
	kindToken   = "token"
)

func textsOf(db *gorm.DB, options []Option) (*texts, error) {
	if db == nil || db.Dialector == nil {
		return nil, errors.New("sqldedup: the database is missing: give an open *gorm.DB")
	}
	s := settings{table: DefaultTable}
	for _, option := range options {
		option(&s)
	}
	return newTexts(db.Name(), s.table)
}

// Store is a dedup.Store and a dedup.Purger. It is safe for concurrent use.
type Store struct{ table }

// New returns the store in the table of a database. The error is that of the dialect or the table's
// name.
func New(db *gorm.DB, opts ...Option) (*Store, error) {
	t, err := textsOf(db, opts)
	if err != nil {
		return nil, err
	}
	return &Store{table{db: plain(db), texts: t, kind: kindHandled}}, nil
}

// Contains implements dedup.Store.
func (s *Store) Contains(ctx context.Context, consumer string, key uuid.UUID) (bool, error) {
	return s.has(ctx, consumer, key.String())
}

// Add implements dedup.Store. An entry that is there stays as it is.
func (s *Store) Add(ctx context.Context, consumer string, key uuid.UUID, at time.Time) error {
	if err := dedup.ValidateConsumer(consumer); err != nil {
		return err
	}
	err := s.db.WithContext(ctx).Exec(s.texts.add, named{"kind": s.kind, "consumer": consumer, "token": key.String(), "at": s.texts.time(at)}).Error
	return s.wrap("add", err)
}

// Tokens is a dedup.Tokens. It is safe for concurrent use.
type Tokens struct{ table }

// NewTokens returns the tokens in the table of a database. The error is that of the dialect or the
// table's name.
func NewTokens(db *gorm.DB, opts ...Option) (*Tokens, error) {
	t, err := textsOf(db, opts)
	if err != nil {
		return nil, err
	}
	return &Tokens{table{db: plain(db), texts: t, kind: kindToken}}, nil
}

// In returns the tokens as seen in a transaction: a producer whose messages are rows of an outbox
// creates their tokens in the transaction that writes the rows. It takes a handle of the same
// database.
func (t *Tokens) In(tx *gorm.DB) *Tokens {
	return &Tokens{table{db: plain(tx), texts: t.texts, kind: t.kind}}
}

// Create implements dedup.Tokens: all of them, or none.
func (t *Tokens) Create(ctx context.Context, tokens []dedup.Token, at time.Time) error {
	for _, token := range tokens {
		if err := token.Validate(); err != nil {
			return err
		}
	}
	return t.each(ctx, "create", tokens, t.texts.create, named{"at": t.texts.time(at)})
}

// Exists implements dedup.Tokens.
func (t *Tokens) Exists(ctx context.Context, token dedup.Token) (bool, error) {
	return t.has(ctx, token.Consumer, token.Value)
}

// Remove implements dedup.Tokens: all of them, or none.
func (t *Tokens) Remove(ctx context.Context, tokens []dedup.Token) error {
	return t.each(ctx, "remove", tokens, t.texts.remove, named{})
}

// each executes a statement that takes tokens as JSON.
func (t *Tokens) each(ctx context.Context, what string, tokens []dedup.Token, statement string, parameters named) error {
	if len(tokens) == 0 {
		return nil
	}
	encoded, err := json.Marshal(tokens)
	if err != nil {
		return t.wrap(what, err)
	}
	parameters["tokens"] = string(encoded)
	return t.wrap(what, t.db.WithContext(ctx).Exec(statement, parameters).Error)
}

// table is what both have in common.
type table struct {
	db    *gorm.DB
	texts *texts
	kind  string
}

func (t *table) has(ctx context.Context, consumer, token string) (bool, error) {
	var n int64
	err := t.db.WithContext(ctx).Raw(t.texts.contains, named{"kind": t.kind, "consumer": consumer, "token": token}).Scan(&n).Error
	return n > 0, t.wrap("look", err)
}

// PurgeOlderThan implements dedup.Purger, for entries of its own kind.
func (t *table) PurgeOlderThan(ctx context.Context, before time.Time, limit int) (int64, error) {
	result := t.db.WithContext(ctx).Exec(t.texts.purge, named{"kind": t.kind, "before": t.texts.time(before), "batch": limit})
	return result.RowsAffected, t.wrap("purge", result.Error)
}

var errNoTable = errors.New("the table is not up to date: run sqldedup.Migrate, or name the one that there is with sqldedup.WithTable")

func (t *table) wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	err = dbtable.Explain(err, errNoTable)
	return fmt.Errorf("sqldedup: %s, table %s: %w", what, t.texts.table, err)
}
