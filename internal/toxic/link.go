package toxic

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// inFlight is how many packets a direction holds while they are late: enough for the latency not to become a limit of the rate.
	inFlight = 1024
	// packetSize is the most that is read at once.
	packetSize = 32 << 10
	// stretch is how long a narrow network takes for what it lets through at once.
	stretch = 100 * time.Millisecond
)

// link is one connection of a client, and the one behind it.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	swallowed      atomic.Bool // an answer is missing
}

type packet struct {
	data []byte
	read time.Time
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// reset closes both connections so that either side is told that they broke.
func (l *link) reset() {
	for _, conn := range []net.Conn{l.client, l.server} {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	}
	l.close()
}

// carry takes what one side says to the other until either of them ends, or a fault ends it. Then the other side is closed, and with
// it, by itself, the other direction.
func (l *link) carry(d direction, from, to net.Conn) {
	packets, over := make(chan packet, inFlight), make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(packets)
		for {
			data := make([]byte, packetSize)
			n, err := from.Read(data)
			if n > 0 {
				select {
				case packets <- packet{data[:n], time.Now()}:
				case <-over:
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	passage := passage{link: l, direction: d, to: to}
	for p := range packets {
		if !passage.deliver(p) {
			break
		}
	}
	close(over)
	_ = to.Close()
	reading.Wait()
}

// passage is the way out of one direction.
type passage struct {
	*link

	direction direction
	to        net.Conn
	cut       *cut // that holds
	passed    int  // bytes since it holds
}

// deliver hands over one packet in pieces, as the network lets it, and reports whether the connection goes on.
func (p *passage) deliver(packet packet) bool {
	due, data := packet.read, packet.data
	for len(data) > 0 {
		ill, changed := p.proxy.state()
		switch {
		case ill.reset && p.direction == requests:
			p.reset()
			return false
		case ill.blackHole && p.direction == answers:
			p.swallowed.Store(true)
			return true
		}
		n := len(data)
		wait := ill.latency - time.Since(due)
		if ill.bandwidth > 0 {
			n = min(n, ill.bandwidth*int(stretch/time.Millisecond))
			wait = max(wait, 0) + time.Duration(n)*time.Millisecond/time.Duration(ill.bandwidth)
		}
		if wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-changed:
				timer.Stop()
				continue // by the new rules
			case <-p.proxy.stopped.Done():
				timer.Stop()
				return false
			}
		}
		if !p.write(data[:n], ill.cut[p.direction]) {
			return false
		}
		data = data[n:]
	}
	return true
}

// write hands over what a cut lets through, and reports whether the connection goes on.
func (p *passage) write(data []byte, cut *cut) bool {
	if cut != p.cut {
		p.cut, p.passed = cut, 0
	}
	if cut != nil {
		data = data[:min(len(data), cut.after-p.passed)]
		p.passed += len(data)
	}
	_, err := p.to.Write(data)
	return err == nil && (cut == nil || p.passed < cut.after)
}
