package inbox_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/inbox"
)

// from is a copy of a message as another source, or under another type, would have it.
func from(m *inbox.Message, source, wireType string) *inbox.Message {
	other := *m
	other.Source, other.Type = source, wireType
	return &other
}

// Each source has ids of its own, whatever has become of the other's message.
func TestSourcesShareNoIDs(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		handled, rejected, failed := p.message(), p.message(), p.message()
		long := strings.Repeat("ü", 300)
		for _, source := range []string{"partner", "", long + "a", long + "b", "x\x00y", "space "} {
			outcome, err := p.handle(from(handled, source, handled.Type))
			require.NoError(t, err)
			require.Equal(t, inbox.Handled, outcome, source)
			require.NoError(t, inbox.Reject(t.Context(), p.db, from(rejected, source, "T.v2"), errBoom, p.at()))
			_, err = p.handleWith(func(*gorm.DB) error { return errBoom }, from(failed, source, failed.Type))
			require.Error(t, err)
			outcome, err = p.handle(from(handled, source, handled.Type))
			require.NoError(t, err)
			require.Equal(t, inbox.Duplicate, outcome, source)
		}
		for _, m := range []*inbox.Message{handled, rejected, failed} {
			done := p.done(m)
			for _, want := range []inbox.Outcome{inbox.Handled, inbox.Duplicate} {
				outcome, err := p.handle(m)
				require.NoError(t, err)
				require.Equal(t, want, outcome)
			}
			require.Equal(t, done+1, p.done(m))
		}
		n, err := inbox.Redrive(t.Context(), p.db, consumer, "partner", []uuid.UUID{rejected.Key}, p.at())
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		var seen int
		filter := inbox.DeadLetterFilter{Limit: 1}
		for page, err := inbox.DeadLetters(t.Context(), p.db, filter, p.at()); len(page) > 0; page, err = inbox.DeadLetters(t.Context(), p.db, filter, p.at()) {
			require.NoError(t, err)
			require.Equal(t, rejected.Key, page[0].Key)
			filter.After = &page[0]
			seen++
		}
		require.Equal(t, 5, seen, "the other five sources")
		n, err = inbox.Redrive(t.Context(), p.db, consumer, "", []uuid.UUID{rejected.Key}, p.at())
		require.NoError(t, err)
		require.EqualValues(t, 5, n)
		done, err := inbox.Redeliver(t.Context(), p.db, consumer, inbox.HandlerFunc(func(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
			return inbox.Handle(ctx, p.db, from(m, m.Source, "T.v2"), func(*gorm.DB) error { return nil }, p.at())
		}), p.at())
		require.NoError(t, err)
		require.Equal(t, 6, done)
	})
}

// An id that its source has used with another type is no copy: it is refused, and what is recorded
// stays.
func TestOtherTypesAreRefused(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		for name, before := range map[string]func(m *inbox.Message, opts ...inbox.Option){
			"handled": func(m *inbox.Message, opts ...inbox.Option) {
				_, err := p.handle(m, opts...)
				require.NoError(t, err)
			},
			"failed": func(m *inbox.Message, opts ...inbox.Option) {
				_, err := p.handleWith(func(*gorm.DB) error { return errBoom }, m, opts...)
				require.Error(t, err)
			},
			"dead_letter": func(m *inbox.Message, opts ...inbox.Option) {
				require.NoError(t, inbox.Reject(t.Context(), p.db, m, errBoom, append(opts, p.at())...))
			},
		} {
			for _, options := range [][]inbox.Option{nil, {inbox.WithTokens()}} {
				m := p.message()
				if options != nil {
					if name == "handled" {
						continue // nothing is left of it
					}
					p.expect(m)
				}
				before(m, options...)
				row := p.row(m)
				other := from(m, m.Source, "Test.Forged.v1")
				_, err := p.handle(other, options...)
				var refusal *inbox.RefusedError
				require.ErrorAs(t, err, &refusal, name)
				require.True(t, inbox.IsPermanent(err))
				require.Equal(t, m.Type, refusal.RecordedType)
				err = inbox.Reject(t.Context(), p.db, other, errBoom, append(options, p.at())...)
				require.ErrorAs(t, err, &refusal, name)
				require.True(t, inbox.IsPermanent(err))
				require.Equal(t, row, p.row(m), name)
			}
		}
	})
}

// A token is for messages of its source, and no other can take it.
func TestTokensBelongToTheirSource(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		m := p.message()
		p.expect(m)
		_, err := p.handle(from(m, "partner", m.Type), inbox.WithTokens())
		var refusal *inbox.RefusedError
		require.ErrorAs(t, err, &refusal)
		require.True(t, inbox.IsPermanent(err))
		require.Equal(t, "orders", refusal.RecordedSource)
		require.Equal(t, "expected", p.row(m).Status)
		for _, want := range []inbox.Outcome{inbox.Handled, inbox.Duplicate} {
			outcome, err := p.handle(m, inbox.WithTokens())
			require.NoError(t, err)
			require.Equal(t, want, outcome)
		}
	})
}
