package webhook_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/brokertest"
	"github.com/gorm-fanout/fanout/brokers/webhook"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/toxic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience = 30 * time.Second
	// serverName is a name in httptest's certificate.
	serverName = "example.com"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"HTTP1", "HTTP2"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			if version == "HTTP2" {
				testenv.NeedSeconds(t)
			}
			p := startPartner(t, version == "HTTP2")
			proxy := toxic.Start(t, p.address)
			var number atomic.Int64
			brokertest.Run(t, brokertest.Harness{
				Open: func(t *testing.T) brokers.Broker {
					return p.connect(t, p.address, webhook.Settings{MaxMessageBytes: 1 << 20})
				},
				Destination: func(*testing.T) string { return fmt.Sprintf("test::order%d", number.Add(1)) },
				Received:    func(_ *testing.T, destination string) []brokers.Message { return p.received(destination) },
				OmitsText:   true,
				Refuse:      p.refuse,
				Stop:        func(*testing.T) { p.stop() },
				Start:       func(t *testing.T) { p.start(t) },
				OpenThroughNetwork: func(t *testing.T) brokers.Broker {
					return p.connect(t, proxy.Addr(t), webhook.Settings{RequestTimeout: 2 * time.Second})
				},
				Network:  proxy,
				Patience: 4 * patience, // a bulk is a request for each message
			})
		})
	}
}

// partner is an endpoint that checks signatures.
type partner struct {
	secret   string
	verifier *webhook.Verifier
	address  string
	http2    bool

	mu      sync.Mutex
	server  *httptest.Server
	mute    *atomic.Bool                 // of the connections to come
	got     map[string][]brokers.Message // by destination
	refused map[string]bool
	answer  http.HandlerFunc // instead of taking messages
	asked   int              // requests
}

func startPartner(t *testing.T, http2 bool) *partner {
	t.Helper()
	p := &partner{secret: webhook.NewSecret(), address: "127.0.0.1:0", http2: http2, got: map[string][]brokers.Message{}, refused: map[string]bool{}, mute: new(atomic.Bool)}
	verifier, err := webhook.NewVerifier(0, p.secret)
	require.NoError(t, err)
	p.verifier = verifier
	p.start(t)
	t.Cleanup(p.stop)
	return p
}

// start starts the endpoint, at the address that it had.
func (p *partner) start(t *testing.T) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", p.address)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(p)
	server.Listener.Close()
	server.Listener, server.EnableHTTP2 = mutable{listener, p}, p.http2
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server, p.address = server, listener.Addr().String()
}

func (p *partner) stop() {
	p.mu.Lock()
	server := p.server
	p.server = nil
	p.mu.Unlock()
	if server != nil {
		server.CloseClientConnections()
		server.Close()
	}
}

// trust is what a client needs to know of the endpoint.
func (p *partner) trust() *tls.Config {
	authorities := x509.NewCertPool()
	authorities.AddCert(p.server.Certificate())
	return &tls.Config{RootCAs: authorities, ServerName: serverName, MinVersion: tls.VersionTLS12}
}

// connect opens a broker, which whoever asked has to close. What the settings leave out is filled in.
func (p *partner) connect(t *testing.T, address string, settings ...webhook.Settings) *webhook.Broker {
	t.Helper()
	var s webhook.Settings
	if len(settings) > 0 {
		s = settings[0]
	}
	if s.TLSConfig == nil {
		s.TLSConfig = p.trust()
	}
	s.URL, s.Secrets, s.AllowPrivateNetworks = adapter.Secret("https://"+address+"/hooks/token-4711"), []adapter.Secret{adapter.Secret(p.secret)}, true
	b, err := webhook.Open(s)
	require.NoError(t, err)
	return b
}

// open opens a broker and closes it with the test.
func (p *partner) open(t *testing.T, settings ...webhook.Settings) *webhook.Broker {
	t.Helper()
	b := p.connect(t, p.address, settings...)
	t.Cleanup(func() { closeBroker(t, b) })
	return b
}

func closeBroker(t *testing.T, b brokers.Broker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	assert.NoError(t, b.Close(ctx))
}

// mutable is a listener whose connections can be muted.
type mutable struct {
	net.Listener

	of *partner
}

type mutableConn struct {
	net.Conn

	mute *atomic.Bool
}

func (m mutable) Accept() (net.Conn, error) {
	conn, err := m.Listener.Accept()
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	return mutableConn{conn, m.of.mute}, err
}

func (c mutableConn) Write(b []byte) (int, error) {
	if c.mute.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// fallsSilent mutes the connections that there are: they take everything and answer nothing. New ones work.
func (p *partner) fallsSilent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute.Store(true)
	p.mute = new(atomic.Bool)
}

// ServeHTTP takes a message, or answers as the test says.
func (p *partner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // it was cut off
	}
	p.mu.Lock()
	p.asked++
	answer := p.answer
	p.mu.Unlock()
	if answer != nil {
		answer(w, r)
		return
	}
	if err := p.verifier.Verify(r.Header, body); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	m := fromWire(r.Header, body)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused[m.ID] {
		http.Error(w, "not this one", http.StatusUnprocessableEntity)
		return
	}
	p.got[m.Destination] = append(p.got[m.Destination], m)
}

// answers lets the endpoint answer by itself; nil has it take messages again.
func (p *partner) answers(answer http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

func (p *partner) requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

func (p *partner) received(destination string) []brokers.Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.got[destination]
}

func (p *partner) refuse(_ *testing.T, id string) (restore func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused[id] = true
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.refused, id)
	}
}

// underscores are the names of the suite's attributes, as they were.
var underscores = map[string]string{"tenant-id": "tenant_id", "googclient-deliveryattempt": "googclient_deliveryattempt"}

// fromWire is the message of a request.
func fromWire(header http.Header, body []byte) brokers.Message {
	plain := func(name string) string {
		value, err := url.PathUnescape(header.Get(name))
		if err != nil {
			return "not escaped: " + header.Get(name)
		}
		return value
	}
	m := brokers.Message{
		ID: header.Get(webhook.HeaderID), Destination: plain("fanout-destination"), Type: plain("fanout-type"), OrderingKey: plain("fanout-ordering-key"),
		CorrelationID: plain("fanout-correlation-id"), ContentType: header.Get("Content-Type"), Payload: body,
	}
	for name := range maps.Keys(header) {
		lower := strings.ToLower(name)
		attribute, ours := strings.CutPrefix(lower, "fanout-")
		switch {
		case lower == brokers.FieldTraceParent || lower == brokers.FieldTraceState:
			m.Attributes = append(m.Attributes, brokers.Attribute{Name: lower, Value: header.Get(name)})
		case !ours || attribute == "destination" || attribute == "type" || attribute == "ordering-key" || attribute == "correlation-id":
		default:
			if was, known := underscores[attribute]; known {
				attribute = was
			}
			m.Attributes = append(m.Attributes, brokers.Attribute{Name: attribute, Value: plain(name)})
		}
	}
	return m
}

func numbered(destination, key string, n int) brokers.Message {
	return brokers.Message{
		ID: fmt.Sprintf("id-%d", n), Destination: destination, Type: "T.v1", OrderingKey: key, ContentType: brokers.DefaultContentType,
		Payload: fmt.Appendf(nil, "%d", n),
	}
}

// classes are the classes and scopes of results.
func classes(results []brokers.Result) []string {
	all := make([]string, len(results))
	for i, result := range results {
		class, scope := brokers.Classify(result.Err)
		all[i] = strings.TrimSpace(string(class) + " " + string(scope))
	}
	return all
}
