package natsconsumer

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// steal is a process that dies with the message that is delivered next.
func (s *jetServer) steal(t *testing.T) {
	t.Helper()
	durable, err := s.js.Consumer(t.Context(), "ORDERING", "billing")
	require.NoError(t, err)
	batch, err := durable.Fetch(1, jetstream.FetchMaxWait(20*time.Second))
	require.NoError(t, err)
	_, some := <-batch.Messages()
	require.True(t, some)
}

// With BackOff a message that was lost twice comes again later than AckWait, which is the first step of
// it: what is behind it waits all the same.
func TestSoleWaitsForBackOff(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{BackOff: []time.Duration{200 * time.Millisecond, 4 * time.Second}})
	s.publish(t, message("k", "1"))
	s.steal(t)
	s.steal(t)
	s.publish(t, message("k", "2"))
	o := &diary{}
	c, err := NewConsumer(s.conn, "ORDERING", "billing", o, silent, hurried, WithSole())
	require.NoError(t, err)
	stop := begin(t, c)
	eventually(t, func() bool { return s.unconfirmed(t) == 0 }, "both are done")
	require.NoError(t, stop())
	require.Equal(t, []string{"1", "2"}, o.done())
}

// A connection that is closed while what was lost is waited for ends Run, as at any other time.
func TestSoleWithoutConnection(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	s.publish(t, message("k", "1"))
	s.steal(t)
	conn, err := nats.Connect(s.url)
	require.NoError(t, err)
	c, err := NewConsumer(conn, "ORDERING", "billing", handler, silent, hurried, WithSole())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	eventually(t, func() bool { return conn.Stats().OutMsgs > 3 }, "it looks what is missing")
	conn.Close()
	require.ErrorContains(t, <-ended, "the connection was closed before the consumer had stopped")
}
