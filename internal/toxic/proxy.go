// Package toxic puts a proxy between a client under test and its server, and makes the network
// between them ill. The proxy is Shopify's toxiproxy, in a process of its own that make test builds
// and starts: the library's module must not require it, and so it is reached over its HTTP API. It
// is for tests alone: nothing else imports it.
package toxic

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/testservers"
)

// The directions of toxiproxy.
const (
	requests = "upstream"
	answers  = "downstream"
)

// patience bounds a request to toxiproxy, which gives up by itself after 25 seconds.
const patience = 30 * time.Second

// Proxy is a proxy in front of one server. Faults hold for connections that are open and for those
// to come, until Heal; several may hold at once, one of each kind. It fulfils brokertest.Network,
// and is safe for concurrent use.
type Proxy struct {
	url  string // of the proxy in toxiproxy's API; empty where there is no toxiproxy
	addr string

	mu     sync.Mutex
	toxics []string // names of those that hold
}

// Start starts a proxy in front of the server at the address upstream (host:port); it ends with the
// test. Where there is no toxiproxy, it is Addr that ends tests, so that a suite can go on with
// those that need no proxy.
func Start(t testing.TB, upstream string) *Proxy {
	t.Helper()
	api := strings.TrimSuffix(os.Getenv(testservers.ToxiproxyVariable), "/")
	if api == "" {
		return new(Proxy)
	}
	name := strings.ToLower(rand.Text())
	var created struct{ Listen string }
	call(t, http.MethodPost, api+"/proxies", map[string]any{"name": name, "listen": "127.0.0.1:0", "upstream": upstream}, &created)
	p := &Proxy{url: api + "/proxies/" + name, addr: created.Listen}
	t.Cleanup(func() { call(t, http.MethodDelete, p.url, nil, nil) })
	return p
}

// Addr is where the proxy listens. Without toxiproxy it skips the test t, or fails it where servers
// are required.
func (p *Proxy) Addr(t testing.TB) string {
	t.Helper()
	if p.url == "" {
		testenv.Toxiproxy(t)
	}
	return p.addr
}

// Latency holds back each packet, in both directions, for half of d: a round trip takes d longer.
func (p *Proxy) Latency(t testing.TB, d time.Duration) {
	t.Helper()
	p.add(t, "latency", map[string]any{"latency": (d / 2).Milliseconds()}, requests, answers)
}

// Bandwidth lets so many kilobytes per second through, in each direction.
func (p *Proxy) Bandwidth(t testing.TB, kilobytes int) {
	t.Helper()
	p.add(t, "bandwidth", map[string]any{"rate": kilobytes}, requests, answers)
}

// Reset breaks each connection (RST where it was opened after the call) as soon as something is
// sent.
func (p *Proxy) Reset(t testing.TB) {
	t.Helper()
	p.add(t, "reset_peer", map[string]any{"timeout": 0}, requests)
}

// CutRequests ends each connection after n further bytes from the client.
func (p *Proxy) CutRequests(t testing.TB, n int) {
	t.Helper()
	p.add(t, "limit_data", map[string]any{"bytes": n}, requests)
}

// CutAnswers ends each connection after n further bytes from the server.
func (p *Proxy) CutAnswers(t testing.TB, n int) {
	t.Helper()
	p.add(t, "limit_data", map[string]any{"bytes": n}, answers)
}

// BlackHole swallows all that the server says: what the client sends arrives, and it gets no
// answer.
func (p *Proxy) BlackHole(t testing.TB) {
	t.Helper()
	p.add(t, "timeout", map[string]any{"timeout": 0}, answers)
}

// Down ends all connections and refuses new ones, as a server does that has stopped, until Up.
func (p *Proxy) Down(t testing.TB) {
	t.Helper()
	p.enable(t, false)
}

// Up ends what Down began.
func (p *Proxy) Up(t testing.TB) {
	t.Helper()
	p.enable(t, true)
}

func (p *Proxy) enable(t testing.TB, enabled bool) {
	t.Helper()
	p.Addr(t) // which ends a test that has no proxy
	call(t, http.MethodPost, p.url, map[string]any{"enabled": enabled}, nil)
}

// Heal ends all faults. Connections that they held up may break.
func (p *Proxy) Heal(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range p.toxics {
		call(t, http.MethodDelete, p.url+"/toxics/"+name, nil, nil)
	}
	p.toxics = nil
}

func (p *Proxy) add(t testing.TB, kind string, attributes map[string]any, streams ...string) {
	t.Helper()
	p.Addr(t) // which ends a test that has no proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, stream := range streams {
		name := kind + "-" + stream
		call(t, http.MethodPost, p.url+"/toxics", map[string]any{
			"name": name, "type": kind, "stream": stream, "toxicity": 1.0, "attributes": attributes,
		}, nil)
		p.toxics = append(p.toxics, name)
	}
}

// client keeps no connections: their goroutines would look like leaks of the code under test.
var client = &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}

// call asks toxiproxy for something, and decodes its answer if that is wanted. It has time of its
// own: a test's context has ended before its clean-ups begin.
func call(t testing.TB, method, url string, body, answer any) {
	t.Helper()
	content, err := json.Marshal(body)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(context.Background(), method, url, bytes.NewReader(content)) //nolint:gosec // whoever runs the tests names it
	require.NoError(t, err)
	response, err := client.Do(request) //nolint:gosec // as above
	require.NoError(t, err, "toxiproxy")
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	require.NoError(t, err, "toxiproxy")
	require.Less(t, response.StatusCode, http.StatusMultipleChoices, "toxiproxy: %s %s: %s", method, url, said)
	if answer != nil {
		require.NoError(t, json.Unmarshal(said, answer), "toxiproxy: %s", said)
	}
}
