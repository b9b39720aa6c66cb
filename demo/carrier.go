package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/brokers/webhook"
)

// endpoint is what a carrier has instead of a broker: it takes signed requests, and hears of shipments
// alone.
type endpoint struct {
	secret   string
	verifier *webhook.Verifier
	server   *http.Server
	url      string

	mu      sync.Mutex
	busy    bool // it asks for a pause
	arrived []arrival
}

// largestRequest is more than any event of the shop has.
const largestRequest = 1 << 20

func startEndpoint() (*endpoint, error) {
	e := &endpoint{secret: webhook.NewSecret()}
	verifier, err := webhook.NewVerifier(0, e.secret)
	if err != nil {
		return nil, fmt.Errorf("carrier: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it returns at once
	if err != nil {
		return nil, fmt.Errorf("carrier: %w", err)
	}
	e.verifier, e.url = verifier, "http://"+listener.Addr().String()+"/shipments"
	e.server = &http.Server{Handler: e, ReadHeaderTimeout: time.Second}
	go e.server.Serve(listener) //nolint:errcheck // it ends when the server is closed
	return e, nil
}

// ServeHTTP takes a message whose signature is right.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largestRequest))
	if err == nil {
		err = e.verifier.Verify(r.Header, body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.busy {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	e.arrived = append(e.arrived, arrival{id: r.Header.Get(webhook.HeaderID), data: body})
}

// setBusy begins or ends a time in which it takes nothing.
func (e *endpoint) setBusy(busy bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy = busy
}

func (e *endpoint) messages() []arrival {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.arrived
}

func (e *endpoint) close() { _ = e.server.Close() }
