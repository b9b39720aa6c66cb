package kafka

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A client is one caller's at a time. A call that ends without knowing what became of its messages
// closes it, so that nothing of them is sent any more.
type client struct {
	*kgo.Client

	servers *servers
	said    said
	greeted bool  // a server has answered
	losses  int64 // of servers before it was made: it may be connected to one that went out since
	closing sync.Once

	mu        sync.Mutex
	throttled map[int32]time.Time // until when a server has the client wait
	round
}

// A round is what a client knows of what goes out together.
type round struct {
	began    time.Time
	writes   map[int32]int // of requests with messages, also of those that failed, by server
	hangups  map[int32]int // of requests with messages at which a server hung up, since it last answered one
	misses   int           // connections that failed since a server last said something
	abandon  context.CancelCauseFunc
	open     map[*kgo.Record]bool // records that have no answer yet; true where their partition is known
	homeless int                  // records whose partition is not known yet
	placed   chan struct{}        // closed when there are none
	sizes    map[string]int       // of topics, in partitions
	verdicts map[partition]error  // why records for a partition are not sent; nil: they are
	unsent   map[*kgo.Record]error
	shut     map[partition]error // partitions that were out in an earlier round of the call
	suspects map[int32]*suspect
	heard    map[int32]time.Time // when a server last said something
}

// A suspect is a server with records that says nothing, or cannot be connected to.
type suspect struct {
	since time.Time // of its trouble; zero where it is only silent
	asked time.Time // when it was last asked
	open  bool      // a question is
	why   error
}

func newClient(of *servers) *client {
	return &client{servers: of, losses: of.losses.Load(), throttled: map[int32]time.Time{}, round: round{writes: map[int32]int{}}}
}

// mostMisses in a row, with the backoff between them, are an outage: the client itself would go on
// until the end of the round, since what it has sent once may be there.
const mostMisses = 6

// mostHangups in a row, with the backoff between them, are no restart of a server.
const mostHangups = 4

// OnBrokerConnect implements [kgo.HookBrokerConnect].
func (c *client) OnBrokerConnect(server kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		return
	}
	c.trouble(server.NodeID, err)
	if c.misses++; c.misses >= mostMisses && c.abandon != nil && c.quiet() {
		c.abandon(err)
	}
}

// quiet reports whether no server has said anything for a while: where one has, it is not the broker that cannot be
// connected to, and the server that cannot is put out sooner.
func (c *client) quiet() bool {
	for _, at := range c.heard {
		if time.Since(at) < 2*silence {
			return false
		}
	}
	return true
}

// greetings are requests that a server answers before it has let the client in.
var greetings = map[int16]bool{
	int16(kmsg.ApiVersions): true, int16(kmsg.SASLHandshake): true, int16(kmsg.SASLAuthenticate): true,
}

// OnBrokerRead implements [kgo.HookBrokerRead].
func (c *client) OnBrokerRead(server kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	produce := key == int16(kmsg.Produce)
	if err != nil {
		if produce && c.hangups != nil {
			c.hangups[server.NodeID]++
		}
		c.trouble(server.NodeID, err)
		return
	}
	if produce {
		delete(c.hangups, server.NodeID)
	}
	if greetings[key] {
		return
	}
	c.misses = 0
	c.hear(server.NodeID, time.Now())
}

// OnBrokerThrottle implements [kgo.HookBrokerThrottle]. The client sends the server nothing until then, so that
// it says nothing.
func (c *client) OnBrokerThrottle(server kgo.BrokerMetadata, wait time.Duration, waits bool) {
	if !waits {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.throttled[server.NodeID] = time.Now().Add(wait)
	c.hear(server.NodeID, c.throttled[server.NodeID])
	c.servers.throttle(server.NodeID, wait)
}

// hear notes that a server has said something, which counts for a time.
func (c *client) hear(server int32, at time.Time) {
	if c.heard != nil && at.After(c.heard[server]) {
		c.heard[server] = at
	}
	delete(c.suspects, server)
}

// throttles reports whether a server has had the client wait in the round.
func (c *client) throttles(server int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.throttled[server].After(c.began)
}

// hangsUp reports whether a server has closed each connection of the round that brought messages, and answers
// questions.
func (c *client) hangsUp(server int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, heard := c.heard[server]
	return heard && c.hangups[server] >= mostHangups
}

// OnBrokerWrite implements [kgo.HookBrokerWrite].
func (c *client) OnBrokerWrite(server kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == int16(kmsg.Produce) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.writes[server.NodeID]++; c.writes[server.NodeID] > 1 {
			c.said.closely.Store(true)
		}
	}
}

func (c *client) trouble(server int32, err error) {
	if c.suspects == nil || server < 0 { // between rounds, or one of the bootstrap servers
		return
	}
	s := c.suspects[server]
	if s == nil {
		s = &suspect{}
		c.suspects[server] = s
	}
	if s.since.IsZero() {
		s.since = time.Now()
	}
	s.why = err
}

// OnProduceRecordPartitioned implements [kgo.HookProduceRecordPartitioned].
func (c *client) OnProduceRecordPartitioned(record *kgo.Record, _ int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, open := c.open[record]; open && !known {
		c.open[record] = true
		c.place()
	}
}

// place notes that the partition of a record is known, or that it will never be.
func (c *client) place() {
	if c.homeless--; c.homeless == 0 {
		close(c.placed)
	}
}

// done notes that a record has its answer, and says why it was not sent, if it was not.
func (c *client) done(record *kgo.Record) (unsent error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, open := c.open[record]; open && !known {
		c.place()
	}
	delete(c.open, record)
	return c.unsent[record]
}

// begin begins a round of items, at least one, which abandon ends where no server can be reached. The
// channel is closed when each has its partition, or an error instead.
func (c *client) begin(items []item, shut map[partition]error, abandon context.CancelCauseFunc) (placed <-chan struct{}) {
	c.said.begin()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.round = round{
		began: time.Now(), writes: map[int32]int{}, hangups: map[int32]int{}, abandon: abandon,
		open: make(map[*kgo.Record]bool, len(items)), homeless: len(items), placed: make(chan struct{}),
		sizes: map[string]int{}, verdicts: map[partition]error{}, unsent: map[*kgo.Record]error{}, shut: shut,
		suspects: map[int32]*suspect{}, heard: map[int32]time.Time{},
	}
	for server, until := range c.throttled {
		if until.After(c.began) {
			c.heard[server] = until
		} else {
			delete(c.throttled, server)
		}
	}
	for i := range items {
		it := &items[i]
		if it.sent { // what was refused with others goes again, as it was
			old := it.record
			it.record = &kgo.Record{Topic: old.Topic, Key: old.Key, Value: old.Value, Headers: old.Headers}
		}
		it.sent = true
		c.open[it.record] = false
	}
	return c.placed
}

// repeated reports whether a server got more than one request in the round: then what it refused may
// be there nevertheless, by an earlier request of which nothing was heard.
func (c *client) repeated() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.writes {
		if n > 1 {
			return true
		}
	}
	return false
}

// waiting are the partitions that have records without an answer.
func (c *client) waiting() []partition {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[partition]bool{}
	for record, known := range c.open {
		if known {
			found[partition{record.Topic, record.Partition}] = true
		}
	}
	return slices.Collect(maps.Keys(found))
}

// answered reports whether a server other than one has said anything in the round. One of the bootstrap
// servers may be that one, under another id.
func (c *client) answered(but int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.heard {
		if id != but && (id >= 0 || but == noServer) {
			return true
		}
	}
	return false
}

// suspected is the server because of which a record has an error, and why it could not be connected to, or broke
// its connection, in the round: the leader of its partition, or another one that the error is of; nil: it is not
// known of any.
func (c *client) suspected(leader int32, err error) (id int32, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.suspects[leader]; s != nil && s.why != nil && (code(err) == 0 || errors.Is(err, s.why)) {
		return leader, s.why
	}
	for id, s := range c.suspects {
		if s.why != nil && errors.Is(err, s.why) {
			return id, s.why
		}
	}
	return leader, nil
}

// known are the addresses of the cluster's servers, by id, as the client last heard.
func (c *client) known() map[int32]string {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // where it has heard of none it would ask
	answer, err := c.RequestCachedMetadata(ctx, serversOnly(), 0)
	if err != nil {
		return nil
	}
	return addresses(answer)
}

func addresses(answer *kmsg.MetadataResponse) map[int32]string {
	all := map[int32]string{}
	for i := range answer.Brokers {
		if server := &answer.Brokers[i]; len(all) < mostKnown {
			all[server.NodeID] = net.JoinHostPort(server.Host, strconv.Itoa(int(server.Port)))
		}
	}
	return all
}

// noServer is the id of no server.
const noServer = -1

// leader is the server that leads a partition, as far as the client knows; noServer: none does, or it
// does not know.
func (c *client) leader(of partition) int32 {
	id, _, err := c.PartitionLeader(of.topic, of.number)
	if err != nil {
		return noServer
	}
	return id
}

// close ends everything that the client does. What is unconfirmed gets an error.
func (c *client) close() { c.closing.Do(c.Close) }
