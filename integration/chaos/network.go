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

// network is all links of a run.
type network struct {
	server *toxiproxy.ApiServer
	links  map[string]*link
}

func newNetwork() *network {
	zerolog.SetGlobalLevel(zerolog.Disabled) // the toxics log to standard error, whatever logger they are given
	return &network{server: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), links: map[string]*link{}}
}

// connect makes a link and returns the address that the process is to use. The server behind it may go and come back.
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

// illness is one fault of a link, in the words of toxiproxy.
type illness struct {
	kind       string
	streams    []string
	attributes map[string]any
}

const (
	upstream   = "upstream"
	downstream = "downstream"
)

// illnesses are the faults of links; amount is of a kind's own measure.
var illnesses = map[Kind]func(amount int) illness{
	Reset: func(int) illness { return illness{"reset_peer", []string{upstream}, map[string]any{"timeout": 0}} },
	Delay: func(ms int) illness {
		return illness{"latency", []string{upstream, downstream}, map[string]any{"latency": ms, "jitter": ms / 2}}
	},
	Throttle: func(kilobytes int) illness {
		return illness{"bandwidth", []string{upstream, downstream}, map[string]any{"rate": kilobytes}}
	},
	CutRequests: func(n int) illness { return illness{"limit_data", []string{upstream}, map[string]any{"bytes": n}} },
	CutAnswers:  func(n int) illness { return illness{"limit_data", []string{downstream}, map[string]any{"bytes": n}} },
	BlackHole: func(int) illness { // what is held back comes when it is over, as TCP has it
		return illness{"latency", []string{downstream}, map[string]any{"latency": time.Hour.Milliseconds()}}
	},
}

// fallIll begins a fault, for connections that are open and for those to come.
func (l *link) fallIll(kind Kind, amount int) error {
	if err := l.apply("fault", illnesses[kind](amount)); err != nil {
		return fmt.Errorf("chaos: %s at %s: %w", kind, l.name, err)
	}
	return nil
}

// slowDown makes a link slow for good: a round trip takes twice d longer, whatever else is wrong with it.
func (l *link) slowDown(d time.Duration) error {
	ill := illness{"latency", []string{upstream, downstream}, map[string]any{"latency": d.Milliseconds()}}
	return l.apply("slow", ill)
}

func (l *link) apply(name string, ill illness) error {
	for _, stream := range ill.streams {
		toxic, err := json.Marshal(map[string]any{
			"name": name + "-" + stream, "type": ill.kind, "stream": stream, "toxicity": 1.0, "attributes": ill.attributes,
		})
		if err != nil {
			return err
		}
		if _, err := l.proxy.Toxics.AddToxicJson(bytes.NewReader(toxic)); err != nil {
			return err
		}
	}
	return nil
}

// heal ends the fault of a link. Connections that it held up may break.
func (l *link) heal(ctx context.Context, kind Kind) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), healPatience)
	defer cancel()
	for _, stream := range illnesses[kind](0).streams {
		if err := l.proxy.Toxics.RemoveToxic(ctx, "fault-"+stream); err != nil {
			return fmt.Errorf("chaos: end %s at %s: %w", kind, l.name, err)
		}
	}
	return nil
}

// healPatience bounds what toxiproxy waits for, which may never come.
const healPatience = 5 * time.Second
