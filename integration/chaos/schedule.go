//go:build unix

package chaos

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults that processes have.
const (
	Kill Kind = "kill" // SIGKILL, and started again
	Stop Kind = "stop" // SIGSTOP past the lease, and SIGCONT
	Term Kind = "term" // SIGTERM, and started again
	// StopInPipeline is a SIGSTOP of a relay in the middle of what it sends to the database for a
	// transaction, and what is on its way stays on its way.
	StopInPipeline Kind = "stop-in-pipeline"
)

// The kinds that rows have: an operator, or a job of the application's, keeps a transaction open.
const (
	LockRows   Kind = "lock-rows"   // open rows of all sorts, locked and let go as they were
	UpdateRows Kind = "update-rows" // rows that wait, changed and committed
)

// theRows is the target of the faults that rows have.
const theRows = "rows"

// The kinds that servers have. They are started again.
const (
	DatabaseFast      Kind = "database-fast"
	DatabaseImmediate Kind = "database-immediate" // PostgreSQL alone
	DatabaseKill      Kind = "database-kill"      // of PostgreSQL the postmaster alone; its children notice
	RedisTerm         Kind = "redis-term"
	RedisKill         Kind = "redis-kill"
	RabbitMQTerm      Kind = "rabbitmq-term"
	RabbitMQKill      Kind = "rabbitmq-kill"
	NATSTerm          Kind = "nats-term"
	NATSKill          Kind = "nats-kill"
	KafkaTerm         Kind = "kafka-term"   // of one node
	KafkaKill         Kind = "kafka-kill"   // of one node
	KafkaFreeze       Kind = "kafka-freeze" // of one node: SIGSTOP, and SIGCONT
	KafkaQuorum       Kind = "kafka-quorum" // all nodes but the target are killed
)

// serverOf names the server that a kind of fault is of.
var serverOf = map[Kind]string{
	DatabaseFast: "database", DatabaseImmediate: "database", DatabaseKill: "database", RedisTerm: "redis", RedisKill: "redis",
	RabbitMQTerm: "rabbitmq", RabbitMQKill: "rabbitmq", NATSTerm: "nats", NATSKill: "nats",
	KafkaTerm: "kafka", KafkaKill: "kafka", KafkaFreeze: "kafka", KafkaQuorum: "kafka",
}

// The kinds that links have.
const (
	Reset       Kind = "reset"        // each connection breaks as soon as something is sent
	Delay       Kind = "delay"        // milliseconds, each way
	Throttle    Kind = "throttle"     // kilobytes per second
	CutRequests Kind = "cut-requests" // after so many bytes
	CutAnswers  Kind = "cut-answers"  // after so many bytes
	BlackHole   Kind = "black-hole"   // requests arrive, answers do not
)

// Fault is one entry of a schedule.
type Fault struct {
	At     time.Duration `json:"at"`
	Kind   Kind          `json:"kind"`
	Target string        `json:"target"` // a process, a server or a link
	For    time.Duration `json:"for"`
	Amount int           `json:"amount,omitempty"` // in the kind's measure
	Skew   time.Duration `json:"skew,omitempty"`   // how far the clock of a process is off when it starts again
}

// String is one line of the printed schedule.
func (f Fault) String() string {
	line := fmt.Sprintf("%7.1fs  %-18s %-20s %5.1fs", f.At.Seconds(), f.Kind, f.Target, f.For.Seconds())
	if f.Amount != 0 {
		line += fmt.Sprintf("  amount %d", f.Amount)
	}
	if f.Skew != 0 {
		line += fmt.Sprintf("  clock %+.0fs", f.Skew.Seconds())
	}
	return line
}

// cluster names everything that a fault can hit.
type cluster struct {
	producers, relays, observers, projectors, links []string
	servers                                         []Kind              // the faults of those that are ours to kill
	nodes                                           map[string][]string // by server: what its faults can hit
	strains                                         []Kind              // the faults that the rig can do by statements
	clocks                                          bool                // can be set
	lease                                           time.Duration
}

// targets returns the members of the cluster that a kind of fault can hit.
func (c *cluster) targets(kind Kind) []string {
	if server := serverOf[kind]; server != "" {
		return c.nodes[server]
	}
	switch kind {
	case Kill:
		return slices.Concat(c.producers, c.relays, c.projectors, c.observers)
	case Stop:
		return slices.Concat(c.relays, c.projectors)
	case StopInPipeline:
		return c.relays
	case LockRows, UpdateRows:
		return []string{theRows}
	case Term:
		return slices.Concat(c.producers, c.relays, c.projectors)
	default:
		return c.links
	}
}

// deck is how often each kind comes, before any comes again. Relays have the worst of it.
func (c *cluster) deck(only []Kind) []Kind {
	deck := []Kind{
		Kill, Kill, Kill, Kill, Stop, Stop, Stop, Term, Term,
		Reset, Reset, Delay, Throttle, CutRequests, CutRequests, CutAnswers, CutAnswers, BlackHole, BlackHole,
	}
	deck = slices.Concat(deck, c.servers, c.strains, c.strains)
	return slices.DeleteFunc(deck, func(k Kind) bool { return len(only) > 0 && !slices.Contains(only, k) })
}

// Schedule is all faults of a run, in the order of their times.
type Schedule []Fault

// schedule draws the faults. No target has two at a time.
func (c *cluster) schedule(o Options) Schedule {
	random := rand.New(rand.NewPCG(o.Seed, 1))
	var (
		drawn Schedule
		hand  []Kind
		busy  = map[string]time.Duration{} // until when
		at    = o.Every
	)
	for {
		if len(hand) == 0 {
			hand = c.deck(o.Only)
			random.Shuffle(len(hand), func(i, j int) { hand[i], hand[j] = hand[j], hand[i] })
		}
		if len(hand) == 0 {
			return nil
		}
		fault := c.draw(random, hand[0], at)
		if fault.At+fault.For > o.For {
			return drawn
		}
		hand = hand[1:]
		if busy[fault.Target] <= at {
			drawn = append(drawn, fault)
			busy[fault.Target] = fault.At + fault.For + o.Every/2
		}
		at += o.Every/2 + time.Duration(random.Int64N(int64(o.Every)))
	}
}

// draw decides the details of one fault.
func (c *cluster) draw(random *rand.Rand, kind Kind, at time.Duration) Fault {
	between := func(low, high time.Duration) time.Duration {
		return (low + time.Duration(random.Int64N(int64(high-low)))).Round(10 * time.Millisecond)
	}
	targets := c.targets(kind)
	fault := Fault{At: at.Round(10 * time.Millisecond), Kind: kind, Target: targets[random.IntN(len(targets))], For: between(time.Second, 4*time.Second)}
	switch kind {
	case Stop:
		fault.For = between(c.lease*5/4, c.lease*2)
	case StopInPipeline:
		fault.For = halfPatience + between(c.lease*5/4, c.lease*2)
	case LockRows, UpdateRows:
		fault.For, fault.Amount = between(c.lease/2, c.lease*2), 1+random.IntN(60)
	case Kill, Term:
		fault.For = between(100*time.Millisecond, 2*time.Second)
		fault.Skew = c.skew(random)
	case DatabaseFast, DatabaseImmediate, DatabaseKill, RedisTerm, RedisKill, RabbitMQTerm, RabbitMQKill, NATSTerm, NATSKill:
		fault.For = between(500*time.Millisecond, 3*time.Second)
	case KafkaTerm, KafkaKill, KafkaFreeze, KafkaQuorum:
		fault.For = between(500*time.Millisecond, 12*time.Second) // the controller waits for 9 s before it gives up on a node
	case Delay:
		fault.Amount = 20 + random.IntN(700)
	case Throttle:
		fault.Amount = 1 + random.IntN(30)
	case CutRequests, CutAnswers:
		// More than it takes to connect: a handful of messages, a transaction, several. The rest of
		// the connections of that time end there, too.
		fault.Amount = 300 + random.IntN(1<<(10+random.IntN(5)))
	case Reset, BlackHole:
	}
	return fault
}

// skew draws by how much a clock is off: half of them are right, the others wrong by minutes.
func (c *cluster) skew(random *rand.Rand) time.Duration {
	minutes := random.IntN(21) - 10
	if !c.clocks || random.IntN(2) == 0 {
		return 0
	}
	return time.Duration(minutes) * time.Minute
}

// print shows the schedule.
func (s Schedule) print(w io.Writer) {
	fmt.Fprintf(w, "schedule: %d faults\n", len(s))
	for _, fault := range s {
		fmt.Fprintln(w, " ", strings.TrimRight(fault.String(), " "))
	}
}
