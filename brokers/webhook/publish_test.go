package webhook_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/webhook"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// The class of each answer. None ends a message at once, or says by itself whose failure it is.
func TestAnswers(t *testing.T) {
	t.Parallel()
	p := startPartner(t, false)
	b := p.open(t)
	out := map[int]bool{401: true, 403: true, 404: true, 405: true, 407: true, 410: true, 429: true}
	for status := 200; status < 600; status++ {
		want := "retryable" // refused: see brokers.Refused
		switch {
		case status < 300:
			want = ""
		case status < 400, status >= 500, out[status]:
			want = "unavailable broker"
		}
		p.answers(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://127.0.0.1:1/")
			w.WriteHeader(status)
			if status >= 400 && status%10 == 0 {
				_, _ = io.WriteString(w, "no:\x1b[31m "+strings.Repeat("x", 1_000_000))
			}
		})
		err := b.Publish(t.Context(), []brokers.Message{numbered("x", "a", 1)})[0].Err
		assert.Equal(t, []string{want}, classes([]brokers.Result{{Err: err}}), "%d", status)
		scope, refused := brokers.Refusal(err)
		assert.Equal(t, want == "retryable", refused, "%d", status)
		if want == "" {
			continue
		}
		if refused {
			assert.Equal(t, brokers.ScopeBroker, scope, "%d", status)
		}
		require.ErrorContains(t, err, fmt.Sprintf("webhook: https://%s: it answered %d", p.address, status))
		assert.Less(t, len(err.Error()), 600)
		assert.NotContains(t, err.Error(), "token-4711")
		assert.NotContains(t, err.Error(), "\x1b")
	}
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int64
	p := startPartner(t, true)
	p.answers(func(http.ResponseWriter, *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for was := most.Load(); n > was && !most.CompareAndSwap(was, n); {
			was = most.Load()
		}
		<-time.After(time.Millisecond) // in which others come, if they may
	})
	b := p.open(t, webhook.Settings{Concurrency: 3})
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			for i := range 50 {
				for _, result := range b.Publish(t.Context(), []brokers.Message{numbered("x", "", i), numbered("x", "", i), numbered("x", "", i)}) {
					assert.NoError(t, result.Err)
				}
			}
		})
	}
	calls.Wait()
	assert.LessOrEqual(t, most.Load(), int64(3))
}

// An endpoint that asks for a pause gets it, from every call.
func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	p := startPartner(t, false)
	b := p.open(t)
	p.answers(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1800")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	msgs := []brokers.Message{numbered("x", "a", 1), numbered("x", "b", 2)}
	results := b.Publish(t.Context(), msgs[:1])
	assert.Equal(t, []string{"unavailable broker"}, classes(results))
	require.ErrorContains(t, results[0].Err, "it answered 429 Too Many Requests (it asks for a pause of 30m0s): lower the rate of the broker")
	asked := p.requests()
	for range 3 {
		results = b.Publish(t.Context(), msgs)
		require.ErrorContains(t, results[0].Err, "it has asked for a pause until ")
		for _, class := range classes(results) {
			assert.Contains(t, []string{"unavailable broker", "not_sent"}, class)
		}
	}
	assert.Equal(t, asked, p.requests())
}

// A redirect is an answer, and never followed.
func TestRedirect(t *testing.T) {
	t.Parallel()
	elsewhere := startPartner(t, false)
	p := startPartner(t, false)
	b := p.open(t)
	for _, status := range []int{301, 302, 303, 307, 308} {
		p.answers(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://"+elsewhere.address+"/", status)
		})
		results := b.Publish(t.Context(), []brokers.Message{numbered("x", "a", 1)})
		require.ErrorContains(t, results[0].Err, "redirects are not followed: name the URL itself")
	}
	assert.Zero(t, elsewhere.requests())
}

// No name leads to an address that is not public.
func TestPrivateAddresses(t *testing.T) {
	t.Parallel()
	p := startPartner(t, false)
	_, port, _ := strings.Cut(p.address, ":")
	for _, host := range []string{"127.0.0.1", "[::1]", "169.254.169.254", "[::ffff:10.0.0.1]"} {
		_, err := webhook.Open(webhook.Settings{URL: adapter.Secret("https://" + host + ":" + port), Secrets: []adapter.Secret{adapter.Secret(p.secret)}})
		require.ErrorContains(t, err, "is not public; if it is meant, allow private networks", host)
	}
	for _, host := range []string{"localhost", "0x7f000001", "127.1"} {
		b, err := webhook.Open(webhook.Settings{URL: adapter.Secret("https://" + host + ":" + port), Secrets: []adapter.Secret{adapter.Secret(p.secret)}, TLSConfig: p.trust()})
		require.NoError(t, err)
		defer closeBroker(t, b)
		results := b.Publish(t.Context(), []brokers.Message{numbered("x", "a", 1), numbered("x", "b", 1)})
		assert.Equal(t, "unavailable broker", classes(results)[0], host)
		require.Error(t, b.Ping(t.Context()))
		if host == "localhost" {
			require.ErrorContains(t, results[0].Err, "is not public; if it is meant")
			require.ErrorContains(t, b.Ping(t.Context()), "is not public; if it is meant")
		}
	}
	assert.Zero(t, p.requests())
}

func TestWhatDoesNotConnect(t *testing.T) {
	t.Parallel()
	p := startPartner(t, false)
	plain := httptest.NewServer(nil)
	defer plain.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	for says, b := range map[string]*webhook.Broker{
		"check the host, or name its certificate authority": p.open(t, webhook.Settings{TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12}}),
		"the port does not talk TLS":                        p.connect(t, plain.Listener.Addr().String()),
		"check that the endpoint is up":                     p.connect(t, gone.Listener.Addr().String()),
		"fanout.invalid: ":                                  p.connect(t, "fanout.invalid"),
	} {
		results := b.Publish(t.Context(), []brokers.Message{numbered("x", "a", 1), numbered("x", "a", 2)})
		assert.Equal(t, []string{"unavailable broker", "not_sent"}, classes(results), says)
		require.ErrorContains(t, results[0].Err, says)
		assert.NotContains(t, results[0].Err.Error(), "token-4711")
		require.ErrorContains(t, b.Ping(t.Context()), says)
		closeBroker(t, b)
	}
}

func TestSilentEndpoint(t *testing.T) {
	t.Parallel()
	p := startPartner(t, true)
	p.answers(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	b := p.open(t, webhook.Settings{RequestTimeout: 200 * time.Millisecond})
	results := b.Publish(t.Context(), []brokers.Message{numbered("x", "a", 1), numbered("x", "a", 2)})
	assert.Equal(t, []string{"unavailable broker", "not_sent"}, classes(results))
	require.ErrorContains(t, results[0].Err, "no answer in time")
}

func TestURLs(t *testing.T) {
	t.Parallel()
	secret := webhook.NewSecret()
	for endpoint, says := range map[string]string{
		"":                            "is not understood",
		"partner.example/hooks-hush":  "is not understood",
		"https:hush":                  "is not understood",
		"https://u:hu%zzsh@h/":        "is not understood",
		"http://partner.example/hush": "use https://, or allow it (allow_http)",
		"ftp://partner.example/hush":  `begins with "ftp://": use https://`,
		"https://h/hush#part":         "has a fragment",
	} {
		_, err := webhook.Open(webhook.Settings{URL: adapter.Secret(endpoint), Secrets: []adapter.Secret{adapter.Secret(secret)}})
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, "webhook: open: ")
		assert.NotContains(t, err.Error(), "hush")
	}
	_, err := webhook.Open(webhook.Settings{URL: "https://partner.example", Secrets: []adapter.Secret{"hush"}})
	require.ErrorContains(t, err, "webhook: open: secret 1 is not")
}

// The headers that a partner sees.
func TestHeaders(t *testing.T) {
	t.Parallel()
	p := startPartner(t, false)
	got := make(chan http.Header, 1)
	p.answers(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Clone() })
	m := numbered("ordering::order", "ordering::order-日", 1)
	m.ContentType = "application/cloudevents+json"
	m.CorrelationID = "50 %"
	m.Attributes = []brokers.Attribute{
		{Name: "tenant_id", Value: "acme"},
		{Name: "tenant-id", Value: "taken"},
		{Name: "Large", Value: "x"},
		{Name: "type", Value: "x"},
		{Name: "traceparent", Value: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		{Name: "tracestate", Value: "a=\nb"},
		{Name: "content-length", Value: "7"},
		{Name: "webhook-id", Value: "x"},
		{Name: "huge", Value: strings.Repeat("x", 7000)},
	}
	results := p.open(t).Publish(t.Context(), []brokers.Message{m})
	require.NoError(t, results[0].Err)
	assert.Equal(t, []string{"tenant-id", "Large", "type", "tracestate", "huge"}, results[0].Omitted)
	header := <-got
	for name, want := range map[string]string{
		"Webhook-Id": "id-1", "Fanout-Destination": "ordering::order", "Fanout-Type": "T.v1", "Fanout-Ordering-Key": "ordering::order-%E6%97%A5",
		"Fanout-Correlation-Id": "50 %25", "Content-Type": "application/cloudevents+json", "Fanout-Tenant-Id": "acme", "Content-Length": "1",
		"Traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "Fanout-Content-Length": "7", "User-Agent": "fanout-webhook/1",
	} {
		assert.Equal(t, want, header.Get(name), name)
	}
}

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
	testenv.NeedSeconds(t)
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
	testenv.NeedSeconds(t)
	p := startPartner(t, true)
	b := p.open(t, webhook.Settings{RequestTimeout: 2 * time.Second})
	require.NoError(t, b.Publish(t.Context(), []brokers.Message{numbered("x", "a", 1)})[0].Err)
	p.fallsSilent()
	assert.Equal(t, []string{"unavailable broker"}, classes(b.Publish(t.Context(), []brokers.Message{numbered("x", "a", 2)})))
	require.Eventually(t, func() bool { // over another connection
		return b.Publish(t.Context(), []brokers.Message{numbered("x", "a", 2)})[0].Err == nil
	}, patience, time.Millisecond)
}
