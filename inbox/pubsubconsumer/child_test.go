package pubsubconsumer

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"cloud.google.com/go/pubsub/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox"
)

// childVariable makes this test program a consumer: its value is the address of the server.
const childVariable = "FANOUT_TEST_CONSUMER"

// child tells its parent of each message, and finishes it only when the parent says so, on its
// input.
func child() {
	client, err := pubsub.NewClient(context.Background(), project, clientOptions(os.Getenv(childVariable))...)
	if err != nil {
		panic(err)
	}
	c, err := NewConsumer(client, name, inbox.HandlerFunc(func(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
		fmt.Println("begin", m.Attributes["n"])
		if m.Attributes["n"] == "2" {
			<-ctx.Done() // the parent kills it
		}
		return inbox.Handled, nil
	}), WithLogger(silent()))
	if err == nil {
		err = c.Run(context.Background())
	}
	panic(err) // it does not end by itself
}

// lines collects what a child says.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *lines) contain(line string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.all.String(), line)
}

// What a killed process had claimed comes again when its lease ends, to another, in order.
func TestKilledWhileHandling(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.publish("a", 6)
	var said lines
	cmd := exec.Command(os.Args[0]) //nolint:noctx // it is killed
	cmd.Env = append(os.Environ(), childVariable+"="+s.Addr)
	cmd.Stdout, cmd.Stderr = &said, os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	eventually(t, func() bool { return said.contain("begin 2\n") }, "the child handles 2")
	eventually(t, func() bool { return len(s.unacked()) == 4 }, "0 and 1 are confirmed")
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()

	l := newLedger(t, nil)
	p := start(t, newClient(t, s.Addr), l)
	assert.Len(t, s.unacked(), 4)
	s.pass(DefaultLease)
	eventually(t, func() bool { return len(s.unacked()) == 0 }, "all are confirmed")
	require.NoError(t, p.stop())
	assert.Equal(t, []seen{{"a", 2}, {"a", 3}, {"a", 4}, {"a", 5}}, l.finished())
}
