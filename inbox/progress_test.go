package inbox_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/inbox"
)

// What an operator asks of a consumer's database: each message is where it is.
func TestWhatBecame(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		ask := func(sources []string, messages ...*inbox.Message) map[uuid.UUID]inbox.Progress {
			t.Helper()
			keys := make([]uuid.UUID, len(messages))
			for i, m := range messages {
				keys[i] = m.Key
			}
			found, err := inbox.WhatBecame(t.Context(), p.db, consumer, keys, sources, p.at())
			require.NoError(t, err)
			answers := map[uuid.UUID]inbox.Progress{}
			for _, one := range found {
				require.NotContains(t, answers, one.Key)
				answers[one.Key] = one
			}
			return answers
		}
		handled, failed, rejected, redriven, expected, absent := p.message(), p.message(), p.message(), p.message(), p.message(), p.message()
		_, err := p.handle(handled)
		require.NoError(t, err)
		boom := func(*gorm.DB) error { return errors.New("boom") }
		_, err = p.handleWith(boom, failed)
		require.Error(t, err)
		for _, m := range []*inbox.Message{rejected, redriven} {
			_, err = p.handleWith(func(*gorm.DB) error { return inbox.Permanent(errors.New("no such order")) }, m)
			require.NoError(t, err)
		}
		_, err = inbox.Redrive(t.Context(), p.db, consumer, "", []uuid.UUID{redriven.Key}, p.at())
		require.NoError(t, err)
		require.NoError(t, p.db.Transaction(func(tx *gorm.DB) error {
			return inbox.Expect(tx, consumer, "orders", []uuid.UUID{expected.Key}, p.at())
		}))

		all := []*inbox.Message{handled, failed, rejected, redriven, expected, absent}
		found := ask([]string{"orders"}, all...)
		require.Len(t, found, len(all)-1)
		for m, want := range map[*inbox.Message]inbox.Progress{
			handled:  {Status: "handled", Type: "Test.Happened.v1"},
			failed:   {Status: "failed", Type: "Test.Happened.v1", Attempts: 1, LastError: inbox.LastError{Message: "boom"}},
			rejected: {Status: "dead_letter", Type: "Test.Happened.v1", Attempts: 1, LastError: inbox.LastError{Message: "no such order"}},
			redriven: {Status: "redriven", Type: "Test.Happened.v1", LastError: inbox.LastError{Message: "no such order"}},
			expected: {Status: "expected"},
		} {
			got := found[m.Key]
			require.WithinDuration(t, time.Now(), got.At, time.Hour)
			got.At, got.LastError.Class = time.Time{}, ""
			want.Key, want.Source = m.Key, "orders"
			require.Equal(t, want, got)
		}
		require.Equal(t, 0, p.done(failed))
		others, err := inbox.WhatBecame(t.Context(), p.db, "another", []uuid.UUID{handled.Key}, nil, p.at())
		require.NoError(t, err)
		require.Empty(t, others)

		if p.db.Name() == "sqlite" { // who has the file open for writing does not tell which message it is
			return
		}
		for _, m := range []*inbox.Message{absent, failed, redriven} {
			before := ask([]string{"orders"}, m)[m.Key]
			entered, leave, left := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			go func() {
				_, err := p.handleWith(func(*gorm.DB) error {
					close(entered)
					<-leave
					return inbox.Unavailable(errors.New("later"))
				}, m)
				left <- err
			}()
			<-entered
			got := ask([]string{"orders", strings.Repeat("x", 300)}, m)[m.Key]
			require.Equal(t, "running", got.Status)
			require.True(t, got.At.IsZero())
			close(leave)
			require.Error(t, <-left)
			require.Equal(t, before, ask([]string{"orders"}, m)[m.Key], "the look has changed nothing")
		}
	})
}

func TestWhatBecameRefuses(t *testing.T) {
	t.Parallel()
	p := on(t, "sqlite")
	_, err := inbox.WhatBecame(t.Context(), p.db, "", []uuid.UUID{uuid.New()}, nil, p.at())
	require.ErrorContains(t, err, "the consumer has no name")
	_, err = inbox.WhatBecame(t.Context(), p.db, consumer, make([]uuid.UUID, 1001), nil, p.at())
	require.ErrorContains(t, err, "ask for no more than 1000")
	_, err = inbox.WhatBecame(t.Context(), p.db, consumer, []uuid.UUID{uuid.New()}, nil, inbox.WithTable("absent"))
	require.ErrorContains(t, err, "inbox.Migrate")
	found, err := inbox.WhatBecame(t.Context(), p.db, consumer, nil, nil, p.at())
	require.NoError(t, err)
	require.Empty(t, found)
}

// Of which types a consumer takes messages, its inbox says by what was handled.
func TestHandledTypes(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		types := func(consumer string) []string {
			found, err := inbox.HandledTypes(t.Context(), p.db, consumer, p.at())
			require.NoError(t, err)
			return found
		}
		require.Empty(t, types(consumer))
		_, err := p.handleWith(func(*gorm.DB) error { return errors.New("boom") }, p.message())
		require.Error(t, err)
		require.Empty(t, types(consumer), "it has handled none")
		for range 2 {
			_, err = p.handle(p.message())
			require.NoError(t, err)
		}
		require.Equal(t, []string{"Test.Happened.v1"}, types(consumer))
		require.Empty(t, types("another"))
		_, err = inbox.HandledTypes(t.Context(), p.db, "", p.at())
		require.Error(t, err)
	})
}
