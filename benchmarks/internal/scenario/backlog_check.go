package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/outbox"
)

// hotMargin is by how many of a hundred the share of the hot key may be off, in small backlogs.
const hotMargin = 5

// check looks whether each row is published and its message in the stream exactly once and, where
// that was asked for, in the order of its key.
func (s *setup) check(ctx context.Context) error {
	if err := s.checkRows(ctx); err != nil {
		return err
	}
	if s.elsewhere != nil { // the conformance suite looks at the order
		n, err := s.elsewhere.count(ctx, s.stream)
		if err == nil && n != s.rows {
			err = fmt.Errorf("scenario: %d of %d messages are there", n, s.rows)
		}
		return err
	}
	keys := s.written
	if keys == nil {
		var err error
		if keys, err = s.table.Keys(ctx); err != nil {
			return err
		}
	}
	a := arrivals{setup: s, keys: keys, seen: make(map[uuid.UUID]bool, len(keys)), last: make(map[string]int64, s.keys)}
	if err := s.streams.Each(ctx, s.stream, "id", a.add); err != nil {
		return err
	}
	share := int(100 * a.hot / s.rows)
	switch {
	case len(a.seen) != int(s.rows):
		return fmt.Errorf("scenario: %d of %d messages are in the stream", len(a.seen), s.rows)
	case share < s.hot-hotMargin || share > s.hot+hotMargin:
		return fmt.Errorf("scenario: %d %% of the messages have the hot key, want %d", share, s.hot)
	case s.ordered && s.keys > 1 && len(a.last) < 2:
		return errors.New("scenario: all messages have the same key, so that their order proves little")
	}
	return nil
}

// checkRows looks whether each row is published, or gone where rows are not kept.
func (s *setup) checkRows(ctx context.Context) error {
	if s.notKept {
		left, err := fixture.Get[int64](ctx, s.table, "SELECT count(*) FROM {{table}}")
		if err == nil && left > 0 {
			err = fmt.Errorf("scenario: %d rows are left of %d that are not kept", left, s.rows)
		}
		return err
	}
	published, err := s.published(ctx)
	if err == nil && published != s.rows {
		err = fmt.Errorf("scenario: %d of %d rows are published", published, s.rows)
	}
	return err
}

// arrivals are the messages that stand in the stream.
type arrivals struct {
	*setup

	keys map[uuid.UUID]fixture.Row
	seen map[uuid.UUID]bool
	last map[string]int64 // by key, the id of its latest row
	hot  int64
}

// add judges the next message of the stream.
func (a *arrivals) add(text string) error {
	id, err := uuid.Parse(text)
	if err != nil {
		return fmt.Errorf("scenario: an entry has the message id %q: %w", text, err)
	}
	row, known := a.keys[id]
	switch {
	case !known:
		return fmt.Errorf("scenario: the stream holds message %s, which was never written", id)
	case a.seen[id]:
		return fmt.Errorf("scenario: message %s is in the stream twice", id)
	case a.ordered && row.ID <= a.last[row.Key]:
		return fmt.Errorf("scenario: message %s of key %s went out behind a later one", id, row.Key)
	}
	a.seen[id], a.last[row.Key] = true, row.ID
	if strings.HasSuffix(row.Key, "hot") {
		a.hot++
	}
	return nil
}

func (s *setup) published(ctx context.Context) (int64, error) {
	if s.minimal {
		return fixture.Get[int64](ctx, s.table, "SELECT count(*) FROM {{table}}_minimal WHERE status = 2 AND published_at IS NOT NULL")
	}
	return s.table.Count(ctx, outbox.StatusPublished)
}
