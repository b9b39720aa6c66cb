package brokertest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
)

// A wire is a network as brokers that are wired meet it: a model of connections, chunks and
// answers.
type wire struct {
	mu    sync.Mutex
	fault string
	n     int
	delay time.Duration
}

func (w *wire) set(fault string, n int, delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault, w.n, w.delay = fault, n, delay
}

func (w *wire) get() (fault string, n int, delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fault, w.n, w.delay
}

func (w *wire) Latency(_ testing.TB, d time.Duration) { w.set("", 0, d) }
func (w *wire) Bandwidth(_ testing.TB, kilobytes int) {
	w.set("", 0, 20*time.Second/time.Duration(kilobytes))
}
func (w *wire) Reset(testing.TB)                { w.set("reset", 0, 0) }
func (w *wire) CutRequests(_ testing.TB, n int) { w.set("request", n/200, 0) }
func (w *wire) CutAnswers(_ testing.TB, n int)  { w.set("answer", n/30, 0) }
func (w *wire) BlackHole(testing.TB)            { w.set("hole", 0, 0) }
func (w *wire) Heal(testing.TB)                 { w.set("", 0, 0) }

// wired is a broker at the end of a wire, which sends a hundred messages at a time.
type wired struct {
	*memory.Broker

	wire *wire
}

var errWire = errors.New("connection reset")

// Publish implements brokers.Broker.
func (b wired) Publish(ctx context.Context, msgs []brokers.Message) []brokers.Result {
	const chunk = 100
	results := make([]brokers.Result, 0, len(msgs))
	for len(results) < len(msgs) {
		end := min(len(results)+chunk, len(msgs))
		answers := b.send(ctx, msgs[len(results):end])
		results = append(results, answers...)
		if answers[len(answers)-1].Err != nil {
			break
		}
	}
	for len(results) < len(msgs) {
		results = append(results, brokers.Result{Err: brokers.ErrNotSent})
	}
	return results
}

func (b wired) send(ctx context.Context, msgs []brokers.Message) []brokers.Result {
	fault, n, delay := b.wire.get()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return b.Broker.Publish(ctx, msgs)
		}
	}
	arrive, confirm := len(msgs), len(msgs)
	switch fault {
	case "reset":
		arrive, confirm = 0, 0
	case "request":
		arrive, confirm = min(n, arrive), 0
	case "answer":
		confirm = min(n, confirm)
	case "hole":
		confirm = 0
	}
	results := b.Broker.Publish(ctx, msgs[:arrive])[:min(arrive, confirm)]
	if fault == "hole" {
		<-ctx.Done()
	}
	for len(results) < len(msgs) {
		results = append(results, brokers.Result{Err: brokers.Unavailable(brokers.ScopeBroker, errWire)})
	}
	return results
}
