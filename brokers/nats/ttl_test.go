package nats_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/nats"
)

// A message whose time to live is over leaves its stream, and one without stays; what is left of the time is rounded up,
// since the servers know whole seconds.
func TestMessageTTL(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	b := open(t, s.url, nats.Settings{MessageTTL: true, CreateDestinations: true})
	msgs := []brokers.Message{numbered("ordering::order", "a", 1), numbered("ordering::order", "a", 2), numbered("ordering::order", "a", 3)}
	msgs[0].ExpiresIn, msgs[1].ExpiresIn = time.Millisecond, time.Hour+time.Millisecond
	for _, result := range b.Publish(t.Context(), msgs) {
		require.NoError(t, result.Err)
	}
	stream, err := s.js.Stream(t.Context(), "ordering+order")
	require.NoError(t, err)
	for sequence, want := range map[uint64]string{1: "1s", 2: "3601s", 3: ""} {
		stored, err := stream.GetMsg(t.Context(), sequence)
		require.NoError(t, err)
		assert.Equal(t, want, stored.Header.Get(jetstream.MsgTTLHeader))
	}
	require.Eventually(t, func() bool {
		info, err := stream.Info(t.Context())
		return err == nil && info.State.Msgs == 2 && info.State.FirstSeq == 2
	}, patience, 10*time.Millisecond)
}

// A stream that does not allow it is its destination's problem: no message is charged, and the error says what to do.
func TestMessageTTLIsNotAllowed(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.stream(t, jetstream.StreamConfig{Name: "ORDERING", Subjects: []string{"ordering.>"}})
	b := open(t, s.url, nats.Settings{MessageTTL: true})
	msgs := []brokers.Message{numbered("ordering::order", "a", 1)}
	require.NoError(t, b.Publish(t.Context(), msgs)[0].Err, "one without needs nothing")
	msgs = []brokers.Message{numbered("ordering::order", "a", 2)}
	msgs[0].ExpiresIn = time.Minute
	results := b.Publish(t.Context(), msgs)
	assert.Equal(t, []string{"unavailable destination"}, classes(results))
	require.ErrorContains(t, results[0].Err, "per-message TTL is disabled")
	require.ErrorContains(t, results[0].Err, "--allow-msg-ttl")
	off := open(t, s.url)
	require.NoError(t, off.Publish(t.Context(), msgs)[0].Err)
}
