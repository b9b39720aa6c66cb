package brokers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/gorm-fanout/fanout/brokers"
)

// Lines writes each message as a line of text. It is all that a broker has to be.
type Lines struct {
	mu     sync.Mutex
	out    io.Writer
	closed bool
}

func (l *Lines) Publish(ctx context.Context, msgs []brokers.Message) []brokers.Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	results := make([]brokers.Result, len(msgs))
	failed := map[string]error{} // the first failure of each key; what follows on the key must not overtake it
	for i, m := range msgs {
		switch earlier := failed[m.OrderingKey]; {
		case l.closed:
			results[i].Err = brokers.ErrClosed
		case ctx.Err() != nil:
			results[i].Err = brokers.NotSentBecause(ctx.Err())
		case earlier != nil && m.OrderingKey != "":
			results[i].Err = brokers.NotSentBecause(earlier)
		default:
			results[i].Err = l.write(m)
			failed[m.OrderingKey] = results[i].Err
		}
	}
	return results
}

func (l *Lines) write(m brokers.Message) error {
	if len(m.Payload) > 80 {
		return brokers.Permanent(errors.New("lines: the payload is longer than a line"))
	}
	if _, err := fmt.Fprintf(l.out, "%s %s %s\n", m.Destination, m.ID, m.Payload); err != nil {
		return brokers.Unavailable(brokers.ScopeBroker, fmt.Errorf("lines: %w", err)) // nobody's fault
	}
	return nil
}

func (l *Lines) Capabilities() brokers.Capabilities {
	return brokers.Capabilities{Ordering: true, MaxMessageBytes: 80}
}

func (l *Lines) Ping(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return brokers.ErrClosed
	}
	return ctx.Err()
}

func (l *Lines) Close(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return nil
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
