//go:build unix

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// link is the network between one process and one server.
type link struct {
	name   string
	client string // name of the process
	proxy  *toxiproxy.Proxy
}

// network holds all links of a run.
type network struct {
	server *toxiproxy.ApiServer
	links  map[string]*link
}

func newNetwork() *network {
	zerolog.SetGlobalLevel(zerolog.Disabled) // the toxics log to standard error, whatever logger they are given
	return &network{server: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), links: map[string]*link{}}
}

// connect makes a link and returns the address for the process. The server behind it may stop and
// restart.
func (n *network) connect(client, server, upstream string) (string, error) {
	l := &link{name: client + "/" + server, client: client}
	l.proxy = toxiproxy.NewProxy(n.server, l.name, "127.0.0.1:0", upstream)
	if err := l.proxy.Start(); err != nil {
		return "", fmt.Errorf("chaos: proxy for %s: %w", l.name, err)
	}
	n.links[l.name] = l
	return l.proxy.Listen, nil
}

func (n *network) close() {
	for _, l := range n.links {
		l.proxy.Stop()
	}
}

// toxic is one fault of a link, as toxiproxy calls it.
type toxic struct {
	kind       string
	streams    []string
	attributes map[string]any
}

const (
	upstream   = "upstream"
	downstream = "downstream"
)

// toxics are the faults of links. The unit of amount depends on the kind.
var toxics = map[Kind]func(amount int) toxic{
	Reset: func(int) toxic { return toxic{"reset_peer", []string{upstream}, map[string]any{"timeout": 0}} },
	Delay: func(ms int) toxic {
		return toxic{"latency", []string{upstream, downstream}, map[string]any{"latency": ms, "jitter": ms / 2}}
	},
	Throttle: func(kilobytes int) toxic {
		return toxic{"bandwidth", []string{upstream, downstream}, map[string]any{"rate": kilobytes}}
	},
	CutRequests: func(n int) toxic { return toxic{"limit_data", []string{upstream}, map[string]any{"bytes": n}} },
	CutAnswers:  func(n int) toxic { return toxic{"limit_data", []string{downstream}, map[string]any{"bytes": n}} },
	BlackHole: func(int) toxic { // delayed data arrives afterwards, as with TCP
		return toxic{"latency", []string{downstream}, map[string]any{"latency": time.Hour.Milliseconds()}}
	},
}

// impair begins a fault of open and future connections.
func (l *link) impair(kind Kind, amount int) error {
	if err := l.apply(faultToxic, toxics[kind](amount)); err != nil {
		return fmt.Errorf("chaos: %s at %s: %w", kind, l.name, err)
	}
	return nil
}

// slowDown adds twice d to every round trip of a link, for the whole run and beside all faults.
func (l *link) slowDown(d time.Duration) error {
	slow := toxic{"latency", []string{upstream, downstream}, map[string]any{"latency": d.Milliseconds()}}
	return l.apply("slow", slow)
}

func (l *link) apply(name string, t toxic) error {
	for _, stream := range t.streams {
		text, err := json.Marshal(map[string]any{
			"name": name + "-" + stream, "type": t.kind, "stream": stream, "toxicity": 1.0, "attributes": t.attributes,
		})
		if err != nil {
			return err
		}
		if _, err := l.proxy.Toxics.AddToxicJson(bytes.NewReader(text)); err != nil {
			return err
		}
	}
	return nil
}

// heal ends the fault of a link. Connections that were blocked may break.
func (l *link) heal(ctx context.Context, kind Kind) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), healPatience)
	defer cancel()
	if err := l.remove(ctx, faultToxic, toxics[kind](0)); err != nil {
		return fmt.Errorf("chaos: end %s at %s: %w", kind, l.name, err)
	}
	return nil
}

func (l *link) remove(ctx context.Context, name string, t toxic) error {
	for _, stream := range t.streams {
		if err := l.proxy.Toxics.RemoveToxic(ctx, name+"-"+stream); err != nil {
			return err
		}
	}
	return nil
}

// Names of toxics: of a link's own fault, and of what stopInPipeline does to it, which may be beside it.
const (
	faultToxic   = "fault"
	trickleToxic = "trickle"
)

// healPatience bounds the call: toxiproxy may wait for data that never arrives.
const healPatience = 5 * time.Second
