//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/internal/testservers"
)

// A serverKind is a server of brokers, and how the rig has one.
type serverKind struct {
	name string // in the names of links, of its faults' target and of its observer
	// Optional servers are left out where there is none.
	optional bool
	// Start starts one, or takes that of the environment.
	start func(ctx context.Context, s *fixture) (*server, error)
	// Prepare makes what consumers and the ledger need on it. Nil: nothing.
	prepare func(ctx context.Context, s *fixture, at *server) error
	signals map[Kind]syscall.Signal // that end the server, by the faults of it that there are
	address func(url string) string
	through func(url, address string) string // the URL for a process, by way of a proxy
}

// observer is the process that writes down what comes from the server.
func (k *serverKind) observer() string { return observerOf(k.name) }

func observerOf(server string) string { return "observer-" + server }

// server is one that processes talk to.
type server struct {
	name    string
	url     string  // of the server itself, which no fault of the network hits
	nodes   []*node // the one that it is, or those of a cluster
	signals map[Kind]syscall.Signal
	reached map[string]string // its URLs by processes, where it has made their links itself
}

// ours reports whether the rig can end it.
func (s *server) ours() bool { return s.nodes[0].own != nil }

// node is one process of a server, and what faults have as their target.
type node struct {
	name string
	own  own        // nil where it is not the rig's to end
	away sync.Mutex // held while it is
}

// own is a server of the rig's own.
type own interface {
	End(signal os.Signal, patience time.Duration) error
	Start(ctx context.Context) error
	Signal(signal os.Signal) error
	Close() error
}

// servers are what the processes talk to.
type servers struct {
	database *server
	brokers  map[*serverKind]*server
	messages string // the address at which the fake of Pub/Sub shows them
}

// all lists them, in the order in which brokers have them.
func (s *servers) all() []*server {
	list := []*server{s.database}
	for _, b := range brokers {
		if at := s.brokers[b.server]; at != nil && !slices.Contains(list, at) {
			list = append(list, at)
		}
	}
	return list
}

// urls are those of the brokers' servers.
func (s *servers) urls() map[*serverKind]string {
	urls := map[*serverKind]string{}
	for kind, at := range s.brokers {
		urls[kind] = at.url
	}
	return urls
}

// kinds are the faults of the servers that are ours to end.
func (s *servers) kinds() (kinds []Kind) {
	for _, at := range s.all() {
		if at.ours() {
			kinds = append(kinds, slices.Sorted(maps.Keys(at.signals))...)
		}
	}
	return kinds
}

// nodes are the targets of the faults of clusters, by the cluster.
func (s *servers) nodes() map[string][]string {
	names := map[string][]string{}
	for _, at := range s.all() {
		for _, n := range at.nodes {
			names[at.name] = append(names[at.name], n.name)
		}
	}
	return names
}

// startServers starts a database and the servers of the brokers. In place of one whose binary is not
// there, that of a variable of make test is used, and its faults are left out, which the log is told. A
// broker whose server is optional is left out with it, unless it was asked for.
func (s *fixture) startServers(ctx context.Context) (err error) {
	s.servers = &servers{brokers: map[*serverKind]*server{}}
	if s.servers.database, err = s.startServer(ctx, s.database.own, s.database.variable); err != nil {
		return err
	}
	s.servers.database.become("database", s.database.signals)
	for _, b := range slices.Clone(s.brokers) {
		if s.servers.brokers[b.server] != nil {
			continue
		}
		at, err := b.server.start(ctx, s)
		if s.leavesOut(b, err) {
			continue
		}
		if err != nil {
			return err
		}
		at.become(b.server.name, b.server.signals)
		s.servers.brokers[b.server] = at
		if b.server.prepare == nil {
			continue
		}
		if err := b.server.prepare(ctx, s, at); err != nil {
			return fmt.Errorf("chaos: prepare %s: %w", at.name, err)
		}
	}
	return nil
}

// leavesOut leaves a broker out whose server did not start, where it may be missing, and says so.
func (s *fixture) leavesOut(b *broker, err error) bool {
	if !b.server.optional || len(s.options.Brokers) > 0 || !errors.Is(err, testservers.ErrNoBinary) {
		return false
	}
	fmt.Fprintf(s.log, "NOTE: running WITHOUT %s: %v\n", b.name, err)
	s.without = append(s.without, b.name)
	s.brokers = slices.DeleteFunc(slices.Clone(s.brokers), func(other *broker) bool { return other == b })
	return true
}

// become names a server that was started, and its faults.
func (s *server) become(name string, signals map[Kind]syscall.Signal) {
	s.name, s.signals = name, signals
	if len(s.nodes) == 1 {
		s.nodes[0].name = name
	}
}

// startServer starts a server, or takes the one that a variable names.
func (s *fixture) startServer(ctx context.Context, start func(context.Context) (*testservers.Own, error), variable string) (*server, error) {
	err := testservers.ErrNoBinary
	if start != nil {
		var own *testservers.Own
		if own, err = start(ctx); err == nil {
			return s.owned(own), nil
		}
	}
	given := os.Getenv(variable)
	switch {
	case !errors.Is(err, testservers.ErrNoBinary):
		return nil, err
	case given == "":
		return nil, fmt.Errorf("chaos: no server: %w; set %s", err, variable)
	}
	fmt.Fprintf(s.log, "NOTE: %v: using that of %s, and SKIPPING all faults that kill or restart it\n", err, variable)
	return &server{url: given, nodes: []*node{{}}}, nil
}

// owned is a server that tearDown ends.
func (s *fixture) owned(own *testservers.Own) *server {
	s.closers = append(s.closers, own.Close)
	fmt.Fprintf(s.log, "a server of its own: %s %s\n", own.Name, own.Version)
	return &server{url: own.URL, nodes: []*node{{own: own}}}
}

// errAway says that a fault found its server away. Otherwise the outages of a server that takes long to
// start would queue up on a busy machine, and it would hardly ever be there.
var errAway = errors.New("chaos: the server is not back from the last fault")

// outage does to a server, or to nodes of it, what a fault says, until it is over.
func (s *servers) outage(ctx context.Context, f Fault) error {
	all := s.all()
	at := all[slices.IndexFunc(all, func(at *server) bool { return at.name == serverOf[f.Kind] })]
	hit := at.hit(f)
	for i, n := range hit {
		if !n.away.TryLock() {
			for _, locked := range hit[:i] {
				locked.away.Unlock()
			}
			return errAway
		}
	}
	var over errgroup.Group
	for _, n := range hit {
		over.Go(func() error {
			defer n.away.Unlock()
			return n.outage(ctx, f, at.signals[f.Kind])
		})
	}
	return over.Wait()
}

// hit are the nodes that have a fault: its target, or all others.
func (s *server) hit(f Fault) (nodes []*node) {
	for _, n := range s.nodes {
		if (n.name == f.Target) != (f.Kind == KafkaQuorum) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// outage freezes a node for a while, or ends it and starts it again.
func (n *node) outage(ctx context.Context, f Fault, signal syscall.Signal) error {
	if signal == syscall.SIGSTOP {
		err := n.own.Signal(signal)
		pauseFor(ctx, f.For)
		if err := errors.Join(err, n.own.Signal(syscall.SIGCONT)); err != nil {
			return fmt.Errorf("chaos: %s: %w", f.Kind, err)
		}
		return nil
	}
	if err := n.own.End(signal, 30*time.Second); err != nil {
		return fmt.Errorf("chaos: %s: %w", f.Kind, err)
	}
	pauseFor(ctx, f.For)
	again, cancel := context.WithTimeout(context.WithoutCancel(ctx), startPatience)
	defer cancel()
	if err := n.own.Start(again); err != nil {
		return fmt.Errorf("chaos: %s: start again: %w", f.Kind, err)
	}
	return nil
}

// startPatience bounds the start of a server that has ended: seconds, and more for RabbitMQ on a busy
// machine.
const startPatience = 3 * time.Minute

// host is the address in a URL.
func host(server string) string {
	parsed, err := url.Parse(server)
	if err != nil {
		return server
	}
	return parsed.Host
}

// behind replaces the address in a URL, and adds parameters ("name=value").
func behind(server, address string, parameters ...string) string {
	return changed(server, func(u *url.URL) {
		u.Host = address
		query := u.Query()
		for _, parameter := range parameters {
			name, value, _ := strings.Cut(parameter, "=")
			query.Set(name, value)
		}
		u.RawQuery = query.Encode()
	})
}
