package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

// likedBatch is how many messages a processor best hands over at once: enough to keep the requests
// that are allowed at once busy.
const likedBatch = 100

// Broker publishes to one endpoint. Make one with [Open]. All methods are safe for concurrent use.
type Broker struct {
	settings Settings
	tls      *tls.Config
	url      *url.URL
	keys     [][]byte
	dialer   *net.Dialer
	client   *http.Client
	gate     adapter.Gate
	slots    chan struct{} // of requests in progress

	mu        sync.Mutex
	notBefore time.Time // the endpoint has asked to be left alone until then
}

// Capabilities implements [brokers.Broker].
func (b *Broker) Capabilities() brokers.Capabilities {
	return brokers.Capabilities{Ordering: true, MaxMessageBytes: b.settings.MaxMessageBytes, MaxBatch: likedBatch, KeysInTurn: true}
}

// Ping implements [brokers.Broker]. It connects to the endpoint, and finishes TLS; it sends no request,
// since every request would be a message.
func (b *Broker) Ping(ctx context.Context) error {
	if !b.gate.Enter() {
		return brokers.ErrClosed
	}
	defer b.gate.Leave()
	ctx, cancel := context.WithTimeout(ctx, b.settings.RequestTimeout)
	defer cancel()
	conn, err := b.dialer.DialContext(ctx, "tcp", net.JoinHostPort(b.url.Hostname(), cmp.Or(b.url.Port(), b.url.Scheme)))
	if err != nil {
		return b.unreachable(err)
	}
	defer conn.Close()
	if b.url.Scheme == "https" {
		config := b.tls.Clone()
		config.ServerName = cmp.Or(config.ServerName, b.url.Hostname())
		if err := tls.Client(conn, config).HandshakeContext(ctx); err != nil {
			return b.unreachable(err)
		}
	}
	return nil
}

// Close implements [brokers.Broker].
func (b *Broker) Close(ctx context.Context) error {
	first, err := b.gate.Close(ctx)
	if !first {
		return nil
	}
	b.client.CloseIdleConnections()
	if err != nil {
		return fmt.Errorf("webhook: close: %w", err)
	}
	return nil
}

// pause leaves the endpoint alone for d.
func (b *Broker) pause(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if until := time.Now().Add(d); until.After(b.notBefore) {
		b.notBefore = until
	}
}

// paused says until when the endpoint is to be left alone; zero = it need not be.
func (b *Broker) paused() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Now().Before(b.notBefore) {
		return b.notBefore
	}
	return time.Time{}
}
