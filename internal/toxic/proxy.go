// Package toxic puts a proxy between a client under test and its server, and makes the network
// between them fail. It is for tests alone.
package toxic

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A direction of the bytes of a connection.
type direction int

const (
	requests direction = iota // from the client to the server
	answers
)

// Proxy is a proxy in front of one server. Faults apply to connections that are open and to those to
// come, until Heal; several may apply at once, one of each kind. It implements brokertest.Network, and
// is safe for concurrent use.
type Proxy struct {
	upstream, addr string
	dialing        context.Context //nolint:containedctx // it ends with the test
	running        sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil while the proxy is down
	links    map[*link]struct{}
	faults   faults
}

// faults are the ones that apply now.
type faults struct {
	delay   time.Duration // of each packet, in each direction
	rate    int           // bytes per second in each direction; 0: as many as come
	reset   bool
	swallow bool
	cut     [2]*cut // nil: none
	ends    string  // a request with this text ends its connection, once
}

// A cut ends each connection after further bytes.
type cut struct{ after int }

// Start starts a proxy in front of the server at the address upstream (host:port); it ends with the
// test.
func Start(t testing.TB, upstream string) *Proxy {
	t.Helper()
	dialing, stop := context.WithCancel(context.Background())
	p := &Proxy{upstream: upstream, addr: "127.0.0.1:0", dialing: dialing, links: map[*link]struct{}{}}
	p.Up(t)
	t.Cleanup(func() {
		stop()
		p.Down(t)
		p.running.Wait()
	})
	return p
}

// Addr is the address where the proxy listens.
func (p *Proxy) Addr(testing.TB) string { return p.addr }

// Latency holds back each packet, in both directions, for half of d: a round trip takes d longer.
func (p *Proxy) Latency(_ testing.TB, d time.Duration) {
	p.change(func(f *faults) { f.delay = d / 2 })
}

// Bandwidth lets so many kilobytes per second through, in each direction.
func (p *Proxy) Bandwidth(_ testing.TB, kilobytes int) {
	p.change(func(f *faults) { f.rate = kilobytes * 1000 })
}

// Reset breaks each connection, with RST, as soon as the client sends something.
func (p *Proxy) Reset(testing.TB) { p.change(func(f *faults) { f.reset = true }) }

// CutRequests ends each connection after n further bytes from the client.
func (p *Proxy) CutRequests(_ testing.TB, n int) {
	p.change(func(f *faults) { f.cut[requests] = &cut{n} })
}

// CutAnswers ends each connection after n further bytes from the server.
func (p *Proxy) CutAnswers(_ testing.TB, n int) {
	p.change(func(f *faults) { f.cut[answers] = &cut{n} })
}

// EndOnce ends the first connection whose client sends the text.
func (p *Proxy) EndOnce(_ testing.TB, text string) { p.change(func(f *faults) { f.ends = text }) }

// BlackHole swallows everything that the server sends: requests arrive, and get no answer.
func (p *Proxy) BlackHole(testing.TB) { p.change(func(f *faults) { f.swallow = true }) }

// Heal ends all faults. It also ends the connections that BlackHole held up, since the stream of their
// answers has a hole.
func (p *Proxy) Heal(testing.TB) {
	p.change(func(f *faults) {
		if f.swallow {
			p.closeLinks()
		}
		*f = faults{}
	})
}

// Down ends all connections and refuses new ones, as a server does that has stopped, until Up.
func (p *Proxy) Down(testing.TB) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	p.closeLinks()
}

// Up ends what Down began.
func (p *Proxy) Up(t testing.TB) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", p.addr)
	require.NoError(t, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener, p.addr = listener, listener.Addr().String()
	p.running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.connect(client) })
		}
	})
}

func (p *Proxy) change(change func(f *faults)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.faults)
}

// closeLinks is called with p.mu held.
func (p *Proxy) closeLinks() {
	for l := range p.links {
		l.close()
	}
}

// connect connects a client with the server until one of them ends the connection, or a fault does.
func (p *Proxy) connect(client net.Conn) {
	server, err := new(net.Dialer).DialContext(p.dialing, "tcp", p.upstream)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{proxy: p, client: client, server: server, ended: make(chan struct{})}
	p.mu.Lock()
	p.links[l] = struct{}{}
	if p.listener == nil {
		l.close()
	}
	p.mu.Unlock()
	p.running.Go(func() { l.pump(requests, client, server) })
	l.pump(answers, server, client)
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// A link is a connection through the proxy.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	ended          chan struct{}
	once           sync.Once

	// Each direction uses its own.
	cut  [2]*cut
	left [2]int // bytes until the cut
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.ended)
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

// A packet is what was read at once.
type packet struct {
	data []byte
	at   time.Time
}

// pump forwards one direction. It reads ahead, so that the delays of packets do not add up.
func (l *link) pump(to direction, from, into net.Conn) {
	defer l.close()
	packets := make(chan packet, 64)
	l.proxy.running.Go(func() {
		defer close(packets)
		for {
			buffer := make([]byte, 16<<10)
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			select {
			case packets <- packet{buffer[:n], time.Now()}:
			case <-l.ended:
				return
			}
		}
	})
	for p := range packets {
		if !l.forward(to, into, p) {
			return
		}
	}
}

// forward writes a packet; false ends the connection.
func (l *link) forward(to direction, into net.Conn, p packet) bool {
	l.proxy.mu.Lock()
	f := l.proxy.faults
	l.proxy.mu.Unlock()
	if to == requests && l.proxy.endsOnce(p.data) {
		return false
	}
	if f.reset && to == requests {
		if tcp, ok := l.client.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		return false
	}
	if f.swallow && to == answers {
		return true
	}
	wait := f.delay - time.Since(p.at)
	if f.rate > 0 {
		wait = max(wait, 0) + time.Duration(len(p.data))*time.Second/time.Duration(f.rate)
	}
	if !l.wait(wait) {
		return false
	}
	data := p.data
	if l.cut[to] != f.cut[to] {
		l.cut[to] = f.cut[to]
		if f.cut[to] != nil {
			l.left[to] = f.cut[to].after
		}
	}
	if l.cut[to] != nil {
		data = data[:min(len(data), l.left[to])]
		l.left[to] -= len(data)
	}
	_, err := into.Write(data)
	return err == nil && (l.cut[to] == nil || l.left[to] > 0)
}

// endsOnce reports whether a request is the one of EndOnce.
func (p *Proxy) endsOnce(request []byte) (ends bool) {
	p.change(func(f *faults) {
		if ends = f.ends != "" && bytes.Contains(request, []byte(f.ends)); ends {
			f.ends = ""
		}
	})
	return ends
}

// wait waits; false says that the connection has ended meanwhile.
func (l *link) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ended:
		return false
	}
}
