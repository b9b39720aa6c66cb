package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
)

var errBoom = errors.New("boom")

// A message is handled once, and its copies are duplicates, for each consumer.
func TestHandle(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		m := p.message()
		outcome, err := p.handle(m)
		require.NoError(t, err)
		require.Equal(t, inbox.Handled, outcome)
		require.Equal(t, 1, p.done(m))
		for range 2 {
			outcome, err = p.handle(m)
			require.NoError(t, err)
			require.Equal(t, inbox.Duplicate, outcome)
		}
		require.Equal(t, 1, p.done(m))
		require.Equal(t, &row{Status: "handled", Type: "Test.Happened.v1", Source: "orders"}, p.row(m), "and no payload")

		other := *m
		other.Consumer = "shipping"
		outcome, err = p.handle(&other)
		require.NoError(t, err)
		require.Equal(t, inbox.Handled, outcome)
		require.Equal(t, 2, p.done(m))
	})
}

// Failures roll back, are counted and stay retryable; the last one rejects the message with all
// that it takes to handle it later.
func TestHandleFails(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		m := p.message()
		m.MaxAttempts = 3
		failing := func(tx *gorm.DB) error { return errors.Join(p.effect(m)(tx), errBoom) }
		for attempt := 1; attempt <= 2; attempt++ {
			outcome, err := p.handleWith(failing, m)
			require.Empty(t, outcome)
			var failed *inbox.FailedError
			require.ErrorAs(t, err, &failed)
			require.ErrorIs(t, err, errBoom)
			require.Equal(t, attempt, failed.Attempts)
			require.Equal(t, 3, failed.Max)
			require.Zero(t, p.done(m))
			require.Equal(t, &row{
				Status: "failed", Attempts: attempt, Type: "Test.Happened.v1", Source: "orders", LastError: `{"class":"error","message":"boom"}`,
			}, p.row(m))
		}
		for range 2 {
			outcome, err := p.handleWith(failing, m)
			require.NoError(t, err)
			require.Equal(t, inbox.DeadLettered, outcome)
			require.Zero(t, p.done(m))
			require.Equal(t, &row{
				Status: "dead_letter", Attempts: 3, Type: "Test.Happened.v1", Source: "orders", LastError: `{"class":"error","message":"boom"}`,
				Attributes: `{"tenant":"t1"}`, Payload: m.Payload,
			}, p.row(m))
		}
	})
}

// What the error says of itself decides whether the attempt counts.
func TestHandleJudges(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		t.Run("permanent", func(t *testing.T) {
			m := p.message()
			outcome, err := p.handleWith(func(*gorm.DB) error { return fmt.Errorf("no: %w", inbox.Permanent(errBoom)) }, m)
			require.NoError(t, err)
			require.Equal(t, inbox.DeadLettered, outcome)
			require.Equal(t, "dead_letter", p.row(m).Status)
			require.JSONEq(t, `{"class":"permanent","message":"no: boom"}`, p.row(m).LastError)
		})
		t.Run("panic", func(t *testing.T) {
			m := p.message()
			_, err := p.handleWith(func(tx *gorm.DB) error { _ = p.effect(m)(tx); panic("oh") }, m)
			var panicked *inbox.PanicError
			require.ErrorAs(t, err, &panicked)
			require.Equal(t, "oh", panicked.Value)
			require.Contains(t, string(panicked.Stack), "handle_test.go")
			require.Zero(t, p.done(m))
			require.Equal(t, 1, p.row(m).Attempts)
			require.JSONEq(t, `{"class":"panic","message":"inbox: the handler panicked: oh"}`, p.row(m).LastError)
		})
		t.Run("unavailable", func(t *testing.T) {
			m := p.message()
			_, err := p.handleWith(func(tx *gorm.DB) error { return errors.Join(p.effect(m)(tx), inbox.Unavailable(errBoom)) }, m)
			require.True(t, inbox.IsUnavailable(err))
			require.ErrorIs(t, err, errBoom)
			require.Nil(t, p.row(m))
			require.Zero(t, p.done(m))
		})
		t.Run("cancelled", func(t *testing.T) {
			m := p.message()
			ctx, cancel := context.WithCancelCause(t.Context())
			stop := errors.New("the consumer stops")
			_, err := inbox.Handle(ctx, p.db, m, func(tx *gorm.DB) error { cancel(stop); return p.effect(m)(tx) }, p.at())
			require.True(t, inbox.IsUnavailable(err), "%v", err)
			require.ErrorIs(t, err, stop)
			require.Nil(t, p.row(m))
			require.Zero(t, p.done(m))
		})
		t.Run("took too long", func(t *testing.T) {
			m := p.message()
			tooLong := errors.New("too long")
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, tooLong)
			defer cancel()
			_, err := inbox.Handle(ctx, p.db, m, func(tx *gorm.DB) error { <-tx.Statement.Context.Done(); return tx.Statement.Context.Err() }, p.at())
			var failed *inbox.FailedError
			require.ErrorAs(t, err, &failed)
			require.ErrorIs(t, err, tooLong)
			require.Equal(t, 1, p.row(m).Attempts)
			require.JSONEq(t, `{"class":"timeout","message":"too long\ncontext deadline exceeded"}`, p.row(m).LastError)
		})
		t.Run("not begun", func(t *testing.T) {
			m := p.message()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := inbox.Handle(ctx, p.db, m, p.effect(m), p.at())
			require.True(t, inbox.IsUnavailable(err), "%v", err)
			require.ErrorIs(t, err, context.Canceled)
			_, err = inbox.Handle(t.Context(), p.db, m, p.effect(m), inbox.WithTable("missing"))
			require.True(t, inbox.IsUnavailable(err), "%v", err)
			require.ErrorContains(t, err, "inbox: note the message in missing: ")
			require.ErrorContains(t, err, "run inbox.Migrate")
			require.Nil(t, p.row(m))
		})
	})
}

// A copy waits for the first one: it is a duplicate when that commits, and has its own try when
// that rolls back.
func TestCopiesWait(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		for _, fails := range []bool{false, true} {
			m := p.message()
			entered, leave := make(chan struct{}), make(chan struct{})
			type answer struct {
				outcome inbox.Outcome
				err     error
			}
			first, second := make(chan answer, 1), make(chan answer, 1)
			go func() {
				outcome, err := p.handleWith(func(tx *gorm.DB) error {
					close(entered)
					<-leave
					if fails {
						return errBoom
					}
					return p.effect(m)(tx)
				}, m)
				first <- answer{outcome, err}
			}()
			<-entered
			go func() {
				outcome, err := p.handle(m)
				second <- answer{outcome, err}
			}()
			p.waits()
			select {
			case a := <-second:
				t.Fatalf("the copy has not waited: %v", a)
			default:
			}
			close(leave)
			one, two := <-first, <-second
			require.NoError(t, two.err)
			if fails {
				// The copy may have been handled before the failure of the first was counted.
				if one.err == nil {
					require.Equal(t, inbox.Duplicate, one.outcome)
				} else {
					require.ErrorIs(t, one.err, errBoom)
				}
				require.Equal(t, inbox.Handled, two.outcome)
			} else {
				require.NoError(t, one.err)
				require.Equal(t, inbox.Handled, one.outcome)
				require.Equal(t, inbox.Duplicate, two.outcome)
			}
			require.Equal(t, 1, p.done(m))
			require.Equal(t, "handled", p.row(m).Status)
		}
	})
}

// Messages of a consumer do not wait for each other: all of them are in their handlers at once, and
// so are those who expect tokens, also where the table is empty.
func TestOthersDoNotWait(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		if p.db.Name() == "sqlite" {
			t.Skip("writers take turns on this database")
		}
		const n = 5
		var inside, done sync.WaitGroup
		inside.Add(2 * n)
		together := func() {
			inside.Done()
			inside.Wait()
		}
		for range n {
			m := p.message()
			done.Go(func() {
				outcome, err := p.handleWith(func(*gorm.DB) error {
					together()
					return nil
				}, m)
				assert.NoError(t, err)
				assert.Equal(t, inbox.Handled, outcome)
			})
			done.Go(func() {
				assert.NoError(t, p.db.Transaction(func(tx *gorm.DB) error {
					for range 2 {
						if err := inbox.Expect(tx, consumer, "orders", []uuid.UUID{uuid.Must(uuid.NewV7()), uuid.New()}, p.at()); err != nil {
							return err
						}
					}
					together()
					return nil
				}))
			})
		}
		done.Wait()
		require.Equal(t, n+4*n, p.rows())
	})
}

// A copy that somebody's transaction has found handled keeps no other message waiting.
func TestCopiesKeepNobodyWaiting(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		if p.db.Name() == "sqlite" {
			t.Skip("writers take turns on this database")
		}
		before, m, after := p.message(), p.message(), p.message()
		_, err := p.handle(m)
		require.NoError(t, err)
		tx := p.db.Begin()
		defer tx.Rollback()
		outcome, err := inbox.Handle(t.Context(), tx, m, p.effect(m), p.at())
		require.NoError(t, err)
		require.Equal(t, inbox.Duplicate, outcome)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, other := range []*inbox.Message{before, after} {
			outcome, err = inbox.Handle(ctx, p.db, other, p.effect(other), p.at())
			require.NoError(t, err)
			require.Equal(t, inbox.Handled, outcome)
		}
	})
}

// waits returns when a session waits for a lock, where the database tells, and otherwise when there
// was time for it.
func (p *place) waits() {
	p.t.Helper()
	if p.db.Name() != "postgres" {
		for range 100 { // a copy that does not wait would have been handled by then
			p.count("SELECT count(*) FROM " + p.effects())
		}
		return
	}
	require.Eventually(p.t, func() bool {
		return p.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") > 0
	}, 10*time.Second, time.Millisecond)
}

func TestHandleRefuses(t *testing.T) {
	t.Parallel()
	p := on(t, "sqlite")
	good := p.message()
	for name, test := range map[string]struct {
		change    func(m *inbox.Message)
		options   []inbox.Option
		db        *gorm.DB
		permanent bool
		want      string
	}{
		"no consumer":    {change: func(m *inbox.Message) { m.Consumer = "" }, want: "the consumer has no name"},
		"long consumer":  {change: func(m *inbox.Message) { m.Consumer = strings.Repeat("ü", 201) }, want: "has 201 characters: give it at most 200"},
		"emoji":          {change: func(m *inbox.Message) { m.Consumer = strings.Repeat("🧾", 101) }, want: "has 202 characters: give it at most 200"},
		"space":          {change: func(m *inbox.Message) { m.Consumer = "a " }, want: "no space at its ends"},
		"NUL":            {change: func(m *inbox.Message) { m.Consumer = "a\x00b" }, want: "without NUL"},
		"no key":         {change: func(m *inbox.Message) { m.Key = uuid.Nil }, permanent: true, want: "has no key"},
		"no envelope":    {change: func(m *inbox.Message) { m.Envelope = nil }, permanent: true, want: "has no envelope"},
		"table":          {options: []inbox.Option{inbox.WithTable("x; DROP TABLE y")}, want: "use letters, digits and underscores"},
		"attempts":       {change: func(m *inbox.Message) { m.MaxAttempts = -1 }, want: "Message.MaxAttempts is -1: give at least 1, or 0 for 10"},
		"dry run":        {db: p.db.Session(&gorm.Session{DryRun: true}), want: "DryRun"},
		"failed already": {db: &gorm.DB{Config: p.db.Config, Statement: p.db.Statement, Error: errBoom}, want: "has an error already: boom"},
		"unopened":       {db: &gorm.DB{}, want: "use gorm.Open"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := *good
			if test.change != nil {
				test.change(&m)
			}
			db := p.db
			if test.db != nil {
				db = test.db
			}
			_, err := inbox.Handle(t.Context(), db, &m, func(*gorm.DB) error { panic("called") }, append([]inbox.Option{p.at()}, test.options...)...)
			require.ErrorContains(t, err, test.want)
			assert.Equal(t, test.permanent, inbox.IsPermanent(err))
			assert.Equal(t, !test.permanent, inbox.IsUnavailable(err))
		})
	}
	_, err := inbox.Handle(t.Context(), p.db, nil, nil)
	require.ErrorContains(t, err, "the message is nil")
	_, err = p.handleWith(nil, good)
	require.ErrorContains(t, err, "the function that handles the message is nil")
	require.True(t, inbox.IsUnavailable(err))
	require.Nil(t, p.row(good))

	m := *good
	m.Consumer = strings.Repeat("ü", 200)
	m.Type, m.Source = "aa\x00b\xff"+strings.Repeat("é", 600), ""
	outcome, err := p.handle(&m)
	require.NoError(t, err)
	require.Equal(t, inbox.Handled, outcome)
	require.Len(t, p.row(&m).Type, 511, "cut at the end of a character")
	require.Empty(t, p.row(&m).Source)
}

// A consumer's timeout counts, in the table and for the consumer; the end of the consumer does not.
func TestHandleUnderARunner(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		m := p.message()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var during func(tx *gorm.DB) error
		runner := &inbox.Runner{Timeout: 500 * time.Millisecond, Log: slog.New(slog.DiscardHandler), Handler: inbox.HandlerFunc(
			func(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
				return inbox.Handle(ctx, p.db, m, during, p.at())
			})}
		during = func(tx *gorm.DB) error { <-tx.Statement.Context.Done(); return errBoom }
		attempt := runner.Attempt(ctx, m, inbox.Past{})
		require.Equal(t, inbox.Past{Failures: 1}, attempt.Past)
		require.ErrorContains(t, attempt.Err, "attempt 1 of 10: inbox: the handler took longer than 500ms")
		require.Equal(t, 1, p.row(m).Attempts)
		require.Contains(t, p.row(m).LastError, `"class":"timeout"`)

		runner.Timeout = time.Minute
		during = func(*gorm.DB) error { stop(); return errBoom }
		attempt = runner.Attempt(ctx, m, attempt.Past)
		require.Equal(t, inbox.Past{Failures: 1, Setbacks: 1}, attempt.Past)
		require.Equal(t, 1, p.row(m).Attempts)

		attempt = runner.Attempt(t.Context(), m, attempt.Past)
		require.Equal(t, 2, attempt.Failures)
		require.Equal(t, 2, p.row(m).Attempts)
	})
}

// The table and the consumer have one budget of attempts: whoever of the two has counted more, the
// dead letter is the table's, unless the caller's transaction takes it back.
func TestOneBudgetOfAttempts(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		failing := func(*gorm.DB) error { return errBoom }
		handler := func(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
			return inbox.Handle(ctx, p.db, m, failing, p.at())
		}
		runner := func(handler inbox.HandlerFunc) *inbox.Runner {
			return &inbox.Runner{Handler: handler, Retry: inbox.Retry{MaxAttempts: 3}, Log: slog.New(slog.DiscardHandler)}
		}
		dead := func(m *inbox.Message, a *inbox.Attempt, attempts int) {
			t.Helper()
			require.NoError(t, a.Err)
			require.Equal(t, inbox.DeadLettered, a.Outcome)
			require.ErrorIs(t, a.Why, errBoom)
			require.Equal(t, "dead_letter", p.row(m).Status)
			require.Equal(t, attempts, p.row(m).Attempts)
		}

		one, other := p.message(), runner(handler)
		a := runner(handler).Attempt(t.Context(), one, inbox.Past{})
		a = runner(handler).Attempt(t.Context(), one, a.Past)
		require.ErrorContains(t, a.Err, "attempt 2 of 3")
		require.False(t, a.Abandon)
		dead(one, other.Attempt(t.Context(), one, inbox.Past{}), 3) // in a process that has never seen it

		crashed := p.message()
		dead(crashed, runner(handler).Attempt(t.Context(), crashed, inbox.Past{Failures: 2}), 1)

		// The count is rolled back with the caller's transaction; a dead letter is kept if that commits.
		var after error
		joined := runner(func(ctx context.Context, m *inbox.Message) (outcome inbox.Outcome, err error) {
			err = p.db.WithContext(ctx).Transaction(func(tx *gorm.DB) (err error) {
				outcome, err = inbox.Handle(ctx, tx, m, failing, p.at())
				return errors.Join(err, after)
			})
			return outcome, err
		})
		for _, after = range []error{nil, errors.New("the caller's own")} {
			m := p.message()
			a := joined.Attempt(t.Context(), m, joined.Attempt(t.Context(), m, inbox.Past{}).Past)
			require.ErrorContains(t, a.Err, "attempt 1 of 3")
			require.Nil(t, p.row(m))
			a = joined.Attempt(t.Context(), m, a.Past)
			if after == nil {
				dead(m, a, 1)
				continue
			}
			require.ErrorIs(t, a.Err, after)
			require.True(t, a.Abandon, "the consumer forwards it to the dead letters of the broker")
			require.Nil(t, p.row(m))
		}
	})
}

// A handler that panics with nil has failed as well, also where GODEBUG has it as before Go 1.21: its message is not
// handled, and a decoder that does has skipped nothing.
func TestHandlePanicsWithNil(t *testing.T) { //nolint:paralleltest // it sets the environment
	t.Setenv("GODEBUG", "panicnil=1")
	var none any
	p := on(t, "sqlite")
	m := p.message()
	_, err := p.handleWith(func(tx *gorm.DB) error { _ = p.effect(m)(tx); panic(none) }, m)
	var panicked *inbox.PanicError
	require.ErrorAs(t, err, &panicked)
	require.Zero(t, p.done(m))
	require.Equal(t, 1, p.row(m).Attempts)

	_, err = inbox.Decoder(func(*inbox.RawMessage) (*envelope.CloudEvent, error) { panic(none) }).Decode(&inbox.RawMessage{})
	require.EqualError(t, err, "inbox: the decoder panicked: <nil>")
}
