package toxic_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/internal/toxic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a server that says what it hears, and counts it.
type echo struct {
	addr string

	mu    sync.Mutex
	heard int
}

func startEcho(t *testing.T) *echo {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	e := &echo{addr: listener.Addr().String()}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, io.TeeReader(conn, e))
			})
		}
	})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		all.Wait()
	})
	return e
}

// Write counts.
func (e *echo) Write(data []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard += len(data)
	return len(data), nil
}

func (e *echo) take() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.heard
	e.heard = 0
	return n
}

// await waits until exactly n bytes were heard, which may be a moment after the client knows of its
// fate.
func (e *echo) await(t *testing.T, n int) {
	t.Helper()
	heard := 0
	require.Eventually(t, func() bool {
		heard += e.take()
		return heard >= n
	}, 10*time.Second, time.Millisecond)
	assert.Equal(t, n, heard)
}

// talk sends n bytes over a new connection and says how many came back, until the connection ended
// or they all did, or patience had run out.
func talk(t *testing.T, p *toxic.Proxy, n int, patience time.Duration) (back int, took time.Duration, err error) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.Addr(t))
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	began := time.Now()
	if _, err := conn.Write(make([]byte, n)); err != nil {
		return 0, 0, err
	}
	back, err = io.ReadFull(conn, make([]byte, n))
	return back, time.Since(began), err
}

func TestFaults(t *testing.T) {
	e := startEcho(t)
	p := toxic.Start(t, e.addr)
	healthy := func() {
		t.Helper()
		p.Heal(t)
		back, _, err := talk(t, p, 1000, 10*time.Second)
		require.NoError(t, err)
		require.Equal(t, 1000, back)
		e.take()
	}
	healthy()

	p.Latency(t, 60*time.Millisecond)
	_, took, err := talk(t, p, 10, 10*time.Second)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, took, 60*time.Millisecond)
	healthy()

	p.Bandwidth(t, 100)
	_, took, err = talk(t, p, 20_000, 10*time.Second)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, took, 150*time.Millisecond)
	healthy()

	p.CutRequests(t, 100)
	back, _, err := talk(t, p, 1000, 10*time.Second)
	require.Error(t, err)
	assert.LessOrEqual(t, back, 100)
	e.await(t, 100)
	healthy()

	p.CutAnswers(t, 100)
	back, _, err = talk(t, p, 1000, 10*time.Second)
	require.Error(t, err)
	assert.Equal(t, 100, back)
	e.await(t, 1000)
	healthy()

	p.Reset(t)
	back, _, err = talk(t, p, 1000, 10*time.Second)
	require.Error(t, err)
	assert.Zero(t, back)
	assert.Zero(t, e.take())
	healthy()

	p.BlackHole(t)
	back, _, err = talk(t, p, 1000, 100*time.Millisecond)
	require.ErrorContains(t, err, "timeout")
	assert.Zero(t, back)
	e.await(t, 1000)
	healthy()

	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.Addr(t))
	require.NoError(t, err)
	defer conn.Close()
	p.Down(t)
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	_, err = new(net.Dialer).DialContext(t.Context(), "tcp", p.Addr(t))
	require.ErrorContains(t, err, "refused")
	p.Up(t)
	healthy()
}
