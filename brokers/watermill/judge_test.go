package watermill_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/watermill"
)

// fails is a publisher that answers some messages with an error.
func fails(err error, ids ...string) *publisher {
	return &publisher{publish: func(_ string, m *message.Message) error {
		for _, id := range ids {
			if id == m.UUID || id == "*" {
				return err
			}
		}
		return nil
	}}
}

func open(t *testing.T, p message.Publisher, opts ...watermill.Option) *watermill.Broker {
	t.Helper()
	b := watermill.New(p, opts...)
	t.Cleanup(func() { require.NoError(t, b.Close(context.Background())) })
	return b
}

func class(err error) string {
	c, scope := brokers.Classify(err)
	if by, refused := brokers.Refusal(err); refused {
		return "refused " + string(by)
	}
	return strings.TrimSpace(string(c) + " " + string(scope))
}

// root is the innermost error of a chain.
func root(err error) error {
	for below := errors.Unwrap(err); below != nil; below = errors.Unwrap(err) {
		err = below
	}
	return err
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err   error
		class string
	}{
		"unknown":            {errors.New("queue full"), "refused destination"},
		"network":            {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, "unavailable broker"},
		"name":               {&net.DNSError{Name: "kafka"}, "unavailable broker"},
		"reset":              {syscall.ECONNRESET, "unavailable broker"},
		"closed":             {net.ErrClosed, "unavailable broker"},
		"end of connection":  {io.EOF, "unavailable broker"},
		"within a message":   {io.ErrUnexpectedEOF, "unavailable broker"},
		"closed pipe":        {io.ErrClosedPipe, "unavailable broker"},
		"a timeout":          {context.DeadlineExceeded, "unavailable broker"},
		"an I/O timeout":     {os.ErrDeadlineExceeded, "unavailable broker"},
		"the publisher ends": {context.Canceled, "unavailable broker"},
		"a class":            {brokers.Permanent(errors.New("never")), "permanent"},
		"another class":      {brokers.Retryable(io.EOF), "retryable"},
		"a scope":            {brokers.Unavailable(brokers.ScopeDestination, io.EOF), "unavailable destination"},
		"a class below":      {fmt.Errorf("schema: %w", brokers.Permanent(errors.New("never"))), "permanent"},
		"not sent":           {brokers.ErrNotSent, "not_sent"},
		"closed, ours":       {brokers.ErrClosed, "unavailable broker"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, wrapped := range []error{c.err, fmt.Errorf("send: %w", c.err)} {
				b := open(t, fails(wrapped, "id-1"))
				results := b.Publish(t.Context(), []brokers.Message{numbered("orders", "a", 1), numbered("orders", "a", 2)})
				assert.Equal(t, c.class, class(results[0].Err), "%v", results[0].Err)
				assert.Equal(t, "not_sent", class(results[1].Err))
				assert.ErrorContains(t, results[0].Err, `watermill: publish to "orders": `)
				require.ErrorIs(t, results[0].Err, root(wrapped))
			}
		})
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	full, gone := errors.New("full"), errors.New("gone")
	b := open(t, &publisher{publish: func(_ string, m *message.Message) error {
		return map[string]error{"id-0": full, "id-1": gone, "id-2": io.EOF}[m.UUID]
	}}, watermill.WithConcurrency(1), watermill.WithClassify(nil), watermill.WithClassify(func(err error) error {
		switch {
		case errors.Is(err, full):
			return brokers.Permanent(fmt.Errorf("%w: buy more", err))
		case errors.Is(err, gone):
			return nil // as good as the error itself
		default:
			return err
		}
	}))
	results := b.Publish(t.Context(), many(4, 4))
	assert.EqualError(t, results[0].Err, `permanent: watermill: publish to "orders": full: buy more`)
	assert.EqualError(t, results[1].Err, `retryable: watermill: publish to "orders": gone`)
	assert.Equal(t, "refused destination", class(results[1].Err))
	assert.Equal(t, "unavailable broker", class(results[2].Err))
	assert.Equal(t, "not_sent", class(results[3].Err), "nothing is sent to a broker that is out")
}

// TestPanic: it happens on a goroutine where nobody else would catch it.
func TestPanic(t *testing.T) {
	t.Parallel()
	p := &publisher{publish: func(_ string, m *message.Message) error {
		if m.UUID == "id-1" {
			panic("no such partition")
		}
		return nil
	}}
	b := open(t, p)
	results := b.Publish(t.Context(), many(6, 2))
	assert.Equal(t, map[string]int{"": 3, "refused destination": 1, "not_sent": 2}, verdicts(results))
	assert.EqualError(t, results[1].Err, `permanent: watermill: publish to "orders": the publisher panicked: no such partition`)
	assert.Equal(t, map[string]int{"": 1}, verdicts(b.Publish(t.Context(), []brokers.Message{numbered("orders", "key-1", 3)})), "the key is open")
}
