// Package toxic puts a proxy between a client under test and its server, and makes the network between them ill. It is for tests
// alone: nothing else imports it.
package toxic

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Proxy is a proxy in front of one server. Faults hold for connections that are open and for those to come, until Heal; several
// may hold at once. It fulfils brokertest.Network, and is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	upstream string
	stopped  context.Context //nolint:containedctx // it ends with the proxy
	running  sync.WaitGroup

	mu      sync.Mutex
	ill     illness
	changed chan struct{} // closed when ill changes
	links   map[*link]struct{}
}

// illness is what is wrong with the network.
type illness struct {
	latency   time.Duration // of one way
	bandwidth int           // bytes per millisecond, which are kilobytes per second; 0 = no limit
	reset     bool
	blackHole bool
	cut       [2]*cut // by direction
}

// cut ends connections after so many bytes. Its address tells one cut from the next.
type cut struct{ after int }

type direction int

const (
	requests direction = iota
	answers
)

// Start starts a proxy in front of the server at the address upstream (host:port); it ends with the test.
func Start(t testing.TB, upstream string) *Proxy {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	stopped, stop := context.WithCancel(context.Background())
	p := &Proxy{listener: listener, upstream: upstream, stopped: stopped, changed: make(chan struct{}), links: map[*link]struct{}{}}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		stop()
		_ = listener.Close()
		p.end(func(*link) bool { return true })
		p.running.Wait()
	})
	return p
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Latency holds back each packet, in both directions, for half of d: a round trip takes d longer.
func (p *Proxy) Latency(_ testing.TB, d time.Duration) {
	p.sicken(func(ill *illness) { ill.latency = d / 2 })
}

// Bandwidth lets so many kilobytes per second through, in each direction.
func (p *Proxy) Bandwidth(_ testing.TB, kilobytes int) {
	p.sicken(func(ill *illness) { ill.bandwidth = kilobytes })
}

// Reset breaks each connection (RST) as soon as the client sends something, which does not arrive.
func (p *Proxy) Reset(testing.TB) { p.sicken(func(ill *illness) { ill.reset = true }) }

// CutRequests ends each connection after n further bytes from the client.
func (p *Proxy) CutRequests(_ testing.TB, n int) {
	p.sicken(func(ill *illness) { ill.cut[requests] = &cut{n} })
}

// CutAnswers ends each connection after n further bytes from the server.
func (p *Proxy) CutAnswers(_ testing.TB, n int) {
	p.sicken(func(ill *illness) { ill.cut[answers] = &cut{n} })
}

// BlackHole swallows all that the server says: what the client sends arrives, and nobody tells it so.
func (p *Proxy) BlackHole(testing.TB) { p.sicken(func(ill *illness) { ill.blackHole = true }) }

// Heal ends all faults. Connections of which something was swallowed end, too: what follows would make no sense.
func (p *Proxy) Heal(testing.TB) {
	p.sicken(func(ill *illness) { *ill = illness{} })
	p.end(func(l *link) bool { return l.swallowed.Load() })
}

func (p *Proxy) sicken(change func(*illness)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.ill)
	close(p.changed)
	p.changed = make(chan struct{})
}

// state is what is wrong now, and what tells that this has changed.
func (p *Proxy) state() (ill illness, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ill, p.changed
}

// accept makes a link of each connection until the listener is closed.
func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() {
			server, err := new(net.Dialer).DialContext(p.stopped, "tcp", p.upstream)
			if err != nil {
				_ = client.Close()
				return
			}
			p.open(&link{proxy: p, client: client, server: server})
		})
	}
}

// open serves a link until both its directions have ended.
func (p *Proxy) open(l *link) {
	p.mu.Lock()
	p.links[l] = struct{}{}
	p.mu.Unlock()
	if p.stopped.Err() != nil { // the proxy ended before it could know of this link
		l.close()
	}
	var both sync.WaitGroup
	both.Go(func() { l.carry(requests, l.client, l.server) })
	both.Go(func() { l.carry(answers, l.server, l.client) })
	both.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// end closes the links that it is told to.
func (p *Proxy) end(which func(*link) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if which(l) {
			l.close()
		}
	}
}
