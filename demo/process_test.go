package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A consumer that ends by itself is an error, with what it had to say.
func TestConsumerThatEndsByItself(t *testing.T) {
	t.Parallel()
	p := &projector{cfg: consumerConfig{Redis: "127.0.0.1:1", PubSub: "127.0.0.1:1", Database: filepath.Join(t.TempDir(), "no", "such", "folder", "consumer.db")}}
	require.NoError(t, p.start(t.Context()))
	defer p.close()
	<-p.done
	for _, err := range []error{p.ended(), p.kill(), p.stop()} {
		require.ErrorContains(t, err, "has ended by itself: exit status 1")
		require.ErrorContains(t, err, "unable to open database file")
	}
	assert.Zero(t, p.kills)
}

// Without its parent there is no consumer: it stops by itself when the pipe to it breaks.
func TestConsumerEndsWithItsParent(t *testing.T) {
	t.Parallel()
	servers, err := startServers(t.Context())
	require.NoError(t, err)
	defer servers.close()
	p := &projector{cfg: consumerConfig{Redis: servers.redisAddr(), PubSub: servers.partnerAddr(), Database: filepath.Join(t.TempDir(), "consumer.db")}}
	require.NoError(t, p.start(t.Context()))
	defer p.close()
	_, err = servers.redis.XAdd(internalStream, "*", []string{
		"data", `{"specversion":"1.0","id":"1","source":"/test","type":"Ordering.OrderShipped.v1","data":{}}`,
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool { n, _ := p.reports.numbers(); return n > 0 }, time.Minute, time.Millisecond, "it is at work")
	require.NoError(t, p.ended())
	require.NoError(t, p.stdin.Close())
	<-p.done
	require.NoError(t, p.err, "in good order: %s", p.said)
	sums, err := projected(t.Context(), p.cfg.Database)
	require.NoError(t, err)
	assert.Equal(t, map[string]Projection{warehouse: {OrdersShipped: 1}}, sums, "what was in progress is finished")
}

// whenSaid calls f when a text is written.
type whenSaid struct {
	text string
	f    func()
}

func (w whenSaid) Write(text []byte) (int, error) {
	if strings.Contains(string(text), w.text) {
		w.f()
	}
	return len(text), nil
}

// Whoever interrupts the demo in the middle, with the consumer at work and a broker away, is left
// with no process and no file.
func TestInterrupted(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // Unix
	t.Setenv("TMP", os.TempDir())   // Windows
	for _, text := range []string{"is killed after", "partner's server has closed", "internal broker has closed"} {
		ctx, interrupt := context.WithCancel(t.Context())
		result, err := demonstrate(ctx, settings{orders: 50, live: whenSaid{text, interrupt}})
		require.ErrorIs(t, err, context.Canceled, text)
		assert.Nil(t, result)
		left, err := os.ReadDir(os.TempDir())
		require.NoError(t, err)
		assert.Empty(t, left, text)
	}
}

func TestReports(t *testing.T) {
	t.Parallel()
	var r reports
	for _, text := range []string{"deliv", "ered\ndelivered\nduplicate\nwhat?\n", "dupli"} {
		n, err := r.Write([]byte(text))
		require.NoError(t, err)
		assert.Len(t, text, n)
	}
	r.forget() // that process was killed
	_, err := r.Write([]byte("delivered\n"))
	require.NoError(t, err)
	delivered, duplicates := r.numbers()
	assert.Equal(t, 3, delivered)
	assert.Equal(t, 1, duplicates)
}
