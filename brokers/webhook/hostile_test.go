package webhook_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/webhook"
)

// An endpoint that switches to another protocol and then says nothing blocks no other: the body of
// such an answer is the connection itself, which knows no context.
func TestSwitchingProtocols(t *testing.T) {
	t.Parallel()
	p := startPartner(t, false)
	ended := make(chan struct{})
	p.answers(func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: silence\r\n\r\n")
		_ = buffered.Flush()
		go func() {
			<-ended
			_ = conn.Close()
		}()
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answered := make(chan []brokers.Result, 1)
	b := p.open(t)
	go func() { answered <- b.Publish(ctx, []brokers.Message{numbered("x", "a", 1), numbered("x", "a", 2)}) }()
	watchdog, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	select {
	case results := <-answered:
		close(ended)
		assert.Equal(t, []string{"unavailable broker", "not_sent"}, classes(results))
	case <-watchdog.Done():
		close(ended)
		<-answered
		t.Fatal("Publish waits for an endpoint that says nothing")
	}
}

// The status decides. An answer whose body does not end holds neither its message nor the slot for
// other requests.
func TestEndlessBody(t *testing.T) {
	t.Parallel()
	bodies := map[string]func(w http.ResponseWriter, r *http.Request){
		"silent": func(http.ResponseWriter, *http.Request) {},
		"drips":  func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "drip ") },
		"gushes": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 16<<10)); err != nil {
					return
				}
			}
		},
	}
	for _, version := range []string{"HTTP1", "HTTP2"} {
		for name, body := range bodies {
			t.Run(version+"/"+name, func(t *testing.T) {
				t.Parallel()
				ended := make(chan struct{})
				p := startPartner(t, version == "HTTP2")
				t.Cleanup(func() { close(ended) })
				p.answers(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Fanout-Ordering-Key") == "refused" {
						w.WriteHeader(http.StatusUnprocessableEntity)
						_, _ = io.WriteString(w, "not this one")
					}
					_ = http.NewResponseController(w).Flush()
					body(w, r)
					_ = http.NewResponseController(w).Flush()
					select {
					case <-r.Context().Done():
					case <-ended:
					}
				})
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				b := p.open(t, webhook.Settings{Concurrency: 1, RequestTimeout: 2 * patience})
				results := b.Publish(ctx, []brokers.Message{
					numbered("x", "a", 1), numbered("x", "a", 2), numbered("x", "refused", 3), numbered("x", "b", 4),
				})
				require.NoError(t, ctx.Err(), "the call waits for the end of a body")
				assert.Equal(t, []string{"", "", "retryable", ""}, classes(results))
				require.ErrorContains(t, results[2].Err, "not this one")
			})
		}
	}
}

// A connection over which an answer did not come is not used again: over HTTP/2 it would take every
// further message, until the system gives it up after a quarter of an hour.
func TestSilentConnectionIsLeft(t *testing.T) {
	t.Parallel()
	p := startPartner(t, true)
	b := p.open(t, webhook.Settings{RequestTimeout: 2 * time.Second})
	require.NoError(t, b.Publish(t.Context(), []brokers.Message{numbered("x", "a", 1)})[0].Err)
	p.fallsSilent()
	assert.Equal(t, []string{"unavailable broker"}, classes(b.Publish(t.Context(), []brokers.Message{numbered("x", "a", 2)})))
	require.Eventually(t, func() bool { // over another connection
		return b.Publish(t.Context(), []brokers.Message{numbered("x", "a", 2)})[0].Err == nil
	}, patience, time.Millisecond)
}
