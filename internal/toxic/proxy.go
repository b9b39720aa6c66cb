// Package toxic puts a proxy (Shopify's toxiproxy, in this process) between a client under test and its server, and makes the
// network between them ill. It is for tests alone: nothing else imports it.
package toxic

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// Proxy is a proxy in front of one server. Faults hold for connections that are open and for those to come, until Heal; several
// may hold at once. It fulfils brokertest.Network.
type Proxy struct {
	proxy *toxiproxy.Proxy
}

// Start starts a proxy in front of the server at the address upstream (host:port); it ends with the test.
func Start(t testing.TB, upstream string) *Proxy {
	t.Helper()
	zerolog.SetGlobalLevel(zerolog.Disabled) // the toxics log to standard error, whatever logger they are given
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &Proxy{toxiproxy.NewProxy(server, t.Name(), "127.0.0.1:0", upstream)}
	require.NoError(t, p.proxy.Start())
	t.Cleanup(p.proxy.Stop)
	return p
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.proxy.Listen }

// Latency holds back each packet, in both directions, for half of d: a round trip takes d longer.
func (p *Proxy) Latency(t testing.TB, d time.Duration) {
	t.Helper()
	for _, stream := range []string{"upstream", "downstream"} {
		p.add(t, "latency", stream, map[string]any{"latency": (d / 2).Milliseconds()})
	}
}

// Bandwidth lets so many kilobytes per second through, in each direction.
func (p *Proxy) Bandwidth(t testing.TB, kilobytes int) {
	t.Helper()
	for _, stream := range []string{"upstream", "downstream"} {
		p.add(t, "bandwidth", stream, map[string]any{"rate": kilobytes})
	}
}

// Reset breaks each connection (RST where it was opened after the call) as soon as something is sent.
func (p *Proxy) Reset(t testing.TB) {
	t.Helper()
	p.add(t, "reset_peer", "upstream", map[string]any{"timeout": 0})
}

// CutRequests ends each connection after n further bytes from the client.
func (p *Proxy) CutRequests(t testing.TB, n int) {
	t.Helper()
	p.add(t, "limit_data", "upstream", map[string]any{"bytes": n})
}

// CutAnswers ends each connection after n further bytes from the server.
func (p *Proxy) CutAnswers(t testing.TB, n int) {
	t.Helper()
	p.add(t, "limit_data", "downstream", map[string]any{"bytes": n})
}

// BlackHole swallows all that the server says: what the client sends arrives, and nobody tells it so.
func (p *Proxy) BlackHole(t testing.TB) {
	t.Helper()
	p.add(t, "timeout", "downstream", map[string]any{"timeout": 0})
}

// Heal ends all faults. Connections that they held up may break.
func (p *Proxy) Heal(testing.TB) { p.proxy.Toxics.ResetToxics(context.Background()) }

func (p *Proxy) add(t testing.TB, kind, stream string, attributes map[string]any) {
	t.Helper()
	toxic, err := json.Marshal(map[string]any{
		"name": kind + "-" + stream, "type": kind, "stream": stream, "toxicity": 1.0, "attributes": attributes,
	})
	require.NoError(t, err)
	_, err = p.proxy.Toxics.AddToxicJson(bytes.NewReader(toxic))
	require.NoError(t, err)
}

// Leaks are goroutines of toxiproxy's own that a cut connection can leave behind: what comes before a cut goes on waiting to hand
// over its data.
func Leaks() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"), // of any kind
		goleak.IgnoreTopFunction("github.com/Shopify/toxiproxy/v2/stream.(*ChanWriter).Write"),
	}
}
