package rabbitmqconsumer_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// A tap lies before a server and counts the messages that clients confirm to it, since AMQP has no
// question for how many a queue has handed out. It reads frames of AMQP 0-9-1 (4.2.3).
type tap struct {
	listener net.Listener
	server   string
	acked    atomic.Int64
	running  sync.WaitGroup

	subscribed atomic.Int64 // how often clients have asked for a subscription

	deaf      atomic.Bool                   // the server hears no subscription
	swallowed atomic.Int64                  // how many it has not heard
	alarm     atomic.Pointer[chan struct{}] // until it is closed, the server reads no more from who publishes
}

func startTap(t *testing.T, server string) *tap {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &tap{listener: listener, server: server}
	ctx, cancel := context.WithCancel(context.Background())
	p.running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.serve(ctx, client) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		p.running.Wait()
	})
	return p
}

func (p *tap) addr() string { return p.listener.Addr().String() }

func (p *tap) serve(ctx context.Context, client net.Conn) {
	defer client.Close()
	server, err := new(net.Dialer).DialContext(ctx, "tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() {
		_ = client.Close()
		_ = server.Close()
	})()
	p.running.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	p.forward(bufio.NewReader(client), server)
}

// forward hands on what a client says, frame by frame.
func (p *tap) forward(from io.Reader, to io.Writer) {
	header := make([]byte, 8) // "AMQP", version
	if _, err := io.ReadFull(from, header); err != nil {
		return
	}
	if _, err := to.Write(header); err != nil {
		return
	}
	for {
		start := make([]byte, 7)
		if _, err := io.ReadFull(from, start); err != nil {
			return
		}
		frame := make([]byte, 7+binary.BigEndian.Uint32(start[3:])+1)
		copy(frame, start)
		if _, err := io.ReadFull(from, frame[7:]); err != nil {
			return
		}
		const method, basic, consume, publish, ack, reject = 1, 60, 20, 40, 80, 90
		said := uint16(0)
		if frame[0] == method && binary.BigEndian.Uint16(frame[7:]) == basic {
			said = binary.BigEndian.Uint16(frame[9:])
		}
		if said == consume {
			p.subscribed.Add(1)
		}
		if said == consume && p.deaf.Load() {
			p.swallowed.Add(1)
			continue
		}
		if alarm := p.alarm.Load(); said == publish && alarm != nil {
			<-*alarm
		}
		if _, err := to.Write(frame); err != nil {
			return
		}
		if said == ack || said == reject {
			p.acked.Add(1) // the consumer confirms each by itself, and rejects none for it to come again
		}
	}
}
