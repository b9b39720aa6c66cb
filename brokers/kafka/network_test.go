package kafka_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/kafka"
)

// A network takes packets from some addresses to nowhere: connections to them are not answered, and those that
// they had are broken.
type network struct {
	mu    sync.Mutex
	gone  map[string]bool
	conns map[string][]net.Conn
	hung  int // connections that were not answered
}

func newNetwork(gone ...string) *network {
	w := &network{gone: map[string]bool{}, conns: map[string][]net.Conn{}}
	for _, address := range gone {
		w.gone[address] = true
	}
	return w
}

func (w *network) settings() kafka.Settings { return kafka.Settings{Dial: w.dial} }

func (w *network) dial(ctx context.Context, network, to string) (net.Conn, error) {
	w.mu.Lock()
	gone := w.gone[to]
	if gone {
		w.hung++
	}
	w.mu.Unlock()
	if gone {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second) // as the package's own dialer
		defer cancel()
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
	}
	c, err := new(net.Dialer).DialContext(ctx, network, to)
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.conns[to] = append(w.conns[to], c)
	}
	return c, err
}

func (w *network) lose(address string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone[address] = true
	for _, c := range w.conns[address] {
		_ = c.Close()
	}
}

// startThree starts three servers, of which each leads a third of the partitions of the topic "there".
func startThree(t *testing.T, partitions int32) *cluster {
	t.Helper()
	c := startCluster(t, kfake.NumBrokers(3), kfake.SeedTopics(partitions, "there"))
	for p := range partitions {
		require.NoError(t, c.fake.MoveTopicPartition("there", p, p%3))
	}
	return c
}

// perKey is one message of each of n keys.
func perKey(topic string, n int) (msgs []brokers.Message) {
	for k := range n {
		msgs = append(msgs, numbered(topic, fmt.Sprint("key-", k), k))
	}
	return msgs
}

// kinds counts results by class and scope, and has the first error of each.
func kinds(results []brokers.Result) (n map[string]int, said map[string]string) {
	n, said = map[string]int{}, map[string]string{}
	for i, kind := range classes(results) {
		n[kind]++
		if results[i].Err != nil && said[kind] == "" {
			said[kind] = results[i].Err.Error()
		}
	}
	return n, said
}
