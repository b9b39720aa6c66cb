package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/driver"
)

const (
	// connectTime bounds how long it takes until a listener listens.
	connectTime = 15 * time.Second
	// probeEvery is how often a listener finds out whether it hears itself: by that a silent connection is told from one on
	// which nothing happens.
	probeEvery = 30 * time.Second
	// probeTime is how long it waits for that.
	probeTime = 5 * time.Second
	// earsRetry and earsLongestRetry bound the time until a connection that was lost is made anew.
	earsRetry        = 250 * time.Millisecond
	earsLongestRetry = 30 * time.Second
	// earsRetryDeaf is how long a listener rests that has connected and hears nothing: that is how the way to the database is
	// built, and will stay so for a while.
	earsRetryDeaf = 5 * time.Minute
)

// errDeaf says that a listener does not hear what it says to itself.
var errDeaf = errors.New("notifications do not arrive: a pooler in transaction mode between here and the database has this effect; " +
	"give the relay a DSN that leads to PostgreSQL itself or to a pooler in session mode, or set notify: false")

// ListenerState says whether a relay hears of the commits of other processes.
type ListenerState string

const (
	// ListenerOff means that it does not try to; polling finds their rows.
	ListenerOff ListenerState = "off"
	// Listening means that it has heard what it said to itself.
	Listening ListenerState = "listening"
	// Deaf means that it tries to, and does not: the connection is lost, or a pooler hands its announcements to somebody else. Polling finds
	// the rows meanwhile.
	Deaf ListenerState = "deaf"
)

// ears listen for the arrivals of one database and wake its processors. Nothing depends on them: while they are deaf, polling
// finds the rows.
type ears struct {
	listener driver.Listener
	wake     func(arrivals ...outbox.Arrival)
	log      *slog.Logger
	hearing  atomic.Bool
	asked    atomic.Pointer[string] // the probe that is to be heard
	told     trouble                // what the log says is wrong
}

// trouble is what an operator was told; only what is worse is told next.
type trouble int

const (
	noTrouble trouble = iota
	lost              // it comes and goes
	deaf              // it stays so until somebody does something
)

func (e *ears) state() ListenerState {
	switch {
	case e == nil:
		return ListenerOff
	case e.hearing.Load():
		return Listening
	default:
		return Deaf
	}
}

// run listens until ctx ends, again and again.
func (e *ears) run(ctx context.Context) {
	delay := earsRetry
	for ctx.Err() == nil {
		err := e.listen(ctx)
		heard := e.hearing.Swap(false)
		if ctx.Err() != nil {
			return
		}
		kind := lost
		if errors.Is(err, errDeaf) {
			kind = deaf
		}
		if kind > e.told {
			e.told = kind
			e.log.WarnContext(ctx, "this relay does not hear of rows that other processes commit: it finds them by polling; trying again", "error", err)
		}
		switch {
		case heard:
			delay = earsRetry // it worked until now
		case kind == deaf:
			delay = earsRetryDeaf
		}
		sleep(ctx, delay/2+time.Duration(rand.Float64()*float64(delay/2))) // not all relays at once
		delay = min(2*delay, earsLongestRetry)
	}
}

// listen listens until something is wrong.
func (e *ears) listen(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var (
		began, echoes = make(chan struct{}), make(chan struct{}, 1)
		ended         = make(chan error, 1)
		over          sync.WaitGroup
	)
	over.Go(func() {
		err := e.listener.Listen(ctx, func() { close(began) }, func(text string) { e.hear(text, echoes) })
		ended <- fmt.Errorf("the connection ended: %w", err)
	})
	err := e.attend(ctx, began, echoes, ended)
	stop()
	over.Wait()
	return err
}

// attend waits until Listen has begun, and then probes now and then.
func (e *ears) attend(ctx context.Context, began, echoes <-chan struct{}, ended <-chan error) error {
	timer := time.NewTimer(connectTime)
	defer timer.Stop()
	select {
	case <-began:
	case err := <-ended:
		return err
	case <-timer.C:
		return fmt.Errorf("no connection within %s", connectTime)
	}
	e.wake() // for what was said before
	for {
		if err := e.probe(ctx, echoes, ended); err != nil {
			return err
		}
		timer.Reset(probeEvery)
		select {
		case err := <-ended:
			return err
		case <-timer.C:
		}
	}
}

// probe finds out whether the listener hears itself. A database that does not answer is no proof of the contrary.
func (e *ears) probe(ctx context.Context, echoes <-chan struct{}, ended <-chan error) error {
	nonce := uuid.NewString()
	e.asked.Store(&nonce) // from here on, what is in echoes is of this probe
	select {
	case <-echoes: // of an earlier one, whose Notify has failed and still got through
	default:
	}
	bounded, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	if err := e.listener.Notify(bounded, outbox.ProbeText(nonce)); err != nil {
		if e.hearing.Load() {
			return nil
		}
		return fmt.Errorf("cannot find out whether notifications arrive: %w", err)
	}
	timer := time.NewTimer(probeTime)
	defer timer.Stop()
	select {
	case <-echoes:
		e.hearing.Store(true)
		if e.told != noTrouble {
			e.told = noTrouble
			e.log.InfoContext(ctx, "this relay hears again of rows that other processes commit")
		}
		return nil
	case err := <-ended:
		return err
	case <-timer.C:
		if e.hearing.Load() {
			return errors.New("notifications have ceased to arrive: connecting anew")
		}
		return errDeaf
	}
}

// hear acts on one text.
func (e *ears) hear(text string, echoes chan<- struct{}) {
	if nonce, ok := outbox.ParseProbe(text); ok {
		if asked := e.asked.Load(); asked != nil && *asked == nonce && e.asked.CompareAndSwap(asked, nil) { // not another relay's
			select {
			case echoes <- struct{}{}:
			default: // nobody waits for it: its Notify has failed, and still got through, like one before it
			}
		}
		return
	}
	arrivals, _ := outbox.ParseAnnouncement(text) // none: whoever it is for
	e.wake(arrivals...)
}
