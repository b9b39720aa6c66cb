package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/brokers/webhook"
)

// servers are the other ends of the brokers: a broker in memory, and the endpoints of two companies.
// They keep the messages for the consumer's process, which asks for them over HTTP.
type servers struct {
	url      string
	http     *http.Server
	internal *memory.Broker
	secret   string // of the webhooks
	verifier *webhook.Verifier

	mu       sync.Mutex
	away     map[string]bool              // brokers; or the consumer, which then ends
	received map[string][]brokers.Message // webhooks, by broker
	consumer status
}

// status is what the consumer's process says when it asks for messages.
type status struct {
	Process    int            `json:"process"`   // its number, from 0
	Confirmed  map[string]int `json:"confirmed"` // messages of each broker
	Delivered  int            `json:"delivered"` // to this process, and as far as is known to those before it
	Duplicates int            `json:"duplicates"`
}

// pageSize bounds how many messages of a broker are delivered again after a kill.
const pageSize = 50

func startServers() (*servers, error) {
	s := &servers{
		internal: memory.New(), secret: webhook.NewSecret(), away: map[string]bool{},
		received: map[string][]brokers.Message{}, consumer: status{Confirmed: map[string]int{}},
	}
	var err error
	if s.verifier, err = webhook.NewVerifier(0, s.secret); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it returns at once
	if err != nil {
		return nil, fmt.Errorf("start the brokers: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/messages", s.serveMessages)
	mux.HandleFunc("/webhooks/{broker}", s.serveWebhook)
	s.url = "http://" + listener.Addr().String()
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	go s.http.Serve(listener) //nolint:errcheck // it ends when the server is closed
	return s, nil
}

// serveWebhook is the endpoint of a company.
func (s *servers) serveWebhook(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("broker")
	body, err := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.away[name]:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
	case err != nil || s.verifier.Verify(r.Header, body) != nil:
		w.WriteHeader(http.StatusUnauthorized)
	default:
		s.received[name] = append(s.received[name], brokers.Message{ID: r.Header.Get(webhook.HeaderID), Payload: body})
		w.WriteHeader(http.StatusNoContent)
	}
}

// serveMessages answers the consumer's process with the next payloads of each broker.
func (s *servers) serveMessages(w http.ResponseWriter, r *http.Request) {
	var asks status
	err := json.NewDecoder(r.Body).Decode(&asks)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || asks.Process != s.consumer.Process {
		return // the process was killed while it asked
	}
	if s.consumer = asks; s.away["consumer"] {
		w.WriteHeader(http.StatusGone)
		return
	}
	answer := map[string][]json.RawMessage{}
	for broker, messages := range s.messages() {
		if s.away[broker] {
			continue
		}
		messages = messages[asks.Confirmed[broker]:]
		for _, message := range messages[:min(pageSize, len(messages))] {
			answer[broker] = append(answer[broker], message.Payload)
		}
	}
	_ = json.NewEncoder(w).Encode(answer) //nolint:errchkjson // the payloads are JSON that the library wrote
}

// messages returns what has arrived at each broker. The caller holds the lock.
func (s *servers) messages() map[string][]brokers.Message {
	return map[string][]brokers.Message{
		"default": s.internal.Messages("ordering::order"), "partner": s.received["partner"], "carrier": s.received["carrier"],
	}
}

// progress returns what has arrived, the status of the consumer, and how many messages it has not
// confirmed.
func (s *servers) progress() (arrived map[string][]brokers.Message, consumer status, unconfirmed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	arrived = s.messages()
	for broker, messages := range arrived {
		unconfirmed += len(messages) - s.consumer.Confirmed[broker]
	}
	return arrived, s.consumer, unconfirmed
}

// replaceConsumer returns the status with which the next process of the consumer starts.
func (s *servers) replaceConsumer() status {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.consumer.Process++
	return s.consumer
}

// setAway begins or ends the outage of a broker, for the relay and the consumer. It also lets the
// consumer end.
func (s *servers) setAway(name string, away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away[name] = away
	if name == "default" {
		s.internal.Outage(map[bool]error{true: io.ErrUnexpectedEOF}[away])
	}
}
