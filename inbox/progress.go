package inbox

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// statusRunning is what no row has.
const statusRunning = "running"

// Progress is how far a consumer is with one message of one source.
type Progress struct {
	Key    uuid.UUID
	Source string
	// Status is handled, once and for all; failed, and tried again; dead_letter, until a person redrives it; redriven, to be
	// tried again; expected, where its token was created ([WithTokens]) and it has not come yet; or running: a handler
	// has it now. On SQLite none is ever seen running.
	Status string
	// Type is the type on the wire, where it is known.
	Type string
	// Attempts that have failed since the message first came, or was redriven last.
	Attempts int
	// At is since when it has this status, by the database's clock, in UTC; zero where it is running.
	At time.Time
	// LastError is zero where there is none.
	LastError LastError
}

// The most messages and sources that [WhatBecame] looks at, the most rows that it returns, and the most locks that it asks for.
const (
	maxProgress        = 1000
	maxProgressSources = 20
	maxProbes          = 100
	maxTypesOf         = 1000
)

// WhatBecame tells how far a consumer is with messages, by their keys, sorted by key and source. A message of which the
// inbox has recorded nothing is not in the answer: it has not come, or its row was purged, or, with [WithTokens],
// it was handled. Sources are those that the consumer may have the messages from; they matter only to see
// that one is running, and may be left out. It looks at no more than 1,000 keys and 20 sources, by the
// primary key. It changes nothing; on PostgreSQL it asks for the locks of messages which are not handled, a
// hundred at most, in transactions that are rolled back, for which it needs the rights of a consumer: a role that may only read
// learns the rest. Of the options it uses [WithTable].
func WhatBecame(ctx context.Context, db *gorm.DB, consumer string, keys []uuid.UUID, sources []string, opts ...Option) ([]Progress, error) {
	s, statements, err := prepare(db, opts)
	if err == nil {
		err = ValidateConsumer(consumer)
	}
	switch {
	case err != nil:
		return nil, err
	case len(keys) > maxProgress || len(sources) > maxProgressSources:
		return nil, fmt.Errorf("inbox: look at %d messages of %d sources: ask for no more than %d and %d at a time", len(keys), len(sources), maxProgress, maxProgressSources)
	case len(keys) == 0:
		return nil, nil
	}
	look := looking{statements: statements, consumer: consumer, keys: keys}
	found, err := look.recorded(ctx, outside(db))
	if err == nil {
		err = look.running(ctx, db, sources, &found)
	}
	if err != nil {
		return nil, fmt.Errorf("inbox: look at messages of %s in %s: %w", consumer, s.table, explain(err))
	}
	slices.SortFunc(found, func(a, b Progress) int { return compareProgress(&a, &b) })
	return found, nil
}

// HandledTypes tells of which types a consumer takes messages: those of the ones that its inbox has recorded as handled, of
// the thousand newest messages by their ids, each once. None is in the answer where the inbox keeps nothing of what was
// handled ([WithTokens]), or where that was purged. It changes nothing, and of the options it uses [WithTable].
func HandledTypes(ctx context.Context, db *gorm.DB, consumer string, opts ...Option) ([]string, error) {
	s, statements, err := prepare(db, opts)
	if err == nil {
		err = ValidateConsumer(consumer)
	}
	if err != nil {
		return nil, err
	}
	types, err := queryAll(ctx, outside(db), statements.types, []any{consumer, maxTypesOf}, func(rows *sql.Rows) (name string, err error) {
		err = rows.Scan(&name)
		return name, err
	})
	if err != nil {
		return nil, fmt.Errorf("inbox: look at the types that %s takes in %s: %w", consumer, s.table, explain(err))
	}
	return types, nil
}

// looking is one call of WhatBecame.
type looking struct {
	*statements

	consumer string
	keys     []uuid.UUID
}

// recorded is what is committed, or what a transaction on reads.
func (l *looking) recorded(ctx context.Context, on conn) ([]Progress, error) {
	return queryAll(ctx, on, l.progress, []any{l.consumer, keyList(l.keys), maxProgress}, scanProgress)
}

func scanProgress(rows *sql.Rows) (Progress, error) {
	var (
		p              Progress
		key, lastError string
		at             moment
	)
	if err := rows.Scan(&key, &p.Source, &p.Status, &p.Type, &p.Attempts, &at, &lastError); err != nil {
		return p, err
	}
	p.At = at.Time
	if json.Unmarshal([]byte(lastError), &p.LastError) != nil {
		p.LastError = LastError{Message: lastError} // a row that was written by hand may hold anything
	}
	var err error
	p.Key, err = uuid.Parse(key)
	return p, err
}

// running finds the messages that a transaction has which is not committed.
func (l *looking) running(ctx context.Context, db *gorm.DB, sources []string, found *[]Progress) error {
	pool, err := db.DB()
	if err != nil || l.dialect == sqlite { // a writer has the whole file
		return nil
	}
	if l.dialect == postgres {
		return l.probe(ctx, pool, sources, found)
	}
	tx, err := pool.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadUncommitted, ReadOnly: l.dialect == mySQL})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	dirty, err := l.recorded(ctx, tx)
	if err != nil {
		return err
	}
	// What has been committed since is as it was read last.
	again, err := l.recorded(ctx, pool)
	if err != nil {
		return err
	}
	*found = again
	for i := range dirty {
		at := slices.IndexFunc(again, func(p Progress) bool { return compareProgress(&p, &dirty[i]) == 0 })
		switch {
		case at < 0:
			*found = append(*found, dirty[i].handling())
		case again[at].Status != dirty[i].Status && again[at].At.Before(dirty[i].At):
			(*found)[at] = again[at].handling()
		}
	}
	return nil
}

// probe asks for the locks of messages that are not done with.
func (l *looking) probe(ctx context.Context, pool *sql.DB, sources []string, found *[]Progress) error {
	probes := 0
	for _, key := range l.keys {
		of := slices.Clone(sources)
		for _, p := range *found {
			if p.Key == key && !slices.Contains(of, p.Source) {
				of = append(of, p.Source)
			}
		}
		for _, source := range of {
			source = storedSource(source)
			at := slices.IndexFunc(*found, func(p Progress) bool { return p.Key == key && p.Source == source })
			if at >= 0 && ((*found)[at].Status == statusHandled || (*found)[at].Status == statusDeadLetter) {
				continue
			}
			if probes++; probes > maxProbes {
				return nil
			}
			running, err := l.isLocked(ctx, pool, key, source)
			switch {
			case err != nil:
				return err
			case running && at < 0:
				*found = append(*found, Progress{Key: key, Source: source, Status: statusRunning})
			case running:
				(*found)[at] = (*found)[at].handling()
			}
		}
	}
	return nil
}

// isLocked tries to win a message for a moment. A role that may not is told that no one has it.
func (l *looking) isLocked(ctx context.Context, pool *sql.DB, key uuid.UUID, source string) (bool, error) {
	tx, err := pool.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "SET LOCAL lock_timeout = '50ms'"); err != nil {
		return false, err
	}
	_, err = tx.ExecContext(ctx, l.probing.text, l.consumer, key.String(), source)
	var says interface{ SQLState() string }
	if errors.As(err, &says) {
		switch says.SQLState() {
		case "55P03": // lock_not_available
			return true, nil
		case "42501", "25006": // insufficient_privilege, read_only_sql_transaction
			return false, nil
		}
	}
	return false, err
}

// handling is p while a handler has the message.
func (p Progress) handling() Progress {
	p.Status, p.At = statusRunning, time.Time{}
	return p
}

func compareProgress(a, b *Progress) int {
	return cmp.Or(bytes.Compare(a.Key[:], b.Key[:]), cmp.Compare(a.Source, b.Source))
}
