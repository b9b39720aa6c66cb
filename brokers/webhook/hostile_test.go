package webhook_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

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
	watchdog, stop := context.WithTimeout(t.Context(), patience/6)
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
				p.serves(func(w http.ResponseWriter, r *http.Request) {
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

// No answer ends a message at once, or says by itself whose failure it is.
func TestNoAnswerIsFinal(t *testing.T) {
	t.Parallel()
	p := startPartner(t, false)
	b := p.open(t)
	for status := 300; status < 600; status++ {
		p.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		err := b.Publish(t.Context(), []brokers.Message{numbered("x", "a", 1)})[0].Err
		scope, refused := brokers.Refusal(err)
		class, out := brokers.Classify(err)
		if refused {
			assert.Equal(t, brokers.ClassRetryable, class, "%d", status)
		} else {
			assert.Equal(t, brokers.ClassUnavailable, class, "%d", status)
			scope = out
		}
		assert.Equal(t, brokers.ScopeBroker, scope, "%d", status)
	}
}

// Ping may be called while the first message goes out: run with -race.
func TestPingBesidePublish(t *testing.T) {
	t.Parallel()
	p := startPartner(t, true)
	b := p.open(t)
	var both sync.WaitGroup
	both.Go(func() {
		for range 20 {
			assert.NoError(t, b.Ping(t.Context()))
		}
	})
	both.Go(func() { assert.NoError(t, b.Publish(t.Context(), []brokers.Message{numbered("x", "a", 1)})[0].Err) })
	both.Wait()
}

// A connection over which an answer did not come is not used again: over HTTP/2 it would take every
// further message, until the system gives it up after a quarter of an hour.
func TestSilentConnectionIsLeft(t *testing.T) {
	t.Parallel()
	p := startPartner(t, true)
	through, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	proxied := &silencer{Listener: through, to: p.address}
	go proxied.run()
	t.Cleanup(proxied.close)
	b := p.connect(t, through.Addr().String(), webhook.Settings{RequestTimeout: patience / 15})
	t.Cleanup(func() { closeBroker(t, b) })
	require.NoError(t, b.Publish(t.Context(), []brokers.Message{numbered("x", "a", 1)})[0].Err)
	proxied.silence()
	assert.Equal(t, []string{"unavailable broker"}, classes(b.Publish(t.Context(), []brokers.Message{numbered("x", "a", 2)})))
	assert.Equal(t, []string{""}, classes(b.Publish(t.Context(), []brokers.Message{numbered("x", "a", 2)})), "over another connection")
}

// silencer stands between client and endpoint. Connections that it has silenced take everything, and
// hand nothing on.
type silencer struct {
	net.Listener

	to string

	mu    sync.Mutex
	pairs []*pair
	conns []net.Conn
}

type pair struct {
	mu     sync.Mutex
	silent bool
}

func (s *silencer) run() {
	for {
		from, err := s.Accept()
		if err != nil {
			return
		}
		to, err := new(net.Dialer).Dial("tcp", s.to)
		if err != nil {
			_ = from.Close()
			continue
		}
		one := &pair{}
		s.mu.Lock()
		s.pairs, s.conns = append(s.pairs, one), append(s.conns, from, to)
		s.mu.Unlock()
		go one.pass(from, to)
		go one.pass(to, from)
	}
}

func (p *pair) pass(from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		silent := p.silent
		p.mu.Unlock()
		if !silent {
			_, _ = to.Write(buffer[:n])
		}
		if err != nil {
			_ = to.Close()
			return
		}
	}
}

func (s *silencer) silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.pairs {
		one.mu.Lock()
		one.silent = true
		one.mu.Unlock()
	}
}

func (s *silencer) close() {
	_ = s.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.conns {
		_ = conn.Close()
	}
}
