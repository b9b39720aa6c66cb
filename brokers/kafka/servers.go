package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// leastWatch is the pause before a server that is out is asked again; it doubles up to mostWatch.
	leastWatch = time.Second
	mostWatch  = 30 * time.Second
	// mostSlow is the longest time for which a partition is left alone that did not confirm a round, or whose
	// leader has clients wait.
	mostSlow = time.Minute
	// illFor is how long a partition counts as out of which nothing more is heard.
	illFor = time.Minute
	// mostRemembered bounds what is remembered of partitions and topics.
	mostRemembered = 100_000
	// mostKnown bounds the servers of a cluster whose addresses are kept.
	mostKnown = 10_000
)

// servers remembers, for all clients of a broker, which servers of the cluster are out while others
// answer, and which partitions: so that a call that has messages for them costs nothing more. Where no
// server answers it remembers nothing: that is an outage of the broker, which the relay probes.
type servers struct {
	dial dialer
	// returned reports whether a server can be reached again, and under which address it is known now.
	returned func(ctx context.Context, id int32, address string) (is bool, now string)

	ctx     context.Context //nolint:containedctx // it is that of the watches, and ends with them
	cancel  context.CancelFunc
	watches sync.WaitGroup

	some   atomic.Bool  // anything is out
	losses atomic.Int64 // servers that went out so far
	mu     sync.Mutex
	ended  bool
	known  map[int32]string // addresses of the cluster's servers, by id, when one was last lost or asked
	out    map[int32]*serverError
	ill    map[partition]illness
	slow   map[int32]illness   // servers that have left several partitions unconfirmed, and have confirmed none since
	waits  map[int32]time.Time // until when servers have clients wait
	sizes  map[string]int      // of topics, in partitions
}

// An illness is what is remembered of a partition that failed, and of a server that is slow.
type illness struct {
	since  time.Time
	leader int32     // of a partition, then
	first  partition // of those of a server
	// until then nothing is sent to it, and then one round; zero where its server answers at once.
	until time.Time
	pause time.Duration
}

// serverError is why nothing is sent to a partition: the server that leads it does not answer.
type serverError struct {
	id      int32
	address string
	why     error
	// leads are partitions that it is known to lead, for clients that have yet to learn of a topic: they
	// give the records that wait for it their partitions before they say who leads them.
	leads map[partition]bool
}

func (e *serverError) Error() string {
	return fmt.Sprintf("server %d (%s), which leads the partition, does not answer: %v", e.id, e.address, e.why)
}

func (e *serverError) Unwrap() error { return e.why }

var (
	// errSlow is why nothing is sent to a partition for a while.
	errSlow = errors.New("the partition's leader answers, but confirms nothing in time")
	// errThrottled is why nothing is sent to a partition for a while, or has not confirmed a round, whose leader
	// has the client wait.
	errThrottled = errors.New("the partition's leader has clients of this user wait")
	// errHungUp is why a round was not confirmed at which the partition's leader hangs up: at a message of it, or at all.
	errHungUp = errors.New("the partition's leader hangs up at it, and answers questions")
	// errUnreached is why the client has given a batch up that it could not send.
	errUnreached = errors.New("the partition's leader does not answer")
	// errUnplaced is why a record was not sent whose partition was not found while servers answered.
	errUnplaced = errors.New("the topic's partitions were not found in time")
	// errOvertook is why a message that a server has confirmed is sent again.
	errOvertook = errors.New("published before an earlier message of its key, which was not")
)

// unsent is the error of a record that was not sent, since its partition is out.
type unsent struct {
	partition partition
	why       error
}

func (e *unsent) Error() string { return e.why.Error() }
func (e *unsent) Unwrap() error { return e.why }

// misplaced is the error of a record that was not sent, since the client put a question of its own to a server
// that is out.
type misplaced struct{ why error }

func (e *misplaced) Error() string { return e.why.Error() }
func (e *misplaced) Unwrap() error { return e.why }

func (s *servers) begin(dial dialer, returned func(ctx context.Context, id int32, address string) (bool, string)) {
	s.dial, s.returned = dial, returned
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.out, s.slow, s.waits = map[int32]*serverError{}, map[int32]illness{}, map[int32]time.Time{}
	s.ill, s.sizes = map[partition]illness{}, map[string]int{}
}

// know notes where the servers of the cluster are.
func (s *servers) know(known map[int32]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = known
}

// seeds are the addresses that a new client begins with: while servers are out, also those of the others, as the
// only one that was configured may be out. They are asked in this order.
func (s *servers) seeds(configured []string) []string {
	if !s.some.Load() {
		return configured
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Clone(configured)
	for id, address := range s.known {
		if s.out[id] == nil && !slices.Contains(all, address) {
			all = append(all, address)
		}
	}
	return all
}

// spawn runs f beside its caller, unless the broker is closed.
func (s *servers) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.watches.Go(f)
	}
	return !s.ended
}

// connect is the dialer of clients. It refuses a server that is out at once: a request of the client's
// own, for metadata say, then goes to another one.
func (s *servers) connect(ctx context.Context, network, address string) (net.Conn, error) {
	if err := s.refuse(address); err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)() //nolint:contextcheck // that of the broker, which may be closed
	return s.dial(ctx, network, address)
}

func (s *servers) refuse(address string) error {
	if !s.some.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.out {
		if o.address == address {
			return o
		}
	}
	return nil
}

// isOut says why a server is out; nil: it is not known to be.
func (s *servers) isOut(id int32) error {
	if !s.some.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.out[id]; o != nil {
		return o
	}
	return nil // and not an error that is a nil *serverError
}

// lost is the server that leads a partition and is out, nil where it is not. One client that knows its leader
// corrects what others, who do not, go by.
func (s *servers) lost(of partition, leader int32) *serverError {
	for id, o := range s.out {
		switch {
		case id == leader, leader == noServer && o.leads[of]:
			return o
		case leader != noServer:
			delete(o.leads, of)
		}
	}
	return nil
}

// learn notes the partitions of a topic that are led by servers that are out.
func (s *servers) learn(topic string, leader func(partition) int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for number := range int32(s.sizes[topic]) { //nolint:gosec // Kafka counts partitions in 32 bits
		of := partition{topic, number}
		if o := s.out[leader(of)]; o != nil && len(o.leads) < mostRemembered {
			o.leads[of] = true
		}
	}
}

// admit says why nothing is sent to a partition with this leader; nil: it may be, for this round.
func (s *servers) admit(of partition, leader int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.lost(of, leader); o != nil {
		return o
	}
	if s.throttles(leader) {
		return errThrottled
	}
	now := time.Now()
	i, server := s.illness(of, leader), s.slow[leader]
	if now.Before(i.until) || now.Before(server.until) {
		return errSlow
	}
	if !i.until.IsZero() {
		i.until = now.Add(i.pause) // the others wait for this round
		s.ill[of] = i
	}
	if !server.until.IsZero() {
		server.until = now.Add(server.pause)
		s.slow[leader] = server
	}
	return nil
}

// illness is that of a partition with this leader, where it is known; another one's says nothing of it.
func (s *servers) illness(of partition, leader int32) illness {
	i := s.ill[of]
	if i.leader != leader && i.leader != noServer && leader != noServer {
		return illness{}
	}
	return i
}

// throttle notes that a server has clients wait: another one would be told the same, and a round that waits keeps
// what is for other servers waiting.
func (s *servers) throttle(id int32, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.waits[id]; id < 0 || !known && len(s.waits) >= mostKnown { // one of the bootstrap servers
		return
	}
	s.waits[id] = time.Now().Add(min(wait, mostSlow))
	s.some.Store(true)
}

// throttles reports whether a server has clients wait for longer than a round should.
func (s *servers) throttles(id int32) bool { return time.Until(s.waits[id]) > silence }

// lose notes that a server is out, until it answers. known are those of the cluster: one that is not of them
// leads nothing.
func (s *servers) lose(id int32, known map[int32]string, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	address := known[id]
	if s.ended || s.out[id] != nil || address == "" {
		return
	}
	s.known = known
	s.losses.Add(1)
	o := &serverError{id: id, address: address, why: why, leads: map[partition]bool{}}
	s.out[id] = o
	s.some.Store(true)
	s.watches.Go(func() { s.watch(o) })
}

// watch asks a server that is out whether it is back.
func (s *servers) watch(o *serverError) {
	address := o.address
	for pause := leastWatch; ; pause = min(2*pause, mostWatch) {
		timer := time.NewTimer(pause)
		select {
		case <-s.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if !s.still(o) {
			return
		}
		back, now := s.returned(s.ctx, o.id, address)
		address = now
		if back {
			s.find(o)
			return
		}
	}
}

func (s *servers) still(o *serverError) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out[o.id] == o
}

func (s *servers) find(o *serverError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out[o.id] == o {
		delete(s.out, o.id)
		s.note()
	}
}

// forget forgets everything: no server answers.
func (s *servers) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.out)
	clear(s.ill)
	clear(s.slow)
	clear(s.waits)
	s.some.Store(false)
}

// fail notes that a partition failed with a leader; waited is for how long, where that answers but does not confirm.
func (s *servers) fail(of partition, leader int32, waited time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.ill[of]; !known && len(s.ill) >= mostRemembered {
		return
	}
	i := s.illness(of, leader)
	i.since, i.leader = time.Now(), leader
	if waited > 0 { // twice in a row: once may be a pause of the server's
		i.wait(i.pause > 0, waited)
	}
	s.ill[of] = i
	s.some.Store(true)
}

// slowed notes that a server has confirmed none of its partitions of a round. It is left alone where it has done so
// in two rounds, and to several partitions: one may wait for a replica that others do not have.
func (s *servers) slowed(leader int32, partitions []partition, waited time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, known := s.slow[leader]
	if !known {
		if len(s.slow) >= mostKnown {
			return
		}
		i.first = partitions[0]
	}
	i.since = time.Now()
	several := len(partitions) > 1 || partitions[0] != i.first || !i.until.IsZero()
	i.wait(known && several, waited)
	s.slow[leader] = i
	s.some.Store(true)
}

// wait begins a pause where it happens again, and doubles the next one.
func (i *illness) wait(again bool, waited time.Duration) {
	if again {
		i.until = i.since.Add(i.pause)
	}
	i.pause = min(max(2*i.pause, waited), max(mostSlow, waited))
}

// tidy forgets what is old of partitions that nothing is sent to any more.
func (s *servers) tidy() {
	if !s.some.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.ill, func(_ partition, i illness) bool { return i.old() })
	maps.DeleteFunc(s.slow, func(_ int32, i illness) bool { return i.old() })
	maps.DeleteFunc(s.waits, func(_ int32, until time.Time) bool { return time.Now().After(until) })
	s.note()
}

func (i *illness) old() bool { return time.Since(i.since) > illFor && time.Since(i.until) > illFor }

// note notes whether anything is out.
func (s *servers) note() { s.some.Store(len(s.out)+len(s.ill)+len(s.slow)+len(s.waits) > 0) }

// confirm notes that a partition has taken a batch, from its leader.
func (s *servers) confirm(of partition, c *client) {
	if !s.some.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ill, of)
	if len(s.slow) > 0 {
		delete(s.slow, c.leader(of))
	}
	s.note()
}

// sized notes how many partitions a topic has.
func (s *servers) sized(topic string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.sizes[topic]; known || len(s.sizes) < mostRemembered {
		s.sizes[topic] = n
	}
}

// allOut reports whether no partition of a topic can be used, by what is known of them and of their
// leaders.
func (s *servers) allOut(topic string, leader func(partition) int32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.sizes[topic]
	for number := range int32(n) { //nolint:gosec // Kafka counts partitions in 32 bits
		of := partition{topic, number}
		id := leader(of)
		ill := time.Since(s.illness(of, id).since) < illFor
		if !ill && s.lost(of, id) == nil && !s.throttles(id) {
			return false
		}
	}
	return true // also where the client never learned of one
}

// close ends the watches.
func (s *servers) close() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.cancel()
	s.watches.Wait()
}
