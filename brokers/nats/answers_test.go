package nats_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/nats"
)

// answers has a subject answered as a stream would, by what answer returns: empty is silence.
func answers(t *testing.T, s *jetServer, subject string, answer func(m *client.Msg) string) {
	t.Helper()
	_, err := s.conn.Subscribe(subject, func(m *client.Msg) {
		if said := answer(m); said != "" {
			assert.NoError(t, m.Respond([]byte(said)))
		}
	})
	require.NoError(t, err)
	require.NoError(t, s.conn.Flush())
}

const (
	stored    = `{"stream":"ORDERING","seq":1}`
	inProcess = `{"error":{"code":409,"err_code":10158,"description":"duplicate message id is in process"}}`
)

// An acknowledgment that is lost is waited for as long as the option says, whatever the caller's
// patience.
func TestLostAcknowledgment(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	answers(t, s, "silent", func(*client.Msg) string { return "" })
	b := open(t, s.url, nats.Settings{Timeout: 50 * time.Millisecond})
	results := b.Publish(t.Context(), []brokers.Message{numbered("silent", "a", 1), numbered("silent", "a", 2)})
	assert.Equal(t, []string{"unavailable broker", "not_sent"}, classes(results))
	require.ErrorContains(t, results[0].Err, "no acknowledgment within 50ms")
	require.ErrorContains(t, results[0].Err, "most of its servers")
}

// A copy of a message that the servers are still storing has it refused for some milliseconds: it
// is sent again in the same call, and the messages behind it on its key wait for it.
func TestDuplicateInProcess(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	const messages, keys, conflicts = 60, 6, 3
	var (
		mu    sync.Mutex
		seen  = map[string]int{}
		taken []string
	)
	answers(t, s, "ordering.order", func(m *client.Msg) string {
		mu.Lock()
		defer mu.Unlock()
		id := m.Header.Get(brokers.FieldID)
		if seen[id]++; seen[id] <= conflicts && id != "id-0" {
			return inProcess
		}
		taken = append(taken, id)
		return stored
	})
	msgs := make([]brokers.Message, messages)
	for i := range msgs {
		msgs[i] = numbered("ordering::order", fmt.Sprint("key-", i%keys), i)
	}
	for _, few := range []int{2000, 2} {
		mu.Lock()
		clear(seen)
		taken = nil
		mu.Unlock()
		for i, result := range open(t, s.url, nats.Settings{MaxPending: few}).Publish(t.Context(), msgs) {
			require.NoError(t, result.Err, "%d", i)
		}
		place := map[string]int{}
		require.Len(t, taken, messages)
		for i, id := range taken {
			place[id] = i
		}
		for i := keys; i < messages; i++ {
			require.Less(t, place[msgs[i-keys].ID], place[msgs[i].ID], "the order of %s", msgs[i].OrderingKey)
		}
	}
}

// One that stays in process is no message's fault, and no other key's.
func TestDuplicateStaysInProcess(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	answers(t, s, "ordering.order", func(m *client.Msg) string {
		if m.Header.Get(brokers.FieldID) == "id-1" {
			return inProcess
		}
		return stored
	})
	results := open(t, s.url).Publish(t.Context(), []brokers.Message{
		numbered("ordering::order", "a", 1), numbered("ordering::order", "a", 2), numbered("ordering::order", "b", 3),
	})
	assert.Equal(t, []string{"unavailable partition", "not_sent", ""}, classes(results), "%v", results)
	require.ErrorContains(t, results[0].Err, "duplicate message id is in process")
}

// Copies of messages at the same time, as after a lease that has expired: each is stored once, and
// both calls have it.
func TestCopiesAtTheSameTime(t *testing.T) {
	t.Parallel()
	s := startProcesses(t, 3)
	stream := s.stream(t, jetstream.StreamConfig{Name: "ORDERING", Subjects: []string{"ordering.>"}, Replicas: 3})
	msgs := make([]brokers.Message, 400)
	for i := range msgs {
		msgs[i] = numbered("ordering::order", "", i)
	}
	var calls sync.WaitGroup
	for range 3 {
		b := open(t, s.url)
		calls.Go(func() {
			for i, result := range b.Publish(t.Context(), msgs) {
				assert.NoError(t, result.Err, "%d", i)
			}
		})
	}
	calls.Wait()
	info, err := stream.Info(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, len(msgs), info.State.Msgs)
}

// A stream whose servers are gone is not a missing one, and a cluster without most of its servers
// says so.
func TestNoQuorum(t *testing.T) {
	t.Parallel()
	s := startProcesses(t, 3)
	s.stream(t, jetstream.StreamConfig{Name: "ORDERING", Subjects: []string{"ordering.>"}})
	b := open(t, s.url, nats.Settings{Timeout: time.Second, CreateDestinations: true})
	message := []brokers.Message{numbered("ordering::order", "a", 1)}
	require.NoError(t, b.Publish(t.Context(), message)[0].Err)
	says := func(class, what string) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) { // leaders are missed after seconds
			results := b.Publish(t.Context(), message)
			require.Error(c, results[0].Err)
			assert.NotContains(t, results[0].Err.Error(), "create a stream with", "there is one")
			assert.Equal(c, []string{class}, classes(results))
			assert.ErrorContains(c, results[0].Err, what)
		}, 2*patience, 10*time.Millisecond)
	}
	s.kill(t, s.leader(t, "ORDERING"))
	says("unavailable destination", `the stream "ORDERING" has no leader`)
	for _, node := range s.nodes {
		if len(s.stopped) == 1 && node != s.stopped[0] {
			s.kill(t, node)
		}
	}
	says("unavailable broker", "start the servers of the cluster that are missing")
}
