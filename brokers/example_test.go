package brokers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

// Lines writes each message as a line of text. It is all that a broker has to be.
type Lines struct {
	gate adapter.Gate
	mu   sync.Mutex
	out  io.Writer
}

func (l *Lines) Publish(ctx context.Context, msgs []brokers.Message) []brokers.Result {
	if !l.gate.Enter() {
		return adapter.Closed(msgs)
	}
	defer l.gate.Leave()
	var call adapter.Call // knows what is behind a failed message of its key, and what an outage closes
	call.Begin(msgs, nil)
	for i, m := range msgs {
		if !call.Admit(ctx, i) {
			continue
		}
		if err := l.write(m); err != nil {
			call.Fail(i, err)
		} else {
			call.Confirm(i, "")
		}
	}
	return call.Results(ctx)
}

func (l *Lines) write(m brokers.Message) error {
	if len(m.Payload) > 80 {
		return brokers.Permanent(errors.New("lines: the payload is longer than a line"))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := fmt.Fprintf(l.out, "%s %s %s\n", m.Destination, m.ID, m.Payload); err != nil {
		return brokers.Unreachable(brokers.ScopeBroker, fmt.Errorf("lines: %w", err)) // no message's fault, unless others pass
	}
	return nil
}

func (l *Lines) Capabilities() brokers.Capabilities {
	return brokers.Capabilities{Ordering: true, MaxMessageBytes: 80}
}

func (l *Lines) Ping(ctx context.Context) error {
	if !l.gate.Enter() {
		return brokers.ErrClosed
	}
	defer l.gate.Leave()
	return ctx.Err()
}

func (l *Lines) Close(ctx context.Context) error {
	_, err := l.gate.Close(ctx)
	return err
}

// A broker of one's own. Run brokertest.Run over it to be sure of it.
func Example_ownBroker() {
	var broker brokers.Broker = &Lines{out: os.Stdout}
	for i, result := range broker.Publish(context.Background(), []brokers.Message{
		{ID: "1", Destination: "ordering::order", OrderingKey: "order-1", Payload: []byte(`{"placed": true}`)},
		{ID: "2", Destination: "ordering::order", OrderingKey: "order-1", Payload: make([]byte, 81)},
		{ID: "3", Destination: "ordering::order", OrderingKey: "order-1", Payload: []byte(`{"paid": true}`)},
		{ID: "4", Destination: "ordering::order", OrderingKey: "order-2", Payload: []byte(`{"placed": true}`)},
	}) {
		if class, _ := brokers.Classify(result.Err); class != "" {
			fmt.Printf("message %d: %s\n", i+1, class)
		}
	}
	// Output:
	// ordering::order 1 {"placed": true}
	// ordering::order 4 {"placed": true}
	// message 2: permanent
	// message 3: not_sent
}
