package bed

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Distance is a network between this process and a server near by that makes it as far away as one likes: all that is sent arrives
// later, in both directions, and as much per second as before.
type Distance struct {
	// Addr is where the server seems to be, as host:port.
	Addr string

	listener         net.Listener
	network, address string
	oneWay           time.Duration
	all              sync.WaitGroup

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]bool
}

// FarAway puts a round trip of this time in front of a server. The caller closes it.
func FarAway(ctx context.Context, network, address string, roundTrip time.Duration) (*Distance, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &Distance{
		Addr: listener.Addr().String(), listener: listener, network: network, address: address, oneWay: roundTrip / 2, open: map[net.Conn]bool{},
	}
	d.all.Go(func() { d.accept(ctx) })
	return d, nil
}

// Close cuts all connections.
func (d *Distance) Close() error {
	d.mu.Lock()
	d.closed = true
	err := d.listener.Close()
	for conn := range d.open {
		_ = conn.Close() // whoever uses it is told
	}
	d.mu.Unlock()
	d.all.Wait()
	return err
}

func (d *Distance) accept(ctx context.Context) {
	for {
		client, err := d.listener.Accept()
		if err != nil {
			return
		}
		server, err := new(net.Dialer).DialContext(ctx, d.network, d.address)
		if err != nil {
			_ = client.Close()
			continue
		}
		d.mu.Lock()
		if d.closed {
			_, _ = client.Close(), server.Close()
		}
		d.open[client], d.open[server] = true, true
		d.mu.Unlock()
		d.all.Go(func() { d.carry(server, client) })
		d.all.Go(func() { d.carry(client, server) })
	}
}

// freight is something on its way.
type freight struct {
	data []byte
	due  time.Time
}

// onTheWay is how many pieces are on their way at most, in one direction of a connection.
const onTheWay = 1024

// carry brings what one side sends to the other, later.
func (d *Distance) carry(to, from net.Conn) {
	way := make(chan freight, onTheWay)
	d.all.Go(func() {
		for f := range way {
			time.Sleep(time.Until(f.due))
			if _, err := to.Write(f.data); err != nil {
				_ = from.Close()
			}
		}
		_, _ = to.Close(), from.Close()
		d.mu.Lock()
		delete(d.open, to)
		delete(d.open, from)
		d.mu.Unlock()
	})
	defer close(way)
	for {
		data := make([]byte, 64<<10)
		n, err := from.Read(data)
		if n > 0 {
			way <- freight{data[:n], time.Now().Add(d.oneWay)}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				_ = to.Close()
			}
			return
		}
	}
}
