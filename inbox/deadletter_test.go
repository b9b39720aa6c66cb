package inbox_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/uow"
)

// reject rejects a fresh message.
func (p *place) reject(change ...func(m *inbox.Message)) *inbox.Message {
	p.t.Helper()
	m := p.message()
	for _, f := range change {
		f(m)
	}
	require.NoError(p.t, inbox.Reject(p.t.Context(), p.db, m, errBoom, p.at()))
	return m
}

func (p *place) deadLetters(filter inbox.DeadLetterFilter) []inbox.DeadLetter {
	p.t.Helper()
	page, err := inbox.DeadLetters(p.t.Context(), p.db, filter, p.at())
	require.NoError(p.t, err)
	return page
}

// Reject rejects what it is given, and leaves what is handled or a dead letter as it is.
func TestReject(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		m := p.reject(func(m *inbox.Message) { m.Envelope = nil })
		require.Equal(t, &row{
			Status: "dead_letter", Type: "Test.Happened.v1", Source: "orders", LastError: `{"class":"error","message":"boom"}`,
			Attributes: `{"tenant":"t1"}`, Payload: m.Payload,
		}, p.row(m))
		require.NoError(t, inbox.Reject(t.Context(), p.db, m, errors.New("other"), p.at()))
		require.JSONEq(t, `{"class":"error","message":"boom"}`, p.row(m).LastError)

		handled := p.message()
		_, err := p.handle(handled)
		require.NoError(t, err)
		require.NoError(t, inbox.Reject(t.Context(), p.db, handled, nil, p.at()))
		require.Equal(t, "handled", p.row(handled).Status)

		failed := p.message()
		_, err = p.handleWith(func(*gorm.DB) error { return errBoom }, failed)
		require.Error(t, err)
		require.NoError(t, inbox.Reject(t.Context(), p.db, failed, nil, p.at()))
		require.Equal(t, "dead_letter", p.row(failed).Status)
		require.Equal(t, 1, p.row(failed).Attempts)
		require.Equal(t, failed.Payload, p.row(failed).Payload)

		require.ErrorContains(t, inbox.Reject(t.Context(), p.db, &inbox.Message{Consumer: consumer}, nil, p.at()), "has no key")
		require.ErrorContains(t, inbox.Reject(t.Context(), p.db, m, nil, inbox.WithTable("missing")), "make the message a dead letter of missing")

		rolledBack := p.message()
		require.ErrorIs(t, p.db.Transaction(func(tx *gorm.DB) error {
			return errors.Join(inbox.Reject(t.Context(), tx, rolledBack, errBoom, p.at()), errBoom)
		}), errBoom)
		require.Nil(t, p.row(rolledBack))
	})
}

// Lists go page by page, each message once, with everything that became a dead letter.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		before := time.Now().Add(-time.Minute)
		want := map[uuid.UUID]bool{}
		for i := range 7 {
			want[p.reject(func(m *inbox.Message) {
				if i >= 4 {
					m.Consumer, m.Type = "shipping", "Test.Other.v1"
				}
			}).Key] = true
		}
		_, err := p.handle(p.message())
		require.NoError(t, err)

		seen := map[uuid.UUID]bool{}
		filter := inbox.DeadLetterFilter{Limit: 2}
		for {
			page := p.deadLetters(filter)
			if len(page) == 0 {
				break
			}
			require.LessOrEqual(t, len(page), 2)
			for i := range page {
				require.False(t, seen[page[i].Key])
				seen[page[i].Key] = true
			}
			filter.After = &page[len(page)-1]
		}
		require.Equal(t, want, seen)

		shipping := p.deadLetters(inbox.DeadLetterFilter{Consumer: "shipping"})
		require.Len(t, shipping, 3)
		require.Len(t, p.deadLetters(inbox.DeadLetterFilter{Type: "Test.Other.v1"}), 3)
		require.Empty(t, p.deadLetters(inbox.DeadLetterFilter{Consumer: consumer, Type: "Test.Other.v1"}))
		one := shipping[0]
		require.WithinRange(t, one.At, before, time.Now().Add(time.Minute))
		require.Equal(t, time.UTC, one.At.Location())
		require.Contains(t, string(one.Payload), one.Key.String())
		require.Equal(t, map[string]string{"tenant": "t1"}, one.Attributes)
		require.Equal(t, inbox.LastError{Class: inbox.ClassError, Message: "boom"}, one.LastError)
		require.Equal(t, "orders", one.Source)

		_, err = inbox.DeadLetters(t.Context(), p.db, inbox.DeadLetterFilter{Limit: 1001}, p.at())
		require.ErrorContains(t, err, "give one from 1 to 1000")
	})
}

// What is redriven is tried again with a fresh budget, by a copy of the broker's or by Redeliver.
func TestRedrive(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		failing := func(*gorm.DB) error { return errBoom }
		m := p.message()
		for range 2 {
			_, _ = p.handleWith(failing, m)
		}
		require.Equal(t, "dead_letter", p.row(m).Status)
		unknown := uuid.New()
		for _, want := range []int64{1, 0} {
			n, err := inbox.Redrive(t.Context(), p.db, consumer, "", []uuid.UUID{m.Key, unknown}, p.at())
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
		require.Equal(t, "redriven", p.row(m).Status)
		require.Zero(t, p.row(m).Attempts)
		require.Equal(t, m.Payload, p.row(m).Payload)

		// It fails once more: it stays redriven, with its payload, until its budget is used up.
		_, err := p.handleWith(failing, m)
		require.ErrorIs(t, err, errBoom)
		require.Equal(t, "redriven", p.row(m).Status)
		require.Equal(t, 1, p.row(m).Attempts)
		require.Equal(t, m.Payload, p.row(m).Payload)
		outcome, err := p.handleWith(failing, m)
		require.NoError(t, err)
		require.Equal(t, inbox.DeadLettered, outcome)

		for range 3 {
			p.reject()
		}
		p.reject(func(m *inbox.Message) { m.Type = "Test.Other.v1" })
		p.reject(func(m *inbox.Message) { m.Consumer = "shipping" })
		n, err := inbox.RedriveAll(t.Context(), p.db, consumer, "Test.Other.v1", p.at())
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		n, err = inbox.RedriveAll(t.Context(), p.db, consumer, "", p.at())
		require.NoError(t, err)
		require.EqualValues(t, 4, n)
		require.Len(t, p.deadLetters(inbox.DeadLetterFilter{}), 1, "of another consumer")

		outcome, err = p.handle(m)
		require.NoError(t, err)
		require.Equal(t, inbox.Handled, outcome)
		require.Nil(t, p.row(m).Payload)
		_, err = inbox.Redrive(t.Context(), p.db, "", "", nil, p.at())
		require.ErrorContains(t, err, "the consumer has no name")
	})
}

// More than a page is handed out, once each, and what fails waits for the next time.
func TestRedeliver(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		const all = 120
		bad := map[uuid.UUID]bool{}
		for i := range all {
			m := p.reject()
			bad[m.Key] = i%10 == 0
		}
		_, err := inbox.RedriveAll(t.Context(), p.db, consumer, "", p.at())
		require.NoError(t, err)
		handed := map[uuid.UUID]int{}
		broken := true
		handler := inbox.HandlerFunc(func(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
			handed[m.Key]++
			require.Equal(t, consumer, m.Consumer)
			require.Equal(t, "orders", m.Source)
			require.Equal(t, map[string]string{"tenant": "t1"}, m.Attributes)
			return inbox.Handle(ctx, p.db, m, func(tx *gorm.DB) error {
				if broken && bad[m.Key] {
					return errBoom
				}
				return p.effect(m)(tx)
			}, p.at())
		})
		n, err := inbox.Redeliver(t.Context(), p.db, consumer, handler, p.at())
		require.ErrorIs(t, err, errBoom)
		require.Equal(t, all-all/10, n)
		require.Len(t, handed, all)
		for _, times := range handed {
			require.Equal(t, 1, times)
		}
		require.Equal(t, all/10, p.count("SELECT count(*) FROM "+p.table+" WHERE status = 'redriven' AND attempts = 1"))
		broken = false
		n, err = inbox.Redeliver(t.Context(), p.db, consumer, handler, p.at())
		require.NoError(t, err)
		require.Equal(t, all/10, n)
		require.Equal(t, all, p.count("SELECT count(*) FROM "+p.effects()))
		require.Equal(t, all, p.count("SELECT count(*) FROM "+p.table+" WHERE status = 'handled'"))
	})
}

// A handler that does not use Handle is counted for, and noted as done.
func TestRedeliverToOthers(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		m := p.reject()
		redrive := func() {
			t.Helper()
			n, err := inbox.RedriveAll(t.Context(), p.db, consumer, "", p.at())
			require.NoError(t, err)
			require.Positive(t, n)
		}
		redeliver := func(answer func() (inbox.Outcome, error)) (int, error) {
			return inbox.Redeliver(t.Context(), p.db, consumer, inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
				m.MaxAttempts = 2
				return answer()
			}), p.at())
		}
		redrive()
		for attempt := 1; attempt <= 2; attempt++ {
			n, err := redeliver(func() (inbox.Outcome, error) { panic("oh") })
			require.ErrorContains(t, err, "oh")
			require.Zero(t, n)
			require.Equal(t, attempt, p.row(m).Attempts)
		}
		require.Equal(t, "dead_letter", p.row(m).Status)
		redrive()
		n, err := redeliver(func() (inbox.Outcome, error) { return "", inbox.Unavailable(errBoom) })
		require.True(t, inbox.IsUnavailable(err))
		require.Zero(t, n)
		require.Zero(t, p.row(m).Attempts)
		n, err = redeliver(func() (inbox.Outcome, error) { return inbox.Skipped, nil })
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, "handled", p.row(m).Status, "what its handler skips is done with")
		m = p.reject(func(*inbox.Message) {})
		redrive()
		n, err = redeliver(func() (inbox.Outcome, error) {
			return inbox.Handled, inbox.Reject(t.Context(), p.db, m, errBoom, p.at())
		})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, "dead_letter", p.row(m).Status, "what another transaction has decided meanwhile stands")
		redrive()
		n, err = redeliver(func() (inbox.Outcome, error) { return inbox.Handled, nil })
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, "handled", p.row(m).Status)
		require.Nil(t, p.row(m).Payload)

		garbage := p.reject(func(m *inbox.Message) { m.Payload = []byte("garbage") })
		redrive()
		n, err = redeliver(func() (inbox.Outcome, error) { panic("called") })
		require.ErrorContains(t, err, garbage.Key.String())
		require.Zero(t, n)
		require.Equal(t, "dead_letter", p.row(garbage).Status)
		require.NotContains(t, p.row(garbage).LastError, "boom")
	})
}

// Several processes that redeliver at once, beside copies from the broker, deliver each message,
// and it has its effect once.
func TestRedeliverAtOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		const all = 60
		var messages []*inbox.Message
		for range all {
			messages = append(messages, p.reject())
		}
		_, err := inbox.RedriveAll(t.Context(), p.db, consumer, "", p.at())
		require.NoError(t, err)
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				_, err := inbox.Redeliver(t.Context(), p.db, consumer, inbox.HandlerFunc(func(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
					return inbox.Handle(ctx, p.db, m, p.effect(m), p.at())
				}), p.at())
				if err != nil {
					assert.True(t, uow.IsConflict(err), "%v", err)
				}
			})
		}
		group.Go(func() {
			for _, m := range messages {
				_, err := p.handle(m)
				if err != nil {
					assert.True(t, uow.IsConflict(err), "%v", err)
				}
			}
		})
		group.Wait()
		for _, m := range messages {
			_, err := p.handle(m)
			require.NoError(t, err)
			require.Equal(t, 1, p.done(m))
		}
		require.Equal(t, all, p.count("SELECT count(*) FROM "+p.table+" WHERE status = 'handled'"))
	})
}
