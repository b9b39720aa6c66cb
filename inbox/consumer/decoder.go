package consumer

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
)

// decoderPatience is how long a decoder may keep a worker: then its message waits for the answer, and the
// worker does something else. It is divided among decoders that are overdue, as far as leastPatience, so
// that many of them keep the workers from other messages for seconds, and those that answer are awaited.
const (
	decoderPatience = time.Second
	leastPatience   = decoderPatience / 10
)

// An unreadError is a message whose decoder has not been asked yet: a worker does that, as the decoder may
// take its time, or kill the process.
type unreadError struct{ id string } // what the broker knows it by

// Error implements error.
func (*unreadError) Error() string { return "inbox: the decoder has not been asked yet" }

var errDecoderEnded = errors.New("inbox: the decoder has ended its goroutine (runtime.Goexit, or FailNow of a test) instead of returning")

// bounded has a decoder answer in a goroutine of its own: one that blocks or ends its goroutine costs its
// message alone. There is one goroutine for each message at most.
func bounded(d inbox.Decoder) inbox.Decoder {
	if d == nil {
		return nil
	}
	overdue := &atomic.Int64{}
	return func(raw *inbox.RawMessage) (*envelope.CloudEvent, error) {
		a := &answer{done: make(chan struct{}), overdue: overdue}
		go a.ask(d, raw)
		return a.await(max(decoderPatience/time.Duration(1+overdue.Load()), leastPatience))
	}
}

// An answer of a decoder, which may still be to come.
type answer struct {
	done    chan struct{} // closed when the rest is set
	event   *envelope.CloudEvent
	err     error
	state   atomic.Int32
	overdue *atomic.Int64 // answers of the decoder that are so
}

const (
	asked int32 = iota
	isOverdue
	answered
)

func (a *answer) ask(d inbox.Decoder, raw *inbox.RawMessage) {
	defer func() {
		if value := recover(); value != nil {
			a.event, a.err = nil, fmt.Errorf("inbox: the decoder panicked: %v", value)
		}
		if a.state.Swap(answered) == isOverdue {
			a.overdue.Add(-1)
		}
		close(a.done)
	}()
	a.err = errDecoderEnded
	a.event, a.err = d(raw)
}

// await is the answer, or an error that is unavailable and has what it waits for.
func (a *answer) await(patience time.Duration) (*envelope.CloudEvent, error) {
	if a.state.Load() == answered {
		<-a.done
		return a.event, a.err
	}
	if patience > 0 && Within(a.done, patience) {
		return a.event, a.err
	}
	if a.state.CompareAndSwap(asked, isOverdue) {
		a.overdue.Add(1)
	}
	return nil, inbox.Unavailable(&overdueError{a})
}

// overdueError is a decoder that has not answered yet.
type overdueError struct{ answer *answer }

// Error implements error.
func (e *overdueError) Error() string {
	return "inbox: the decoder has not answered yet, and its message waits: give what it calls a timeout"
}

// decoderOf reads a message again: the decoder that was asked and has not answered is not asked twice.
func (s *Session) decoderOf(e *Entry) inbox.Decoder {
	var late *overdueError
	if !errors.As(e.Broken, &late) {
		return s.Decoder
	}
	return func(*inbox.RawMessage) (*envelope.CloudEvent, error) { return late.answer.await(0) }
}
