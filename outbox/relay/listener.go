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

	"github.com/gorm-fanout/fanout/internal/failure"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
)

const (
	// connectTime bounds how long a listener takes to connect.
	connectTime = 15 * time.Second
	// probeEvery is the interval of a listener's notifications to itself, which tell a silent
	// connection from a dead one.
	probeEvery = 30 * time.Second
	// probeTime bounds the wait for such a notification.
	probeTime = 5 * time.Second
	// listenerRetry and listenerLongestRetry bound the delay before a lost connection is reopened.
	listenerRetry        = 250 * time.Millisecond
	listenerLongestRetry = 30 * time.Second
	// listenerRetryPooler is the delay after a connection that received nothing from the start: a
	// pooler is in the way, and will be there for a while.
	listenerRetryPooler = 5 * time.Minute
)

// errPooler says that a new listener does not receive its own notifications.
var errPooler = errors.New("notifications do not arrive: a pooler in transaction mode between here and the database has this effect; " +
	"give the relay a DSN that leads to PostgreSQL itself or to a pooler in session mode, or set notify: false")

// ListenerState says whether a relay is notified of the commits of other processes.
type ListenerState string

const (
	// ListenerOff means that the relay has no listener; polling finds the rows.
	ListenerOff ListenerState = "off"
	// ListenerConnected means that the listener has received its own notification.
	ListenerConnected ListenerState = "connected"
	// ListenerDisconnected means that the connection is lost, or that a pooler keeps notifications
	// from it. Polling finds the rows meanwhile.
	ListenerDisconnected ListenerState = "disconnected"
)

// listener receives the wake-ups of one database and wakes its processors. Nothing depends on it:
// while it is disconnected, polling finds the rows.
type listener struct {
	store     driver.Listener
	wake      func(wakeUps ...wakeup.WakeUp)
	log       *slog.Logger
	connected atomic.Bool
	expected  atomic.Pointer[string] // nonce of the probe in progress
	failing   failure.Standing
}

func (l *listener) state() ListenerState {
	switch {
	case l == nil:
		return ListenerOff
	case l.connected.Load():
		return ListenerConnected
	default:
		return ListenerDisconnected
	}
}

// run listens until ctx ends, and connects again after each failure.
func (l *listener) run(ctx context.Context) {
	delay := listenerRetry
	for ctx.Err() == nil {
		err := l.listen(ctx)
		worked := l.connected.Swap(false)
		if ctx.Err() != nil {
			return
		}
		if l.failing.Failed(err) {
			l.log.WarnContext(ctx, "listener disconnected", "error", err)
		}
		switch {
		case worked:
			delay = listenerRetry
		case errors.Is(err, errPooler):
			delay = listenerRetryPooler
		}
		sleep(ctx, delay/2+time.Duration(rand.Float64()*float64(delay/2))) // not all relays at once
		delay = min(2*delay, listenerLongestRetry)
	}
}

// listen listens until something fails.
func (l *listener) listen(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var (
		began, echoes = make(chan struct{}), make(chan struct{}, 1)
		ended         = make(chan error, 1)
		over          sync.WaitGroup
	)
	over.Go(func() {
		err := l.store.Listen(ctx, func() { close(began) }, func(text string) { l.receive(text, echoes) })
		ended <- fmt.Errorf("the connection ended: %w", err)
	})
	err := l.watch(ctx, began, echoes, ended)
	stop()
	over.Wait()
	return err
}

// watch waits until Listen has begun, then probes at intervals.
func (l *listener) watch(ctx context.Context, began, echoes <-chan struct{}, ended <-chan error) error {
	timer := time.NewTimer(connectTime)
	defer timer.Stop()
	select {
	case <-began:
	case err := <-ended:
		return err
	case <-timer.C:
		return fmt.Errorf("no connection within %s", connectTime)
	}
	l.wake() // for notifications sent before
	for {
		if err := l.probe(ctx, echoes, ended); err != nil {
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

// probe checks that the listener receives its own notification. A connected listener stays so if
// the notification cannot be sent, which proves nothing about its connection.
func (l *listener) probe(ctx context.Context, echoes <-chan struct{}, ended <-chan error) error {
	nonce := uuid.NewString()
	l.expected.Store(&nonce) // from here on, echoes holds only what answers this probe
	select {
	case <-echoes: // of an earlier probe whose Notify failed and was received all the same
	default:
	}
	bounded, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	if err := l.store.Notify(bounded, wakeup.ProbeText(nonce)); err != nil {
		if l.connected.Load() {
			return nil
		}
		return fmt.Errorf("cannot find out whether notifications arrive: %w", err)
	}
	timer := time.NewTimer(probeTime)
	defer timer.Stop()
	select {
	case <-echoes:
		l.connected.Store(true)
		if _, was := l.failing.Works(); was {
			l.log.InfoContext(ctx, "listener connected again")
		}
		return nil
	case err := <-ended:
		return err
	case <-timer.C:
		if l.connected.Load() {
			return errors.New("notifications have ceased to arrive: connecting anew")
		}
		return errPooler
	}
}

// receive acts on one notification.
func (l *listener) receive(text string, echoes chan<- struct{}) {
	if nonce, ok := wakeup.ParseProbe(text); ok {
		if expected := l.expected.Load(); expected != nil && *expected == nonce && l.expected.CompareAndSwap(expected, nil) { // not another relay's
			select {
			case echoes <- struct{}{}:
			default: // the echo of an earlier probe is still there: both were received though their Notify failed
			}
		}
		return
	}
	wakeUps, _ := wakeup.Parse(text) // none: for all brokers
	l.wake(wakeUps...)
}
