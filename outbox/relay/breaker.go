package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/gorm-fanout/fanout/internal/failure"
	"github.com/gorm-fanout/fanout/outbox"
)

// BreakerState says whether messages are sent.
type BreakerState string

// The states of a breaker.
const (
	BreakerClosed   BreakerState = "closed"    // all are
	BreakerOpen     BreakerState = "open"      // none is
	BreakerHalfOpen BreakerState = "half-open" // a few are, to try
)

// breaker is the circuit breaker of one scope: of a broker as a whole, or of one of its
// destinations. When it opens and closes, that one worker at a time tries, and that what began
// before an outage says nothing about its end, is gobreaker's; how long to wait, and the waiting,
// is ours.
type breaker struct {
	policy  outbox.Breaker
	machine *gobreaker.TwoStepCircuitBreaker[struct{}] // never called with mu held
	ending  sync.Mutex                                 // one try ends at a time, so that the news goes to the one whose end made it
	failing failure.Standing                           // from when it opens until it closes

	mu       sync.Mutex
	openings int       // without a success in between
	until    time.Time // no worker tries before
	open     bool      // or half-open
	changed  chan struct{}
}

// errNoOutcome ends a pass with which nothing was tried.
var errNoOutcome = errors.New("outbox: nothing was tried")

func newBreaker(policy outbox.Breaker) *breaker {
	b := &breaker{policy: policy, changed: make(chan struct{})}
	b.machine = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:   1,
		Timeout:       1, // at once: until says when
		ReadyToTrip:   func(c gobreaker.Counts) bool { return int64(c.ConsecutiveFailures) >= int64(policy.TripAfter) },
		IsExcluded:    func(err error) bool { return errors.Is(err, errNoOutcome) },
		OnStateChange: b.turn,
	})
	return b
}

// turn follows the machine, which holds its lock.
func (b *breaker) turn(_ string, _, to gobreaker.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch to {
	case gobreaker.StateOpen:
		delay := b.delay()
		b.openings++
		b.open, b.until = true, time.Now().Add(delay-time.Duration(rand.Int64N(int64(delay)/4+1)))
	case gobreaker.StateClosed:
		b.openings, b.open, b.until = 0, false, time.Time{}
	case gobreaker.StateHalfOpen:
	}
	b.broadcast()
}

// delay is how long the next opening lasts.
func (b *breaker) delay() time.Duration {
	if b.openings >= 40 || b.policy.MinDelay > b.policy.MaxDelay>>b.openings {
		return b.policy.MaxDelay
	}
	return b.policy.MinDelay << b.openings
}

// A pass allows one try. Its zero value is one whose outcome is not awaited.
type pass struct {
	breaker *breaker
	done    func(error)
	// probe is true where the breaker is half-open: send a few messages only.
	probe bool
}

// try asks for a pass without waiting.
func (b *breaker) try() (p pass, ok bool) {
	if early, _ := b.early(); early {
		return pass{}, false
	}
	done, err := b.machine.Allow()
	if err != nil {
		return pass{}, false
	}
	early, open := b.early()
	if early { // it has opened meanwhile, and the machine knows no time
		done(errNoOutcome)
		return pass{}, false
	}
	return pass{breaker: b, done: done, probe: open}, true
}

// early reports whether it is too early to try, and whether the breaker is open or half-open.
func (b *breaker) early() (early, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Before(b.until), b.open
}

// enter waits for a pass. Its end must be told. The error is that of ctx.
func (b *breaker) enter(ctx context.Context) (pass, error) {
	for {
		b.mu.Lock()
		wait, changed := time.Until(b.until), b.changed
		b.mu.Unlock()
		if err := ctx.Err(); err != nil {
			return pass{}, err
		}
		if wait <= 0 {
			if p, ok := b.try(); ok {
				return p, nil
			}
			wait = b.policy.MaxDelay // a worker is trying; its answer wakes us
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// end tells how a try ended: nil, errNoOutcome, or the cause of an outage. It returns true when that
// is to be reported: the breaker has opened or closed, or it is open by now for a cause of another
// class. Ending a pass twice does nothing.
func (p *pass) end(outcome error) (news bool) {
	if p.done == nil {
		return false
	}
	b := p.breaker
	b.ending.Lock()
	defer b.ending.Unlock()
	p.done(outcome)
	p.done = nil
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broadcast()
	switch {
	case !b.open:
		_, news = b.failing.Over()
	case outcome != nil && !errors.Is(outcome, errNoOutcome):
		news = b.failing.Failed(outcome)
	}
	return news
}

// closed reports whether messages are sent without restraint.
func (b *breaker) closed() bool { return b.state() == BreakerClosed }

func (b *breaker) state() BreakerState {
	switch early, open := b.early(); {
	case !open:
		return BreakerClosed
	case early:
		return BreakerOpen
	default:
		return BreakerHalfOpen
	}
}

// unused reports whether no try was made for so long that no message can be waiting: maxWait
// bounds how long they do.
func (b *breaker) unused() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open && time.Since(b.until) > 2*max(maxWait, b.policy.MaxDelay)
}

// pause is how long messages wait that cannot be sent now: until the next try, and some of them a
// little longer, so that they do not all come back for it.
func (b *breaker) pause() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	wait := max(time.Until(b.until), b.policy.MinDelay)
	return wait + time.Duration(rand.Int64N(int64(wait)/4+1))
}

// afterTry is how long a message waits that may be to blame for an outage: longer than until the
// next try, which so uses others; but not by much, for where the broker is back by then the message
// was not to blame, and its key waits for nothing else. The next opening lasts for no more than
// delay, and a claim follows at once.
func (b *breaker) afterTry() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	delay := b.delay()
	return delay + min(delay, trySlack)
}

// trySlack is how much longer than until the next try such a message waits: the claim of that try
// must be made before, on a slow database, too.
const trySlack = 2 * time.Second

func (b *breaker) broadcast() {
	close(b.changed)
	b.changed = make(chan struct{})
}
