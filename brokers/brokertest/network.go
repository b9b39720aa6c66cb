package brokertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/toxic"
)

// A Network lies between a broker and its server, and can be made ill. Faults hold for connections
// that are open and for those to come, until Heal; the suite asks for one at a time.
type Network interface {
	// Latency makes each round trip take d longer.
	Latency(t testing.TB, d time.Duration)
	// Bandwidth lets so many kilobytes per second through, in each direction.
	Bandwidth(t testing.TB, kilobytes int)
	// Reset breaks every connection as soon as something is sent over it.
	Reset(t testing.TB)
	// CutRequests ends each connection after n further bytes from the broker: in the middle of a
	// message, as a rule.
	CutRequests(t testing.TB, n int)
	// CutAnswers ends each connection after n further bytes from the server: what was sent arrived,
	// and no error is reported.
	CutAnswers(t testing.TB, n int)
	// BlackHole swallows all that the server says, without a word: requests arrive.
	BlackHole(t testing.TB)
	// Heal ends the fault. Connections that it held up may break.
	Heal(t testing.TB)
}

const (
	// rounds is how often a bulk meets a fault, each time with another size of the cut.
	rounds = 6
	// bulkSize of the cases about the network, in messages; with their fields some 200 bytes each.
	bulkSize = 120
)

// throughNetwork opens a broker behind the network of the harness, or skips the case.
func (s *suite) throughNetwork(t *testing.T) brokers.Broker {
	t.Helper()
	if s.Network == nil || s.OpenThroughNetwork == nil {
		t.Skip("NOT TESTED: Network or OpenThroughNetwork of the harness is nil")
	}
	b := s.OpenThroughNetwork(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.Patience)
		defer cancel()
		require.NoError(t, b.Close(ctx))
	})
	t.Cleanup(func() { s.Network.Heal(t) })
	return b
}

// slowServer: each call takes long. The deadline is kept, the results say what is known, and with
// more time all is well.
func (s *suite) slowServer(t *testing.T) {
	b, destination := s.throughNetwork(t), s.Destination(t)
	s.succeed(t, b, messages(destination, 10, "warm", "")) // connections, scripts, leaders
	s.Network.Latency(t, 150*time.Millisecond)

	const deadline = 400 * time.Millisecond
	for range 2 {
		msgs := messages(destination, 4000, append(keys(9), "")...)
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		began := time.Now()
		results := b.Publish(ctx, msgs)
		took := time.Since(began)
		cancel()
		require.Less(t, took, deadline+s.Patience, "Publish ends with its context")
		require.Len(t, results, len(msgs))
		for i, result := range results {
			class, _ := brokers.Classify(result.Err)
			require.NotEqual(t, brokers.ClassPermanent, class, "message %d: %v", i, result.Err)
		}
		s.honest(t, msgs, results)
	}
	l := newLedger(destination, 300, append(keys(4), "")...)
	require.True(t, s.attempt(t, b, l, s.Patience), "slow is not broken: %v", l.said)
	l.check(t, s.Received(t, destination), true)
}

// A fault is one illness of the network, and how long a call may take under it.
type fault struct {
	name    string
	inflict func(t *testing.T, n Network, round int)
	timeout time.Duration
	passes  bool // slow, but everything gets through
}

func (s *suite) faults() []fault {
	size := func(most int) int { return 1 + s.random.IntN(most) }
	return []fault{
		{"Latency", func(t *testing.T, n Network, _ int) { n.Latency(t, 30*time.Millisecond) }, s.Patience, true},
		{"Bandwidth", func(t *testing.T, n Network, _ int) { n.Bandwidth(t, 400) }, s.Patience, true},
		{"Reset", func(t *testing.T, n Network, _ int) { n.Reset(t) }, time.Second, false},
		{"CutRequest", func(t *testing.T, n Network, _ int) { n.CutRequests(t, size(bulkSize*200)) }, time.Second, false},
		{"CutAnswer", func(t *testing.T, n Network, round int) {
			n.CutAnswers(t, size(bulkSize*30>>(round%4))) // short answers are the rule
		}, time.Second, false},
		{"BlackHole", func(t *testing.T, n Network, _ int) { n.BlackHole(t) }, 200 * time.Millisecond, false},
	}
}

// network: whatever happens between broker and server, what is confirmed is there, what is not sent
// is not, keys keep their order, and a processor that sends the rest again loses nothing.
func (s *suite) network(t *testing.T) {
	if s.Network == nil || s.OpenThroughNetwork == nil {
		t.Skip("NOT TESTED: Network or OpenThroughNetwork of the harness is nil")
	}
	for _, f := range s.faults() {
		t.Run(f.name, func(t *testing.T) { s.survive(t, f) })
	}
}

func (s *suite) survive(t *testing.T, f fault) {
	b, destination := s.throughNetwork(t), s.Destination(t)
	l := newLedger(destination, rounds*bulkSize, append(keys(7), "", "")...)
	s.attempt(t, b, l, s.Patience)
	for round := range rounds {
		f.inflict(t, s.Network, round)
		all := s.attempt(t, b, l, f.timeout)
		require.True(t, all || !f.passes, "%s is not an outage: %v", f.name, l.said)
		l.check(t, s.Received(t, destination), false)
		s.Network.Heal(t)
	}
	s.eventually(t, fmt.Sprintf("after %s everything is confirmed", f.name), func() bool {
		s.attempt(t, b, l, s.Patience)
		return l.done()
	})
	l.check(t, s.Received(t, destination), true)
	t.Log(l)
}

// attempt publishes the next bulk of a ledger, and reports whether all of it was confirmed.
func (s *suite) attempt(t *testing.T, b brokers.Broker, l *ledger, timeout time.Duration) bool {
	t.Helper()
	bulk := l.next(bulkSize)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	results := b.Publish(ctx, l.messages(bulk))
	require.Len(t, results, len(bulk))
	return l.record(t, bulk, results, ctx.Err() != nil)
}

// A Proxy is a [Network] in front of one server. Addr is where it listens; Down refuses all connections, as
// a server does that has stopped, until Up.
type Proxy = toxic.Proxy

// StartProxy starts a proxy in front of the server at an address (host:port), until the test ends.
func StartProxy(t testing.TB, server string) *Proxy {
	t.Helper()
	return toxic.Start(t, server)
}
