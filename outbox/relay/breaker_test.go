package relay

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
)

// errOutage is the cause of an outage.
var errOutage = errors.New("unavailable")

// outage trips a breaker.
func outage(t *testing.T, b *breaker) {
	t.Helper()
	for b.closed() {
		p, err := b.enter(t.Context())
		require.NoError(t, err)
		p.end(errOutage)
	}
}

func TestBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(outbox.Breaker{TripAfter: 2, MinDelay: time.Second, MaxDelay: 8 * time.Second})
		enter := func() pass {
			p, err := b.enter(t.Context())
			require.NoError(t, err)
			return p
		}
		late := enter() // in progress until much later
		p := enter()
		assert.False(t, p.probe)
		assert.False(t, p.end(errOutage), "one alone does not trip it")
		assert.Equal(t, BreakerClosed, b.state())
		p = enter()
		assert.False(t, p.end(nil))
		p = enter()
		assert.False(t, p.end(errOutage), "a success came in between")
		p = enter()
		assert.False(t, p.end(errNoOutcome))
		p = enter()
		assert.True(t, p.end(errOutage), "the outage is news")
		assert.False(t, p.end(errOutage), "a pass ends once")
		assert.Equal(t, BreakerOpen, b.state())

		assert.False(t, late.end(nil))
		assert.False(t, b.closed(), "what began before the outage says nothing about its end")

		// Delays double, one worker at a time tries, and a failure is no news.
		for _, want := range []time.Duration{1, 2, 4, 8, 8} {
			began := time.Now()
			_, ok := b.try()
			assert.False(t, ok)
			p := enter()
			assert.True(t, p.probe)
			assert.Equal(t, BreakerHalfOpen, b.state())
			assert.LessOrEqual(t, time.Since(began), want*time.Second)
			assert.GreaterOrEqual(t, time.Since(began), want*time.Second*3/4-time.Nanosecond)
			_, ok = b.try()
			assert.False(t, ok, "one at a time")
			following := min(2*want, 8) * time.Second
			assert.Equal(t, following+min(following, trySlack), b.afterTry(), "longer than the next try takes to come, but not by much")
			assert.False(t, p.end(errOutage))
		}
		p = enter()
		assert.True(t, p.end(errors.New("another cause")), "which is news")
		p = enter()
		assert.False(t, p.end(errors.New("another cause")))

		// A worker that had nothing to try with lets the next one try.
		p = enter()
		next := make(chan pass)
		go func() { next <- enter() }()
		synctest.Wait()
		select {
		case <-next:
			t.Error("a second worker tries while the first does")
		default:
		}
		assert.False(t, p.end(errNoOutcome))
		p = <-next
		assert.True(t, p.probe)

		// A success opens it for all who wait, and the delays begin anew.
		go func() { next <- enter() }()
		synctest.Wait()
		assert.True(t, p.end(nil), "that it works again is news")
		p = <-next
		assert.False(t, p.probe)
		p.end(nil)
		outage(t, b)
		began := time.Now()
		p = enter()
		assert.LessOrEqual(t, time.Since(began), time.Second)
		p.end(nil)
		assert.Equal(t, BreakerClosed, b.state())
	})
}

// Of many workers one at a time tries, however they come and go.
func TestBreakerBoundsProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(outbox.Policy{Breaker: outbox.Breaker{}}.WithDefaults().Breaker)
		outage(t, b)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		var (
			all           sync.WaitGroup
			mu            sync.Mutex
			trying, tries int
		)
		for n := range 16 {
			all.Go(func() {
				for {
					p, err := b.enter(ctx)
					if err != nil {
						return
					}
					mu.Lock()
					trying++
					tries++
					assert.Equal(t, 1, trying)
					mu.Unlock()
					time.Sleep(time.Duration(n) * 10 * time.Millisecond)
					mu.Lock()
					trying--
					mu.Unlock()
					p.end([]error{errOutage, errNoOutcome}[n%2])
				}
			})
		}
		all.Wait()
		assert.Greater(t, tries, int(10*time.Minute/(15*time.Second)))
	})
}

func TestBreakerDelayNeverOverflows(t *testing.T) {
	t.Parallel()
	b := newBreaker(outbox.Breaker{TripAfter: 1, MinDelay: time.Nanosecond, MaxDelay: 1 << 62})
	for b.openings = range 200 {
		assert.Positive(t, b.delay(), b.openings)
		assert.LessOrEqual(t, b.delay(), b.policy.MaxDelay)
	}
}

func TestDestinations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &destinations{policy: outbox.Breaker{TripAfter: 2, MinDelay: time.Second, MaxDelay: 4 * time.Second}}
		c := d.try("a")
		for range 1000 {
			assert.True(t, c.admit(false))
		}
		c.reached = true
		assert.False(t, c.end())
		assert.Empty(t, d.breakers, "most destinations never need one")

		c = d.try("a")
		assert.False(t, c.fail(errOutage), "the first time it might be chance")
		assert.False(t, c.admit(false), "but in this batch it gets no more")
		assert.False(t, c.fail(errOutage))
		assert.GreaterOrEqual(t, c.delay(0), time.Second)
		assert.False(t, c.end())
		assert.Empty(t, d.unavailable())
		c = d.try("a")
		assert.True(t, c.fail(errOutage))
		assert.False(t, c.end())
		assert.Equal(t, []string{"a"}, d.unavailable())
		assert.False(t, d.try("a").admit(false))
		assert.True(t, d.try("b").admit(false), "the others go on")

		time.Sleep(time.Second)
		c = d.try("a")
		for range probeLimit {
			assert.True(t, c.admit(false))
		}
		assert.False(t, c.admit(false), "a few try")
		assert.False(t, d.try("a").admit(false), "of one worker")
		c.reached = true
		assert.True(t, c.end())
		assert.Empty(t, d.breakers)
	})
}

// A worker that asks while another trips the breaker does not get the first try before its time;
// and only who tripped it hears of it.
func TestBreakerTripsUnderTry(t *testing.T) {
	t.Parallel()
	for range 1000 {
		b := newBreaker(outbox.Breaker{TripAfter: 1, MinDelay: time.Hour, MaxDelay: time.Hour})
		var (
			all  sync.WaitGroup
			told [4]bool
		)
		for n := range told {
			all.Go(func() {
				outcome := []error{errOutage, errNoOutcome}[n%2]
				for range 20 {
					if p, ok := b.try(); ok {
						told[n] = p.end(outcome) || told[n]
					}
				}
			})
		}
		all.Wait()
		require.Equal(t, 1, b.openings)
		require.NotEqual(t, told[0], told[2], "one of the two that met the outage")
		require.False(t, told[1] || told[3])
	}
}

// A destination that nobody sends to any more is not unavailable forever, and many that failed
// once do not fill the memory.
func TestDestinationsAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &destinations{policy: outbox.Breaker{TripAfter: 1, MinDelay: time.Second, MaxDelay: 4 * time.Second}}
		assert.True(t, d.try("renamed").fail(errOutage))
		assert.True(t, d.try("waits").fail(errOutage))
		time.Sleep(maxWait) // the longest between two tries of a destination that has messages
		c := d.try("waits")
		assert.True(t, c.admit(false))
		assert.False(t, c.fail(errOutage))
		assert.Equal(t, []string{"renamed", "waits"}, d.unavailable())
		time.Sleep(maxWait + time.Minute)
		assert.Equal(t, []string{"waits"}, d.unavailable())

		d = &destinations{policy: outbox.Breaker{TripAfter: 2, MinDelay: time.Second, MaxDelay: 4 * time.Second}}
		d.try("out").fail(errOutage)
		d.try("out").fail(errOutage)
		for i := range 3 * maxDestinations {
			d.try(strconv.Itoa(i)).fail(errOutage)
		}
		assert.LessOrEqual(t, len(d.breakers), maxDestinations)
		assert.Equal(t, []string{"out"}, d.unavailable())
	})
}

// The messages of a destination that is unavailable come back one after the other, and no later
// than after an hour.
func TestDestinationsSpreadTheirMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d destinations
		delay := func(name string) time.Duration { return d.delay(name, time.Minute, time.Second) }
		assert.Equal(t, time.Minute, delay("a"))
		assert.Equal(t, time.Minute+spread*time.Second, delay("a"))
		assert.Equal(t, time.Minute, delay("b"), "one by one")
		time.Sleep(2 * time.Second)
		assert.Equal(t, time.Minute+(2*spread-2)*time.Second, delay("a"))
		for range 1000 {
			delay("a")
		}
		assert.Equal(t, maxWait, delay("a"))
		assert.Equal(t, 2*time.Hour, d.delay("a", 2*time.Hour, 0), "the configured delay is the least")
		d.forget("a")
		assert.Equal(t, time.Minute, delay("a"))
		time.Sleep(time.Hour)
		assert.Equal(t, time.Minute, delay("a"))
		for i := range 2 * maxDestinations {
			delay(fmt.Sprint(i))
		}
		assert.LessOrEqual(t, len(d.next), maxDestinations)
	})
}
