package redisstreams_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

func TestRefusedConnection(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	b := open(t, "redis://user:secret@"+listener.Addr().String())
	var dials atomic.Int64
	b.Client().AddHook(dialling(func() { dials.Add(1) }))
	results := b.Publish(t.Context(), append(many("s", 150, 3), many("u", 150, 3)...))
	assert.Equal(t, map[string]int{"unavailable broker": 100, "not_sent": 200}, verdicts(results))
	assert.Equal(t, int64(1), dials.Load(), "no retries of the client's")
	require.ErrorContains(t, results[0].Err, `redisstreams: publish to "s"`)
	require.ErrorContains(t, results[0].Err, "check that the server runs")
	assert.NotContains(t, results[0].Err.Error(), "secret")
	var refused *net.OpError
	assert.ErrorAs(t, results[0].Err, &refused, "the cause stays in the chain")
	assert.ErrorContains(t, b.Ping(t.Context()), "redisstreams: ping")
}

// A connection that breaks and a server that does not answer are outages of the broker.
func TestBrokenConnections(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(net.Conn){
		"closed at once":          func(c net.Conn) { _ = c.Close() },
		"closed after some bytes": func(c net.Conn) { _, _ = c.Read(make([]byte, 10)); _ = c.Close() },
		"reset": func(c net.Conn) {
			_, _ = c.Read(make([]byte, 10))
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		},
		"says nothing": func(c net.Conn) { // go-redis leaves a connection that failed at its greeting to the garbage collector
			_ = c.SetReadDeadline(time.Now().Add(time.Second))
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					c, err := listener.Accept()
					if err != nil {
						return
					}
					serve(c)
				}
			}()
			t.Cleanup(func() { // after the broker's, which closes the connections
				require.NoError(t, listener.Close())
				<-done
			})
			b := open(t, "redis://"+listener.Addr().String()+"?read_timeout=100ms&dial_timeout=100ms")
			results := b.Publish(t.Context(), many("s", 150, 3))
			assert.Equal(t, map[string]int{"unavailable broker": 100, "not_sent": 50}, verdicts(results), "%v", results[0].Err)
		})
	}
}

// A deadline that passes during a call is an outage; after a cancellation by the caller nothing is
// known.
func TestContextEndsDuringACall(t *testing.T) {
	url := testenv.Redis(t)
	for name, c := range map[string]struct {
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		want string
	}{
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, pass := testenv.Deadline(ctx)
			return ctx, pass
		}, "unavailable broker"},
		"cancelled": {context.WithCancel, "retryable"},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, url)
			ctx, end := c.ctx(t.Context())
			defer end()
			b.Client().AddHook(during(func() error { // as if the connection broke at that moment
				end()
				<-ctx.Done()
				return errors.New("i/o timeout")
			}))
			assert.Equal(t, map[string]int{c.want: 100, "not_sent": 50}, verdicts(b.Publish(ctx, many("s", 150, 3))))
		})
	}
}

// dialling is called for each connection that is tried.
type dialling func()

func (d dialling) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		d()
		return next(ctx, network, address)
	}
}
func (dialling) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (dialling) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// during calls a function instead of sending a command.
type during func() error

func (d during) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		err := d()
		cmd.SetErr(err)
		return err
	}
}

func (during) DialHook(next redis.DialHook) redis.DialHook { return next }

func (during) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
