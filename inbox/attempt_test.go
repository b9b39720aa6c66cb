package inbox

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
)

// conflict is how pgx says that a transaction lost.
type conflict struct{}

func (conflict) Error() string    { return "could not serialize access" }
func (conflict) SQLState() string { return "40001" }

func TestAttempts(t *testing.T) {
	t.Parallel()
	failure := errors.New("no stock")
	stopped, stop := context.WithCancel(context.Background())
	stop()
	for name, tt := range map[string]struct {
		ctx     context.Context
		past    Past
		outcome Outcome
		err     error
		want    Attempt
	}{
		"handled":   {outcome: Handled, want: Attempt{Outcome: Handled}},
		"duplicate": {outcome: Duplicate, past: Past{Failures: 2, Setbacks: 1}, want: Attempt{Outcome: Duplicate, Past: Past{Failures: 2, Setbacks: 1}}},
		"first failure": {
			outcome: Handled, err: failure,
			want: Attempt{Err: failure, Past: Past{Failures: 1}, Retry: time.Second},
		},
		"a failure ends setbacks":   {past: Past{Failures: 1, Setbacks: 7}, err: failure, want: Attempt{Err: failure, Past: Past{Failures: 2}, Retry: 2 * time.Second}},
		"last failure":              {past: Past{Failures: 9}, err: failure, want: Attempt{Err: failure, Past: Past{Failures: 10}, Abandon: true}},
		"permanent":                 {err: Permanent(failure), want: Attempt{Err: Permanent(failure), Past: Past{Failures: 1}, Abandon: true}},
		"the handler's own counter": {err: &FailedError{Attempts: 4, Max: 5, Err: failure}, want: Attempt{Err: &FailedError{4, 5, failure}, Past: Past{Failures: 1}, Retry: 8 * time.Second}},
		"unavailable":               {past: Past{Failures: 9, Setbacks: 2}, err: Unavailable(failure), want: Attempt{Err: Unavailable(failure), Past: Past{Failures: 9, Setbacks: 3}, Retry: 4 * time.Second}},
		"lost a race":               {past: Past{Failures: 9}, err: fmt.Errorf("save: %w", conflict{}), want: Attempt{Err: fmt.Errorf("save: %w", conflict{}), Past: Past{Failures: 9, Setbacks: 1}, Retry: time.Second}},
		"the consumer stops":        {ctx: stopped, past: Past{Failures: 9}, err: context.Canceled, want: Attempt{Err: context.Canceled, Past: Past{Failures: 9, Setbacks: 1}, Retry: time.Second}},
		"permanent beats stopping":  {err: errors.Join(driver.ErrBadConn, Permanent(failure)), want: Attempt{Err: errors.Join(driver.ErrBadConn, Permanent(failure)), Past: Past{Failures: 1}, Abandon: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := tt.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			m := &Message{ID: "7", Envelope: &envelope.Message{}}
			r := &Runner{
				Handler: HandlerFunc(func(context.Context, *Message) (Outcome, error) { return tt.outcome, tt.err }),
				Retry:   Retry{Jitter: -1}, Log: slog.New(slog.DiscardHandler),
			}
			a := r.Attempt(ctx, m, tt.past)
			a.Took, tt.want.Message = 0, m
			assert.Equal(t, &tt.want, a)
			assert.Equal(t, tt.err == nil, a.Done())
		})
	}
}

// causeError is an error whose nil pointer, returned as an error, is none: it panics where it is read.
type causeError struct{ cause error }

func (e *causeError) Error() string { return e.cause.Error() }
func (e *causeError) Unwrap() error { return e.cause }

// A nil pointer that is returned as an error costs its message an attempt, and the process nothing:
// whoever reads the error later finds one that says what is wrong.
func TestNilPointersAsErrors(t *testing.T) {
	t.Parallel()
	var failed *causeError
	r := Runner{Log: slog.New(slog.DiscardHandler), Handler: HandlerFunc(func(context.Context, *Message) (Outcome, error) { return "", failed })}
	a := r.Attempt(t.Context(), &Message{}, Past{})
	assert.Equal(t, 1, a.Failures)
	require.ErrorContains(t, a.Err, "*inbox.causeError")
	require.ErrorContains(t, a.Err, "return nil itself")

	_, err := Decoder(func(*RawMessage) (*envelope.CloudEvent, error) { return nil, failed }).Decode(&RawMessage{})
	require.ErrorContains(t, err, "*inbox.causeError")
	assert.False(t, IsUnavailable(err))
}

// A handler that ends its goroutine fails like any other: no one waits for it forever.
func TestGoexitIsAFailure(t *testing.T) {
	t.Parallel()
	r := &Runner{Handler: HandlerFunc(func(context.Context, *Message) (Outcome, error) { runtime.Goexit(); return Handled, nil }), Log: slog.New(slog.DiscardHandler)}
	var a *Attempt
	done := make(chan struct{})
	go func() {
		defer close(done)
		a = r.Attempt(t.Context(), &Message{}, Past{})
	}()
	<-done
	require.NotNil(t, a)
	require.ErrorContains(t, a.Err, "the handler has ended its goroutine")
	assert.Equal(t, Past{Failures: 1}, a.Past)
	assert.Empty(t, a.Outcome)
}

// A handler that hangs is told that its time is over, and that counts; the end of the consumer does
// not.
func TestTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &Runner{
			Handler: HandlerFunc(func(ctx context.Context, _ *Message) (Outcome, error) {
				<-ctx.Done()
				return "", context.Cause(ctx)
			}),
			Timeout: 3 * time.Second, Log: slog.New(slog.DiscardHandler),
		}
		a := r.Attempt(t.Context(), &Message{}, Past{})
		assert.EqualError(t, a.Err, "inbox: the handler took longer than 3s")
		assert.Equal(t, 3*time.Second, a.Took)
		assert.Equal(t, Past{Failures: 1}, a.Past)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		a = r.Attempt(ctx, &Message{}, Past{})
		assert.Equal(t, Past{Setbacks: 1}, a.Past)
	})
}

// told notes what an observer is told.
type told struct {
	handler context.Context
	ended   []*Attempt
}

type toldKey struct{}

func (o *told) Begin(ctx context.Context, m *Message) context.Context {
	return context.WithValue(ctx, toldKey{}, m.ID)
}

func (o *told) End(ctx context.Context, a *Attempt) {
	o.handler, o.ended = ctx, append(o.ended, a)
}
func (o *told) Forwarded(context.Context, *Message, error) {}

func TestObserverAndLog(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	o, outcome := &told{}, DeadLettered
	var failure error
	r := &Runner{
		Handler: HandlerFunc(func(ctx context.Context, m *Message) (Outcome, error) {
			assert.Equal(t, m.ID, ctx.Value(toldKey{}), "the observer's context is the handler's")
			return outcome, failure
		}),
		Retry: Retry{Jitter: -1, MaxAttempts: 2}, Observer: o,
		Log: slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})),
	}
	m := &Message{ID: "7", Consumer: "billing", Source: "ordering::order", Type: "Ordering.OrderPlaced.v1"}
	r.Attempt(t.Context(), m, Past{})
	failure = errors.New("no stock")
	a := r.Attempt(t.Context(), m, Past{})
	r.Attempt(t.Context(), m, a.Past)
	failure, outcome = nil, Handled
	r.Attempt(t.Context(), m, Past{})
	about := "consumer=billing source=ordering::order message_id=7 type=Ordering.OrderPlaced.v1"
	assert.Equal(t, "level=ERROR msg=\"message dead-lettered\" "+about+" error=<nil>\n"+
		"level=WARN msg=\"message failed\" "+about+" attempts=1 retry_in=1s error=\"no stock\"\n"+
		"level=ERROR msg=\"message abandoned\" "+about+" attempts=2 error=\"no stock\"\n", text.String())
	assert.Len(t, o.ended, 4)
	assert.Equal(t, "7", o.handler.Value(toldKey{}))
}

// overdueNotes is an observer of handlers that go on.
type overdueNotes struct{ after []time.Duration }

func (*overdueNotes) Begin(ctx context.Context, _ *Message) context.Context { return ctx }
func (*overdueNotes) End(context.Context, *Attempt)                         {}
func (*overdueNotes) Forwarded(context.Context, *Message, error)            {}

func (o *overdueNotes) Overdue(_ context.Context, _ *Message, after time.Duration) {
	o.after = append(o.after, after)
}

// A handler that goes on although its context has ended is named in the log, at once and then every
// minute, and the consumer and the observer are told.
func TestOverdueHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		var told []bool
		notes := &overdueNotes{}
		r := &Runner{
			Handler: HandlerFunc(func(context.Context, *Message) (Outcome, error) {
				time.Sleep(3 * time.Minute) // of the bubble's time
				return Handled, nil
			}),
			Timeout: 10 * time.Second, Observer: notes, Log: slog.New(slog.NewTextHandler(&text, nil)), Overdue: func(goesOn bool) { told = append(told, goesOn) },
		}
		a := r.Attempt(t.Context(), &Message{Consumer: "billing", ID: "7", Type: "T.v1"}, Past{})
		require.True(t, a.Done())
		assert.Equal(t, []bool{true, false}, told)
		assert.Equal(t, []time.Duration{11 * time.Second}, notes.after)
		assert.Equal(t, 3, strings.Count(text.String(), "handler overdue"))
		assert.Contains(t, text.String(), "message_id=7 type=T.v1 after=11s timeout=10s")
		assert.Contains(t, text.String(), "level=INFO msg=\"overdue handler returned\" consumer=billing")
	})
}

// The longest timeout there is ends no handler, and finds none overdue.
func TestNoTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &Runner{
			Handler: HandlerFunc(func(ctx context.Context, _ *Message) (Outcome, error) {
				time.Sleep(time.Hour)
				return Handled, ctx.Err()
			}),
			Timeout: math.MaxInt64, Overdue: func(bool) { t.Error("overdue") }, Log: slog.New(slog.DiscardHandler),
		}
		require.NoError(t, r.Attempt(t.Context(), &Message{}, Past{}).Err)
	})
}

// rude is an observer that panics in all its methods, or returns no context.
type rude struct{ panics bool }

func (o rude) Begin(context.Context, *Message) context.Context {
	o.panic()
	return nil
}
func (o rude) End(context.Context, *Attempt)                    { o.panic() }
func (o rude) Forwarded(context.Context, *Message, error)       { o.panic() }
func (o rude) Overdue(context.Context, *Message, time.Duration) { o.panic() }
func (o rude) panic() {
	if o.panics {
		panic("no")
	}
}

// What an observer does wrong costs the message and the process nothing, and the log says so.
func TestObserverPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for panics, lines := range map[bool]int{true: 4, false: 0} {
			var log bytes.Buffer
			r := &Runner{Observer: rude{panics}, Log: slog.New(slog.NewTextHandler(&log, nil)), Handler: HandlerFunc(func(_ context.Context, _ *Message) (Outcome, error) {
				time.Sleep(time.Hour)
				return Handled, nil
			})}
			a := r.Attempt(t.Context(), &Message{}, Past{})
			require.NoError(t, a.Err)
			r.Forwarded(t.Context(), &Message{}, errors.New("why"))
			assert.Equal(t, lines, strings.Count(log.String(), "observer panicked"))
		}
	})
}
