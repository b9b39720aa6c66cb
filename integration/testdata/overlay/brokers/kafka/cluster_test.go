// This file is laid over the package when make test builds its tests.
package kafka_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/kafka"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// callField names the call in which a message was sent.
const callField = "call"

// A publisher sends numbered messages of its keys as a processor does: what was not confirmed goes
// again, in its order. It notes the result of each message in each call.
type publisher struct {
	*kafka.Broker

	destination string
	keys        []string

	mu       sync.Mutex
	next     map[string]int           // number, by key
	outcomes map[string]brokers.Class // by id and call
	done     map[string]int           // confirmed, by key
	failures map[string]int           // by class and scope
	said     map[string]string        // the last error of each
}

// run publishes until stop is closed, and then until nothing is left.
func (p *publisher) run(t *testing.T, ctx context.Context, stop <-chan struct{}) {
	var waiting []brokers.Message
	pace := time.NewTicker(10 * time.Millisecond) // there is more to do than this
	defer pace.Stop()
	for call := 0; ctx.Err() == nil; call++ {
		<-pace.C
		select {
		case <-stop:
			if len(waiting) == 0 {
				return
			}
		default:
			for n := 0; len(waiting) < 60; n++ {
				key := p.keys[n%len(p.keys)]
				p.next[key]++
				waiting = append(waiting, brokers.Message{
					ID: key + "/" + strconv.Itoa(p.next[key]), Destination: p.destination, Type: "T.v1", OrderingKey: key, Payload: []byte("{}"),
				})
			}
		}
		for i := range waiting {
			waiting[i].Attributes = []brokers.Attribute{{Name: callField, Value: strconv.Itoa(call)}}
		}
		results := p.Publish(ctx, waiting)
		if ctx.Err() != nil {
			return
		}
		left, failed := waiting[:0:0], map[string]bool{}
		p.mu.Lock()
		for i, m := range waiting {
			class, scope := brokers.Classify(results[i].Err)
			p.outcomes[m.ID+" "+strconv.Itoa(call)] = class
			if results[i].Err != nil {
				left, failed[m.OrderingKey] = append(left, m), true
				kind := strings.TrimSpace(string(class) + " " + string(scope))
				p.failures[kind]++
				p.said[kind] = results[i].Err.Error()
				continue
			}
			assert.False(t, failed[m.OrderingKey], "%s was confirmed although one before it was not", m.ID)
			p.done[m.OrderingKey]++
		}
		p.mu.Unlock()
		waiting = left
	}
}

func (p *publisher) confirmed() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]int{}
	for _, key := range p.keys {
		all[key] = p.done[key]
	}
	return all
}

// What was confirmed survives the leaders of its partitions, which are killed one after the other, and
// most servers at once. Each key arrives in order; what a call has confirmed is there once, and what it
// has not sent is not.
func TestLeadersAreKilled(t *testing.T) {
	t.Parallel()
	cluster := ownCluster(t)
	servers := addresses(cluster)
	r := newReader(t, servers)
	topic := r.name("killed")
	r.createWith(t, 6, nil, topic)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stop := make(chan struct{})
	var (
		publishers []*publisher
		running    sync.WaitGroup
	)
	for w := range 3 {
		p := &publisher{
			Broker: open(t, servers), destination: topic,
			next: map[string]int{}, outcomes: map[string]brokers.Class{}, done: map[string]int{}, failures: map[string]int{}, said: map[string]string{},
		}
		for k := range 8 {
			p.keys = append(p.keys, fmt.Sprintf("key-%d-%d", w, k))
		}
		publishers = append(publishers, p)
		running.Go(func() { p.run(t, ctx, stop) })
	}
	progress := func(what string) {
		t.Helper()
		const more = 20
		from := make([]map[string]int, len(publishers))
		for i, p := range publishers {
			from[i] = p.confirmed()
		}
		require.Eventually(t, func() bool {
			for i, p := range publishers {
				for key, n := range p.confirmed() {
					if n < from[i][key]+more {
						return false
					}
				}
			}
			return true
		}, 3*time.Minute, 10*time.Millisecond, "each key goes on: %s", what)
	}
	healthy := func() {
		t.Helper()
		require.Eventually(t, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			known, err := r.admin.ListTopics(ctx, topic)
			if err != nil {
				return false
			}
			for _, partition := range known[topic].Partitions {
				if len(partition.ISR) != len(cluster.Nodes) {
					return false
				}
			}
			return true
		}, 3*time.Minute, 50*time.Millisecond, "all replicas are in sync")
	}
	kills := 2
	if testenv.Long() {
		kills = 12
	}
	for n := range kills {
		progress("before a kill")
		known, err := r.admin.ListTopics(t.Context(), topic)
		require.NoError(t, err)
		leader := cluster.Nodes[known[topic].Partitions[int32(n%6)].Leader-1]
		require.NoError(t, leader.End(syscall.SIGKILL, patience))
		progress("without a leader")
		require.NoError(t, leader.Start(t.Context()))
		healthy()
	}
	for _, node := range cluster.Nodes[:2] {
		require.NoError(t, node.End(syscall.SIGKILL, patience))
	}
	failing := func() (n int) {
		for _, p := range publishers {
			p.mu.Lock()
			n += p.failures["unavailable broker"] + p.failures["unavailable destination"] + p.failures["unavailable partition"]
			p.mu.Unlock()
		}
		return n
	}
	before := failing()
	require.Eventually(t, func() bool { return failing() > before+3 }, 3*time.Minute, 10*time.Millisecond, "most servers are out")
	var starting sync.WaitGroup // neither answers without the other
	for _, node := range cluster.Nodes[:2] {
		starting.Go(func() { assert.NoError(t, node.Start(t.Context())) })
	}
	starting.Wait()
	progress("after most were out")
	close(stop)
	running.Wait()
	healthy()

	copies, order, duplicates := map[string]int{}, map[string]int{}, 0
	for _, m := range r.received(t, topic) {
		copies[m.ID+" "+m.Attributes[0].Value]++
		n, err := strconv.Atoi(m.ID[len(m.OrderingKey)+1:])
		require.NoError(t, err)
		if n <= order[m.OrderingKey] {
			duplicates++
			continue
		}
		require.Equal(t, order[m.OrderingKey]+1, n, "the next of key %s", m.OrderingKey)
		order[m.OrderingKey] = n
	}
	total := 0
	for _, p := range publishers {
		for key, n := range p.next {
			assert.Equal(t, n, order[key], "all of key %s", key)
			total += n
		}
		for sent, class := range p.outcomes {
			switch n := copies[sent]; class {
			case "":
				assert.Equal(t, 1, n, "confirmed: %s", sent)
			case brokers.ClassNotSent:
				assert.Zero(t, n, "not sent: %s", sent)
			default:
				assert.NotEqual(t, brokers.ClassPermanent, class, sent)
				assert.LessOrEqual(t, n, 1, "%s: %s", class, sent)
			}
		}
		assert.NotContains(t, p.said, "retryable", "an outage costs no attempt")
		t.Log(p.failures, p.said)
	}
	t.Logf("%d messages, %d duplicates, %d kills", total, duplicates, kills+2)
}
