package consumertest

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox"
)

// All messages of all keys are handled once, in the order of their key, although many fail at
// first, in all the ways in which a handler can fail.
func (s *suite) orderAcrossFailures(t *testing.T, source *Source) {
	keys := []string{"k0", "k1", "k2", "k3", "k4"}
	source.Publish(t, messages(0, 20, append(keys, "")...)...)
	l := newLedger(t, func(ctx context.Context, _ *inbox.Message, it seen, time int) (inbox.Outcome, error) {
		switch {
		case it.n%7 == 3 && time == 1:
			return "", errors.New("no")
		case it.n%7 == 4 && time == 1:
			panic("no")
		case it.n%7 == 5 && time < 6:
			return "", inbox.Unavailable(errors.New("out"))
		case it.n == 8 && time == 1:
			runtime.Goexit()
		case it.n == 6 && time == 1:
			<-ctx.Done()
			return "", context.Cause(ctx)
		}
		return inbox.Handled, nil
	})
	settings := usual()
	settings.Timeout = time.Second
	p := s.start(t, source, l, settings)
	s.eventually(t, func() bool { return len(l.firsts()) == 120 }, "all are done")
	s.confirmed(t, source)
	require.NoError(t, p.stop())
	assert.Len(t, l.finished(), 120, "each once")
	l.inOrder(t)
	stats := p.Stats()
	assert.Equal(t, int64(120), stats.Handled)
	assert.Equal(t, int64(6*(3+3+5*3+1+1)), stats.Failed)
	assert.Zero(t, stats.Claimed)
}

// A key that waits keeps no other waiting, and workers are used.
func (s *suite) keysBesideEachOther(t *testing.T, source *Source) {
	let := make(chan struct{})
	l := newLedger(t, func(ctx context.Context, _ *inbox.Message, it seen, _ int) (inbox.Outcome, error) {
		if it.n == 0 {
			select {
			case <-let:
			case <-ctx.Done():
			}
		}
		return inbox.Handled, nil
	})
	source.Publish(t, messages(0, 3, "a", "b", "c", "")...)
	p := s.start(t, source, l, usual())
	s.eventually(t, func() bool { return p.Stats().Running == 4 }, "four are handled at once")
	require.ErrorContains(t, p.Run(t.Context()), "runs already")
	assert.False(t, slices.ContainsFunc(l.finished(), func(it seen) bool { return it.key != "" }), "what is behind them waits")
	close(let)
	s.confirmed(t, source)
	l.inOrder(t)
}

// A message is confirmed after its handler is done, and not before.
func (s *suite) confirmedAfterwards(t *testing.T, source *Source) {
	source.Publish(t, messages(0, 3, "a")...)
	let := make(chan struct{})
	l := newLedger(t, func(ctx context.Context, _ *inbox.Message, it seen, _ int) (inbox.Outcome, error) {
		if it.n == 1 {
			select {
			case <-let:
			case <-ctx.Done():
			}
		}
		return inbox.Handled, nil
	})
	s.start(t, source, l, usual())
	s.eventually(t, func() bool { return source.Unconfirmed(t) == 2 && l.started() == 2 }, "0 is confirmed and 1 has begun")
	source.Publish(t, message("b", 0))
	s.eventually(t, func() bool { return slices.Contains(l.finished(), seen{"b", 0}) }, "another key is not kept waiting")
	assert.GreaterOrEqual(t, source.Unconfirmed(t), 2, "1 is not confirmed, nor 2")
	close(let)
	s.confirmed(t, source)
}

// A message that was published twice comes twice, and both copies have what tells that they are
// copies; what the handler says of the second is counted, and it is confirmed as well.
func (s *suite) duplicates(t *testing.T, source *Source) {
	known := map[any]bool{}
	l := newLedger(t, func(_ context.Context, m *inbox.Message, _ seen, _ int) (inbox.Outcome, error) {
		if known[m.Identity()] { // one key: one at a time
			return inbox.Duplicate, nil
		}
		known[m.Identity()] = true
		return inbox.Handled, nil
	})
	source.Publish(t, message("a", 0), message("a", 0), message("a", 1))
	p := s.start(t, source, l, usual())
	s.eventually(t, func() bool { return len(l.finished()) == 3 }, "all are done")
	s.confirmed(t, source)
	require.NoError(t, p.stop())
	stats := p.Stats()
	assert.Equal(t, []int64{2, 1}, []int64{stats.Handled, stats.Duplicates})
	assert.Len(t, known, 2)
}

// What is abandoned or cannot be read goes to the dead letters, as it was and with what is known of
// its end; then its key goes on.
func (s *suite) poison(t *testing.T, source *Source) {
	nonsense := Message{ID: "x", Type: "T.v1", Key: "b", Payload: []byte("nonsense")}
	source.Publish(t, append(messages(0, 4, "a"), nonsense, message("b", 0))...)
	l := newLedger(t, func(_ context.Context, _ *inbox.Message, it seen, _ int) (inbox.Outcome, error) {
		switch {
		case it.key == "a" && it.n == 1:
			return "", inbox.Permanent(errors.New("never"))
		case it.key == "a" && it.n == 2:
			return "", errors.New("not now")
		}
		return inbox.Handled, nil
	})
	settings := usual()
	settings.HasDeadLetters = true
	p := s.start(t, source, l, settings)
	s.eventually(t, func() bool { return len(l.finished()) == 3 }, "the others are done")
	s.confirmed(t, source)
	require.NoError(t, p.stop())
	assert.ElementsMatch(t, []seen{{"a", 0}, {"a", 3}, {"b", 0}}, l.finished())
	stats := p.Stats()
	assert.Equal(t, []int64{3, 3, 4}, []int64{stats.Forwarded, stats.Handled, stats.Failed})
	letters := source.DeadLetters(t)
	require.Len(t, letters, 3)
	for i, want := range []struct {
		Message

		reason, attempts string
	}{{message("a", 1), "never", "1"}, {message("a", 2), "not now", "3"}, {nonsense, "", "0"}} {
		at := slices.IndexFunc(letters, func(letter DeadLetter) bool { return string(letter.Payload) == string(want.Payload) })
		require.GreaterOrEqual(t, at, 0, "dead letter %d, as it was", i)
		letter := letters[at]
		assert.Equal(t, []string{want.ID, want.Key, want.attempts}, []string{letter.ID, letter.Key, letter.Attempts})
		assert.Contains(t, letter.Reason, want.reason)
		assert.NotEmpty(t, letter.Reason)
	}
}

// Without any place for dead letters nothing is lost: the message is held, and is done when its
// handler is healed.
func (s *suite) held(t *testing.T, source *Source) {
	if s.AlwaysDeadLetters {
		t.Skip("there is always a place for dead letters")
	}
	source.Publish(t, messages(0, 3, "a", "b")...)
	var healed atomic.Bool
	l := newLedger(t, func(_ context.Context, _ *inbox.Message, it seen, _ int) (inbox.Outcome, error) {
		if it == (seen{"a", 1}) && !healed.Load() {
			return "", inbox.Permanent(errors.New("never"))
		}
		return inbox.Handled, nil
	})
	p := s.start(t, source, l, usual())
	s.eventually(t, func() bool { return p.Stats().Held == 1 && p.Stats().Handled == 4 }, "it is held, and its key with it")
	healed.Store(true)
	s.confirmed(t, source)
	require.NoError(t, p.stop())
	l.inOrder(t)
	assert.Zero(t, p.Stats().Held)
}

// A key that fails for as long as it takes, with many messages behind it, does not keep others out.
func (s *suite) hotKey(t *testing.T, source *Source) {
	var healed atomic.Bool
	l := newLedger(t, func(_ context.Context, _ *inbox.Message, it seen, _ int) (inbox.Outcome, error) {
		if it.key == "hot" && !healed.Load() {
			return "", inbox.Unavailable(errors.New("out"))
		}
		return inbox.Handled, nil
	})
	source.Publish(t, messages(0, 60, "hot")...)
	source.Publish(t, messages(0, 5, "cold", "")...)
	p := s.start(t, source, l, usual())
	s.eventually(t, func() bool { return p.Stats().Handled == 10 }, "the others are done")
	healed.Store(true)
	s.confirmed(t, source)
	require.NoError(t, p.stop())
	assert.Len(t, l.finished(), 70)
	l.inOrder(t)
}

// A handler that goes on although its context has ended is named, and another takes its worker's
// place, up to as many again; its key waits, and a stop does not.
func (s *suite) handlerHangs(t *testing.T, source *Source) {
	let := make(chan struct{})
	l := newLedger(t, func(_ context.Context, _ *inbox.Message, it seen, time int) (inbox.Outcome, error) {
		if (it == seen{"stuck", 0} || it == seen{"stuck too", 0}) && time == 1 {
			<-let
		}
		return inbox.Handled, nil
	})
	l.overlaps = true // when the consumer has given up on it, it comes to another
	source.Publish(t, append(messages(0, 2, "stuck"), messages(0, 3, "other")...)...)
	var j journal
	settings := usual()
	settings.Workers, settings.Timeout, settings.ShutdownTimeout, settings.Log = 1, 20*time.Millisecond, -1, j.logger()
	p := s.start(t, source, l, settings)
	s.eventually(t, func() bool { return j.count("handler overdue") >= 1 }, "the log names it")
	s.eventually(t, func() bool { return len(l.finished()) == 3 }, "others are handled")
	source.Publish(t, message("stuck too", 0)) // by the only one that is left
	s.eventually(t, func() bool { return j.count("all workers blocked by overdue handlers") == 1 }, "the log says that there is none")
	require.NoError(t, p.stop(), "a stop does not wait for them")
	assert.Equal(t, 1, j.count("overdue handlers left behind"))
	source.expire(t)
	p = s.start(t, source, l, usual())
	s.confirmed(t, source)
	require.NoError(t, p.stop())
	s.same(t, []seen{{"stuck", 0}, {"stuck", 1}}, slices.DeleteFunc(l.firsts(), func(it seen) bool { return it.key != "stuck" }))
	close(let)
	s.eventually(t, func() bool { return len(l.finished()) >= 8 }, "they end after all")
}

// A claim lasts for as long as its handler takes: no other process gets the message meanwhile, nor one
// behind it.
func (s *suite) handlerOutlastsClaim(t *testing.T, source *Source) {
	if source.Lease == 0 {
		t.Skip("claims have no end that could be outlasted")
	}
	source.Publish(t, messages(0, 3, "a")...)
	begun := make(chan struct{})
	l := newLedger(t, func(ctx context.Context, _ *inbox.Message, it seen, times int) (inbox.Outcome, error) {
		if it.n == 0 && times == 1 {
			close(begun)
			select {
			case <-time.After(3 * source.Lease):
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}
		return inbox.Handled, nil
	})
	s.start(t, source, l, usual())
	<-begun
	s.start(t, source, l, usual())
	s.confirmed(t, source)
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Equal(t, 1, l.times[seen{"a", 0}], "it was handled once")
}

// A stop under load: running handlers end, all else comes to the next consumer. Nothing is lost, and
// nothing is confirmed that was not done.
func (s *suite) stopUnderLoad(t *testing.T, source *Source) {
	keys := []string{"k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"}
	source.Publish(t, messages(0, 25, keys...)...)
	l := newLedger(t, nil)
	for source.Unconfirmed(t) > 0 {
		enough := len(l.finished()) + 40
		p := s.start(t, source, l, usual())
		s.eventually(t, func() bool { return len(l.finished()) >= enough || source.Unconfirmed(t) == 0 }, "it gets on")
		require.NoError(t, p.stop())
		assert.Zero(t, p.Stats().Claimed)
		s.eventually(t, func() bool { return source.Unconfirmed(t) >= 200-len(l.firsts()) }, "nothing else is confirmed")
		source.expire(t)
	}
	assert.Len(t, l.firsts(), 200)
	s.inOrder(t, l)
}

// A handler that does not end in time is told to, and its message comes again without an attempt
// charged.
func (s *suite) shutdownTimeout(t *testing.T, source *Source) {
	source.Publish(t, messages(0, 2, "a")...)
	l := newLedger(t, func(ctx context.Context, _ *inbox.Message, it seen, time int) (inbox.Outcome, error) {
		if it.n == 0 && time == 1 {
			<-ctx.Done()
			return "", context.Cause(ctx)
		}
		return inbox.Handled, nil
	})
	settings := usual()
	settings.ShutdownTimeout = time.Millisecond
	p := s.start(t, source, l, settings)
	s.eventually(t, func() bool { return p.Stats().Running == 1 && l.started() == 1 }, "it has begun")
	require.NoError(t, p.stop())
	assert.Equal(t, 2, source.Unconfirmed(t))
	source.expire(t)
	s.start(t, source, l, usual())
	s.confirmed(t, source)
	s.same(t, []seen{{"a", 0}, {"a", 1}}, l.finished())
}

// Consumers come and go while messages flow. Nothing is lost; where the source gives a key to one
// of them at a time, none is handled beside itself, and all are handled in order.
func (s *suite) rebalance(t *testing.T, source *Source) {
	const rounds, each = 6, 20
	keys := []string{"k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9"}
	l := newLedger(t, func(ctx context.Context, _ *inbox.Message, it seen, _ int) (inbox.Outcome, error) {
		if it.n%10 == 7 {
			select { // so that some are being handled when others come and go
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}
		return inbox.Handled, nil
	})
	l.overlaps = !s.Together
	running := []*process{s.start(t, source, l, usual())}
	for round := range rounds {
		source.Publish(t, messages(round*each, (round+1)*each, keys...)...)
		enough := len(l.firsts()) + each
		running = append(running, s.start(t, source, l, usual()))
		if round%2 == 1 {
			s.eventually(t, func() bool { return len(l.firsts()) >= min(enough, (round+1)*each*len(keys)) }, "it gets on")
			require.NoError(t, running[0].stop())
			running = running[1:]
		}
	}
	source.expire(t)
	s.eventually(t, func() bool { return len(l.firsts()) == rounds*each*len(keys) }, "all are done")
	s.confirmed(t, source)
	if s.Together {
		l.inOrder(t)
	}
}

// What a killed process had claimed comes again, to another; in order where the source keeps it among
// several consumers.
func (s *suite) killedWhileHandling(t *testing.T, source *Source) {
	source.Publish(t, messages(0, 6, "a")...)
	said, kill := s.child(t, source)
	s.eventually(t, func() bool { return said.count("begin a 2\n") == 1 }, "the child handles 2")
	s.eventually(t, func() bool { return source.Unconfirmed(t) == 4 }, "0 and 1 are confirmed")
	kill()
	l := newLedger(t, nil)
	source.expire(t)
	p := s.start(t, source, l, usual())
	s.confirmed(t, source)
	require.NoError(t, p.stop())
	again := []seen{{"a", 2}, {"a", 3}, {"a", 4}, {"a", 5}}
	if s.Together {
		assert.Equal(t, again, l.finished())
	} else { // they may come one by one, each when its own claim ends
		assert.ElementsMatch(t, again, l.finished())
	}
}

// A process that is cut off after the effect of a message and before its confirmation: the message
// comes again, to another consumer, and to it alone.
func (s *suite) crashBeforeConfirmation(t *testing.T, source *Source) {
	if source.Network == nil {
		t.Skip("NOT TESTED: Network of the source is nil")
	}
	source.Publish(t, messages(0, 3, "a")...)
	l := newLedger(t, func(_ context.Context, _ *inbox.Message, it seen, time int) (inbox.Outcome, error) {
		if it.n == 1 && time == 1 {
			source.Network.Reset(t) // before it is confirmed
		}
		return inbox.Handled, nil
	})
	l.overlaps = true // the first does not know, and goes on
	settings := usual()
	settings.ThroughNetwork, settings.ShutdownTimeout = true, -1
	p := s.start(t, source, l, settings)
	s.eventually(t, func() bool { return slices.Contains(l.finished(), seen{"a", 1}) }, "its effect is there")
	source.expire(t)
	second := s.start(t, source, l, usual())
	s.confirmed(t, source)
	require.NoError(t, second.stop())
	source.Network.Heal(t)
	require.NoError(t, p.stop())
	assert.Len(t, l.firsts(), 3)
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Greater(t, l.times[seen{"a", 1}], 1, "it was not confirmed, so it came again")
}

// Connections break while messages are handled, some of which fail: all are done, in order, and
// none is lost. The outage is logged, and its end.
func (s *suite) connectionsBreak(t *testing.T, source *Source) {
	if source.Network == nil {
		t.Skip("NOT TESTED: Network of the source is nil")
	}
	const rounds, each = 4, 10
	keys := []string{"k0", "k1", "k2", "k3"}
	l := newLedger(t, func(_ context.Context, _ *inbox.Message, it seen, time int) (inbox.Outcome, error) {
		if it.n%5 == 2 && time == 1 {
			return "", errors.New("no")
		}
		return inbox.Handled, nil
	})
	var j journal
	settings := usual()
	settings.ThroughNetwork, settings.Log = true, j.logger()
	p := s.start(t, source, l, settings)
	for round := range rounds {
		fault := source.Network.Reset
		if round == rounds-1 {
			fault = source.Network.BlackHole
		}
		told := j.count("broker unavailable")
		fault(t)
		source.Publish(t, messages(round*each, (round+1)*each, keys...)...)
		if round < rounds-1 {
			s.eventually(t, func() bool { return j.count("broker unavailable") > told }, "round %d: the outage is felt", round)
		}
		source.Network.Heal(t)
		source.expire(t)
		s.eventually(t, func() bool { return len(l.firsts()) == (round+1)*each*len(keys) }, "round %d: all are done", round)
		s.eventually(t, func() bool { return j.last("broker available again") >= j.last("broker unavailable") }, "round %d: the outage ends", round)
	}
	s.confirmed(t, source)
	require.NoError(t, p.stop())
	s.inOrder(t, l)
	assert.Equal(t, int64(0), p.Stats().Forwarded)
}

// A consumer that starts while its broker is out waits for it.
func (s *suite) startsDuringOutage(t *testing.T, source *Source) {
	if source.Network == nil {
		t.Skip("NOT TESTED: Network of the source is nil")
	}
	source.Publish(t, messages(0, 3, "a")...)
	source.Network.Reset(t)
	var j journal
	settings := usual()
	settings.ThroughNetwork, settings.Log = true, j.logger()
	l := newLedger(t, nil)
	p := s.start(t, source, l, settings)
	s.eventually(t, func() bool { return j.count("broker unavailable") > 0 }, "the outage is named")
	source.Network.Heal(t)
	s.confirmed(t, source)
	s.eventually(t, func() bool { return j.last("broker available again") >= j.last("broker unavailable") }, "the outage ends")
	require.NoError(t, p.stop())
	// A connection that the fault held up may break after it, and what was not confirmed comes again.
	s.inOrder(t, l)
	assert.Len(t, l.firsts(), 3)
}
