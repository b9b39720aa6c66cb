package deduptest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/inbox/dedup"
)

// Entities is a store of entities in memory. It keeps them as JSON, so that it shares nothing with
// anybody.
type Entities[S any] struct {
	mu   sync.Mutex
	rows map[string]row
}

type row struct {
	version int
	encoded []byte
}

// document is how an entity is encoded.
type document[S any] struct {
	State  S            `json:"state"`
	Outbox dedup.Outbox `json:"outbox"`
}

// NewEntities returns a store without entities.
func NewEntities[S any]() *Entities[S] { return &Entities[S]{rows: map[string]row{}} }

// Load implements dedup.Entities.
func (e *Entities[S]) Load(ctx context.Context, id string) (entity dedup.Entity[S], err error) {
	if err := ctx.Err(); err != nil {
		return entity, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	found, ok := e.rows[id]
	if !ok {
		return entity, nil
	}
	var d document[S]
	if err := json.Unmarshal(found.encoded, &d); err != nil {
		return entity, fmt.Errorf("deduptest: decode entity %q: %w", id, err)
	}
	return dedup.Entity[S]{State: d.State, Version: dedup.Version(strconv.Itoa(found.version)), Outbox: d.Outbox}, nil
}

// Save implements dedup.Entities.
func (e *Entities[S]) Save(ctx context.Context, id string, entity dedup.Entity[S]) (dedup.Version, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	encoded, err := json.Marshal(document[S]{State: entity.State, Outbox: entity.Outbox})
	if err != nil {
		return "", fmt.Errorf("deduptest: encode entity %q: %w", id, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var current dedup.Version
	if found, ok := e.rows[id]; ok {
		current = dedup.Version(strconv.Itoa(found.version))
	}
	if entity.Version != current {
		return "", dedup.ErrConflict
	}
	next := e.rows[id].version + 1
	e.rows[id] = row{version: next, encoded: encoded}
	return dedup.Version(strconv.Itoa(next)), nil
}

// Store is a dedup.Store in memory.
type Store struct{ entries }

// NewStore returns a store without entries.
func NewStore() *Store { return &Store{newEntries()} }

// Contains implements dedup.Store.
func (s *Store) Contains(ctx context.Context, consumer string, key uuid.UUID) (bool, error) {
	return s.has(ctx, dedup.Token{Consumer: consumer, Value: key.String()})
}

// Add implements dedup.Store.
func (s *Store) Add(ctx context.Context, consumer string, key uuid.UUID, at time.Time) error {
	return s.add(ctx, []dedup.Token{{Consumer: consumer, Value: key.String()}}, at)
}

// Tokens is a dedup.Tokens in memory.
type Tokens struct{ entries }

// NewTokens returns a store without tokens.
func NewTokens() *Tokens { return &Tokens{newEntries()} }

// Create implements dedup.Tokens.
func (t *Tokens) Create(ctx context.Context, tokens []dedup.Token, at time.Time) error {
	return t.add(ctx, tokens, at)
}

// Exists implements dedup.Tokens.
func (t *Tokens) Exists(ctx context.Context, token dedup.Token) (bool, error) {
	return t.has(ctx, token)
}

// Remove implements dedup.Tokens.
func (t *Tokens) Remove(ctx context.Context, tokens []dedup.Token) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, token := range tokens {
		delete(t.all, token)
	}
	return nil
}

// entries is what both kinds of memory are made of.
type entries struct {
	mu  *sync.Mutex
	all map[dedup.Token]time.Time
}

func newEntries() entries { return entries{mu: &sync.Mutex{}, all: map[dedup.Token]time.Time{}} }

// Len is how many entries there are.
func (e *entries) Len() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.all)
}

func (e *entries) has(ctx context.Context, token dedup.Token) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ok := e.all[token]
	return ok, nil
}

func (e *entries) add(ctx context.Context, tokens []dedup.Token, at time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, token := range tokens {
		if err := token.Validate(); err != nil {
			return err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, token := range tokens {
		if _, ok := e.all[token]; !ok {
			e.all[token] = at
		}
	}
	return nil
}

// PurgeOlderThan implements dedup.Purger.
func (e *entries) PurgeOlderThan(ctx context.Context, before time.Time, limit int) (removed int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var old []dedup.Token
	for token, at := range e.all {
		if at.Before(before) {
			old = append(old, token)
		}
	}
	slices.SortFunc(old, func(a, b dedup.Token) int { return e.all[a].Compare(e.all[b]) })
	for _, token := range old[:min(limit, len(old))] {
		delete(e.all, token)
		removed++
	}
	return removed, nil
}
