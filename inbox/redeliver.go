package inbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/google/uuid"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/uow"
)

// redeliverPage is how many payloads are in memory at a time; maxProblems how many errors an answer
// holds.
const (
	redeliverPage = 50
	maxProblems   = 10
)

// Redeliver hands each message of a consumer that was redriven to a handler, once, from the payload
// of the dead letter, and returns how many are done with, that is handled now or before. It is what
// follows a [Redrive] where the broker does not have the messages any more.
//
// A message that fails stays redriven, for the next Redeliver or the next copy, until it has failed
// [Message].MaxAttempts times since its redrive, or with a [Permanent] error: then it becomes a dead
// letter again. MaxAttempts is [DefaultMaxAttempts], unless the handler sets it, or a [Redeliverer]. A
// payload that cannot be read, also by the decoder of [WithDecoder], becomes a dead letter again at
// once, as does one whose id is recorded with another type than the decoder now says; one that the
// decoder or the handler skips is done with. A message that was kept unread, and that the decoder can
// read now, is handled under its event's key, as its copies are. One that was kept without its payload
// stays redriven until a copy is sent again, which is handled. The errors are joined, the first
// ten of them. One of the handler or the database that is marked by [Unavailable], and the end of ctx, end
// the run; one of the decoder has its message wait.
//
// Several processes may redeliver at once, and copies may come from the broker: where the handler
// uses [Handle], with the same options, each message is handled once. Redeliver itself counts the
// failures and notes the success of other handlers, but it cannot keep two processes from running
// one at the same time: such a handler must bear repetition, or be run from one place.
func Redeliver(ctx context.Context, db *gorm.DB, consumer string, handler Handler, opts ...Option) (int, error) {
	s, statements, err := prepare(db, opts)
	if err == nil {
		err = ValidateConsumer(consumer)
	}
	if err != nil {
		return 0, err
	}
	r := &redelivery{settings: s, sql: statements, db: db, handler: handler}
	filter := DeadLetterFilter{Consumer: consumer, Limit: redeliverPage}
	for {
		page, err := list(ctx, outside(db), statements.redriven, filter)
		if err != nil {
			return r.done, errors.Join(append(r.problems, fmt.Errorf("inbox: list redriven messages of %s: %w", s.table, explain(err)))...)
		}
		for i := range page {
			if ctx.Err() != nil {
				return r.done, errors.Join(append(r.problems, context.Cause(ctx))...)
			}
			if err := r.hand(ctx, &page[i]); err != nil {
				return r.done, errors.Join(append(r.problems, err)...)
			}
		}
		if len(page) < redeliverPage {
			return r.done, errors.Join(r.problems...)
		}
		filter.After = &page[len(page)-1]
	}
}

// redelivery is one call of Redeliver.
type redelivery struct {
	settings

	sql      *statements
	db       *gorm.DB
	handler  Handler
	done     int
	problems []error
}

// hand deals with one message. Its error ends the run.
func (r *redelivery) hand(ctx context.Context, letter *DeadLetter) error {
	if letter.isOmitted() {
		return nil
	}
	m, err := r.read(letter)
	if err != nil {
		return r.unreadable(ctx, letter, m, err)
	}
	elsewhere := m.Key != letter.Key
	outcome, err := r.run(ctx, m)
	var counted *FailedError
	switch {
	case err == nil && outcome == DeadLettered:
		return r.moved(ctx, letter, elsewhere)
	case err == nil:
		r.done++
		return errors.Join(r.finish(ctx, m.Consumer, m.Key, letter.Source), r.moved(ctx, letter, elsewhere))
	case ctx.Err() != nil:
		return errors.Join(context.Cause(ctx), err)
	case IsUnavailable(err):
		return fmt.Errorf("inbox: redeliver message %s: %w", m.Key, err)
	}
	r.problem(m, err)
	if refused(err) { // it would be so each time
		m.Key, m.Type = letter.Key, letter.Type
		return Reject(ctx, r.db, m, err, r.options()...)
	}
	if errors.As(err, &counted) || uow.IsConflict(err) {
		return nil
	}
	if err := m.checkBudget(); err != nil {
		return fmt.Errorf("inbox: redeliver message %s: %w", m.Key, err)
	}
	h := newHandling(r.settings, r.sql, m, r.db)
	switch outcome, err = h.failed(ctx, err); {
	case IsUnavailable(err):
		return err
	case outcome == DeadLettered:
		return r.moved(ctx, letter, elsewhere)
	}
	return nil
}

// read reads a dead letter. The message is never nil. One that was kept unread, for which there is no
// type, is handled under the key that copies of it have, now that it can be read: so there is one
// effect for all of them. With tokens those copies are duplicates, as they have none.
func (r *redelivery) read(letter *DeadLetter) (*Message, error) {
	raw := letter.raw()
	m, err := r.decoder.Decode(raw)
	if err != nil {
		m = &Message{Type: letter.Type, Payload: letter.Payload, Attributes: letter.Attributes}
	}
	if err != nil || letter.Type != "" || r.byToken {
		m.Key = letter.Key
	}
	m.Consumer, m.Source, m.Position, m.Published, m.BrokerKey = letter.Consumer, raw.Source, raw.Position, raw.Published, raw.OrderingKey
	return m, err
}

// moved ends the row of a dead letter whose message is recorded under another key. Where a process dies
// before, the next run finds it a duplicate.
func (r *redelivery) moved(ctx context.Context, letter *DeadLetter, elsewhere bool) error {
	if !elsewhere {
		return nil
	}
	return r.finish(ctx, letter.Consumer, letter.Key, letter.Source)
}

// unreadable deals with a message that cannot be read. Its error ends the run.
func (r *redelivery) unreadable(ctx context.Context, letter *DeadLetter, m *Message, why error) error {
	switch {
	case errors.Is(why, ErrSkip):
		r.done++
		return r.finish(ctx, letter.Consumer, letter.Key, letter.Source)
	case IsUnavailable(why): // it waits, alone
		r.problem(m, why)
		return nil
	}
	r.problem(m, why)
	return Reject(ctx, r.db, m, why, r.options()...)
}

func (r *redelivery) options() []Option {
	return []Option{func(s *settings) { *s = r.settings }}
}

func (r *redelivery) problem(m *Message, err error) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, fmt.Errorf("inbox: redeliver message %s: %w", m.Key, err))
	}
}

// run makes an error of a panic.
func (r *redelivery) run(ctx context.Context, m *Message) (outcome Outcome, err error) {
	returned := false
	defer func() {
		if value := recover(); !returned { // value is nil with GODEBUG=panicnil=1
			err = &PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	outcome, err = r.handler.Handle(ctx, m)
	returned = true
	return outcome, sound(err)
}

// finish notes a message as handled where its handler has not.
func (r *redelivery) finish(ctx context.Context, consumer string, key uuid.UUID, source string) error {
	end := r.sql.finish
	if r.byToken {
		end = r.sql.finishToken
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	if _, err := exec(ctx, outside(r.db), end, consumer, key.String(), source); err != nil {
		return Unavailable(fmt.Errorf("inbox: note that message %s is handled: %w", key, err))
	}
	return nil
}
