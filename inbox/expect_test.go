package inbox_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/uow"
)

func (p *place) expect(messages ...*inbox.Message) {
	p.t.Helper()
	keys := make([]uuid.UUID, len(messages))
	for i := range messages {
		keys[i] = messages[i].Key
	}
	require.NoError(p.t, p.db.Transaction(func(tx *gorm.DB) error { return inbox.Expect(tx, consumer, "orders", keys, p.at()) }))
}

func (p *place) rows() int {
	p.t.Helper()
	return p.count("SELECT count(*) FROM " + p.table)
}

// A token lets a message be handled once, and goes with it.
func TestByToken(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		m := p.message()
		p.expect(m, m)
		p.expect(m)
		require.Equal(t, "expected", p.row(m).Status)
		require.Equal(t, 1, p.rows())
		for attempt := 1; attempt < m.MaxAttempts; attempt++ {
			_, err := p.handleWith(func(*gorm.DB) error { return errBoom }, m, inbox.WithTokens())
			var failed *inbox.FailedError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, attempt, failed.Attempts)
			require.Equal(t, "failed", p.row(m).Status)
		}
		outcome, err := p.handle(m, inbox.WithTokens())
		require.NoError(t, err)
		require.Equal(t, inbox.Handled, outcome)
		require.Zero(t, p.rows())
		for range 2 {
			outcome, err = p.handle(m, inbox.WithTokens())
			require.NoError(t, err)
			require.Equal(t, inbox.Duplicate, outcome)
		}
		require.NoError(t, inbox.Reject(t.Context(), p.db, m, errBoom, p.at(), inbox.WithTokens()))
		require.Zero(t, p.rows(), "it is handled")
		require.Equal(t, 1, p.done(m))

		poison := p.message()
		p.expect(poison)
		for range 2 {
			outcome, err = p.handleWith(func(*gorm.DB) error { return inbox.Permanent(errBoom) }, poison, inbox.WithTokens())
			require.NoError(t, err)
			require.Equal(t, inbox.DeadLettered, outcome)
		}
		require.Equal(t, poison.Payload, p.row(poison).Payload)
		n, err := inbox.Redrive(t.Context(), p.db, consumer, "", []uuid.UUID{poison.Key}, p.at())
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		outcome, err = p.handle(poison, inbox.WithTokens())
		require.NoError(t, err)
		require.Equal(t, inbox.Handled, outcome)
		require.Zero(t, p.rows())
	})
}

// A consumer that is turned to tokens, or back, keeps what it knows.
func TestBetweenTokensAndRetention(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		m, other := p.message(), p.message()
		_, err := p.handle(m)
		require.NoError(t, err)
		p.expect(m, other)
		outcome, err := p.handle(m, inbox.WithTokens())
		require.NoError(t, err)
		require.Equal(t, inbox.Duplicate, outcome)
		require.Equal(t, "handled", p.row(m).Status)
		outcome, err = p.handle(other)
		require.NoError(t, err)
		require.Equal(t, inbox.Handled, outcome)
		require.Equal(t, "handled", p.row(other).Status)
	})
}

func TestExpectRefuses(t *testing.T) {
	t.Parallel()
	p := on(t, "sqlite")
	require.ErrorIs(t, inbox.Expect(p.db, consumer, "orders", []uuid.UUID{uuid.New()}, p.at()), uow.ErrNoTransaction)
	require.NoError(t, p.db.Transaction(func(tx *gorm.DB) error {
		require.ErrorContains(t, inbox.Expect(tx, "", "orders", nil, p.at()), "the consumer has no name")
		require.ErrorContains(t, inbox.Expect(tx, consumer, "orders", []uuid.UUID{{}}, p.at()), "is nil: give the message ids")
		many := make([]uuid.UUID, 2500)
		for i := range many {
			many[i] = uuid.New()
		}
		return inbox.Expect(tx, consumer, "orders", many, p.at())
	}))
	require.Equal(t, 2500, p.rows())
	require.Error(t, p.db.Transaction(func(tx *gorm.DB) error {
		require.NoError(t, inbox.Expect(tx, consumer, "orders", []uuid.UUID{uuid.New()}, p.at()))
		return errBoom
	}))
	require.Equal(t, 2500, p.rows(), "tokens exist exactly if the producer commits")
}
