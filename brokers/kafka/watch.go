package kafka

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// glance is how often a round is looked at that is not over.
	glance = 50 * time.Millisecond
	// silence is how long a server may say nothing, or refuse connections, before it is asked, and how
	// long it has to answer. One that waits for its replicas is silent, too, but answers questions.
	silence = time.Second
	// pauseAsking is the least time between two questions to a server in a round.
	pauseAsking = 200 * time.Millisecond
	// mostWitnesses bounds the servers that are asked whether it is the network.
	mostWitnesses = 5
	// mostSuspects bounds the servers that are suspected at a glance without records of theirs.
	mostSuspects = 20
)

// errPartOut ends a round of which all that is left is for partitions that are out.
var errPartOut = errors.New("the partitions' leaders do not answer, or do not confirm in time")

// mostRepeats is how long the client may repeat what a server does not confirm although it answers, which
// is not over for the client since it may be there.
const mostRepeats = 2 * time.Second

// look looks at a round until stop is called, and ends it by abandon when all that is left is for
// partitions that are out.
func (b *Broker) look(ctx context.Context, c *client, abandon context.CancelCauseFunc) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		tick := time.NewTicker(glance)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			c.flushAgain(ctx)
			if b.judge(c) { //nolint:contextcheck // a question that is put ends by its own timeout: the round does not wait for it
				abandon(errPartOut)
				return
			}
		}
	})
	return func() {
		cancel()
		looking.Wait()
	}
}

// judge reports whether all that a round waits for is for partitions that are out. It asks the servers of
// which it is not known.
func (b *Broker) judge(c *client) (over bool) {
	waiting, age := c.waiting(), c.age()
	if age > silence {
		c.said.closely.Store(true)
	}
	settled, written := c.progress()
	over = len(waiting) > 0 && settled
	if age > silence && (!settled || !written) {
		b.suspectAny(c)
	}
	asked := map[int32]bool{}
	for _, of := range waiting {
		id := c.leader(of)
		switch {
		case id != noServer && b.servers.isOut(id) != nil:
		case age > mostRepeats && c.said.unconfirmed(of), c.hangsUp(id):
		case id == noServer || asked[id]:
			over = false
		default:
			over, asked[id] = false, true
			b.suspect(c, id)
		}
	}
	return over
}

// flushAgain has the client send what a flush that has begun has passed over: it knows the partitions of a topic
// that it learns of a moment after all records are placed, and a flush in between finds nothing.
func (c *client) flushAgain(ctx context.Context) {
	if settled, _ := c.progress(); settled {
		ended, cancel := context.WithCancel(ctx)
		cancel() // it begins, and does not wait
		_ = c.Flush(ended)
	}
}

// age is how long the round has lasted.
func (c *client) age() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.began)
}

// progress reports whether each record of the round has its partition, and whether any was written.
func (c *client) progress() (settled, written bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.homeless == 0, len(c.writes) > 0
}

// suspectAny suspects all servers of a client that waits for an answer to a question of its own, for a topic's
// partitions or a producer's number: it does not say which one it has asked.
func (b *Broker) suspectAny(c *client) {
	asked := 0
	for id := range c.known() { // in any order, so that each has its turn
		if asked++; asked > mostSuspects {
			return
		}
		b.suspect(c, id)
	}
}

// suspect asks a server that has records and says nothing, or cannot be connected to.
func (b *Broker) suspect(c *client, id int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	s := c.suspects[id]
	if s == nil {
		last := c.began
		if heard := c.heard[id]; heard.After(last) {
			last = heard
		}
		if now.Sub(last) < silence {
			return
		}
		s = &suspect{}
		c.suspects[id] = s
	}
	if s.open || now.Sub(s.asked) < pauseAsking {
		return
	}
	s.open, s.asked = true, now
	b.servers.spawn(func() {
		err := askServer(b.servers.ctx, c, id)
		if b.convict(c, id, err) && b.othersAnswer(c, id) {
			b.servers.lose(id, c.known(), err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		s.open = false
	})
}

// convict notes how a server has answered a question, and reports whether it is out: it did not within
// the time, or refuses for as long.
func (b *Broker) convict(c *client, id int32, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.suspects[id]
	switch {
	case s == nil, time.Now().Before(c.heard[id]), errors.Is(err, kgo.ErrClientClosed), errors.Is(err, context.Canceled):
		return false
	case err == nil:
		c.hear(id, time.Now()) // it is asked again when it has been silent as long again
		return false
	case errors.Is(err, context.DeadlineExceeded):
		return true
	case s.since.IsZero():
		s.since, s.why = s.asked, err
	}
	return time.Since(s.since) >= silence
}

// askServer puts a question to one server.
func askServer(ctx context.Context, c *client, id int32) error {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	_, err := serversOnly().RequestWith(ctx, c.Broker(int(id)))
	return err
}

// serversOnly asks for the servers of the cluster, and no topics.
func serversOnly() *kmsg.MetadataRequest {
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{}
	return request
}

// othersAnswer reports whether a server other than one answers: where none does, it is not the server
// that is out but the broker.
func (b *Broker) othersAnswer(c *client, but int32) bool {
	if c.answered(but) {
		return true
	}
	witnesses := c.DiscoveredBrokers()
	answers, asked := make(chan error, len(witnesses)), 0
	ctx, cancel := context.WithTimeout(b.servers.ctx, silence)
	defer cancel()
	for _, witness := range witnesses {
		if asked >= mostWitnesses {
			break
		}
		if *witness == *c.Broker(int(but)) {
			continue
		}
		if b.servers.spawn(func() {
			_, err := serversOnly().RequestWith(ctx, witness)
			answers <- err
		}) {
			asked++
		}
	}
	for range asked {
		if <-answers == nil {
			return true
		}
	}
	return false
}

// returned asks a server that is out, past all clients, which do not connect to it. The cluster knows
// where it is now; one that it no longer has leads nothing, and is not out.
func (b *Broker) returned(ctx context.Context, id int32, address string) (is bool, now string) {
	asking, cancel := context.WithTimeout(ctx, 2*silence)
	found, known := b.address(asking, id)
	cancel()
	switch {
	case known && found == "":
		return true, address
	case known:
		address = found
	}
	ctx, cancel = context.WithTimeout(ctx, 2*silence) // its own: others being slow is not its fault
	defer cancel()
	c, err := kgo.NewClient(append(slices.Clip(b.settings), kgo.SeedBrokers(address), kgo.Dialer(b.options.dial))...)
	if err != nil {
		return false, address
	}
	stop := context.AfterFunc(ctx, c.Close)
	err = c.Ping(ctx)
	if stop() {
		c.Close()
	}
	return err == nil, address
}

// address asks the cluster where a server is; empty: it has none of that id.
func (b *Broker) address(ctx context.Context, id int32) (address string, known bool) {
	c, err := b.acquire(ctx)
	if err != nil {
		return "", false
	}
	var answer *kmsg.MetadataResponse
	err = b.question(ctx, c, func(ctx context.Context, c *client) (err error) {
		answer, err = serversOnly().RequestWith(ctx, c)
		return err
	})
	b.release(c, err == nil)
	if err != nil {
		return "", false
	}
	all := addresses(answer)
	b.servers.know(all)
	return all[id], true
}
