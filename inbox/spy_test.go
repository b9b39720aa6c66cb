package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// spy is a pool that writes down what is sent, and can make commits go wrong.
type spy struct {
	*sql.DB

	mu     sync.Mutex
	seen   []string
	commit func(tx *sql.Tx) error
	before map[string]func() // by what is sent outside of transactions
}

// spied is a handle on a pool of its own through a spy.
func (p *place) spied(t *testing.T) (*gorm.DB, *spy) {
	t.Helper()
	db := p.open(&gorm.Config{})
	pool, err := db.DB()
	require.NoError(t, err)
	s := &spy{DB: pool, commit: (*sql.Tx).Commit}
	db.ConnPool, db.Statement.ConnPool = s, s
	return db, s
}

func (s *spy) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, what)
}

// take returns what was sent since the last time.
func (s *spy) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	s.seen = nil
	return seen
}

// GetDBConn refuses: nobody goes past the spy.
func (s *spy) GetDBConn() (*sql.DB, error) { return nil, gorm.ErrInvalidDB }

func (s *spy) BeginTx(ctx context.Context, options *sql.TxOptions) (gorm.ConnPool, error) {
	s.note("BEGIN")
	tx, err := s.DB.BeginTx(ctx, options)
	if err != nil {
		return nil, err
	}
	return &spyTx{tx, s}, nil
}

func (s *spy) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	s.note(query)
	if f := s.before[query]; f != nil {
		f()
	}
	return s.DB.ExecContext(ctx, query, args...)
}

func (s *spy) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s.note(query)
	if f := s.before[query]; f != nil {
		f()
	}
	return s.DB.QueryContext(ctx, query, args...)
}

type spyTx struct {
	*sql.Tx

	spy *spy
}

func (t *spyTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	t.spy.note(query)
	return t.Tx.ExecContext(ctx, query, args...)
}

func (t *spyTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	t.spy.note(query)
	return t.Tx.QueryContext(ctx, query, args...)
}

func (t *spyTx) Commit() error {
	t.spy.note("COMMIT")
	return t.spy.commit(t.Tx)
}

func (t *spyTx) Rollback() error {
	err := t.Tx.Rollback()
	if !errors.Is(err, sql.ErrTxDone) {
		t.spy.note("ROLLBACK")
	}
	return err
}
