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

	"github.com/gorm-fanout/fanout/internal/testservers"
)

// A serverKind is a server of brokers, and how the rig has one.
type serverKind struct {
	name string // in the names of links, of its faults' target and of its observer
	// Start starts one, or takes that of the environment.
	start func(ctx context.Context, s *fixture) (*server, error)
	// Prepare makes what consumers and the ledger need on it. Nil: nothing.
	prepare func(ctx context.Context, s *fixture, at *server) error
	signals map[Kind]syscall.Signal // that end the server, by the faults of it that there are
	address func(url string) string
	through func(url, address string) string // the URL for a process, by way of a proxy
}

// observer is the process that writes down what comes from the server.
func (k *serverKind) observer() string { return "observer-" + k.name }

// server is one that processes talk to.
type server struct {
	name    string
	url     string // of the server itself, which no fault of the network hits
	own     own    // nil where it is not the rig's to end
	signals map[Kind]syscall.Signal
	away    sync.Mutex // held while it is
}

// own is a server of the rig's own.
type own interface {
	End(signal os.Signal, patience time.Duration) error
	Start(ctx context.Context) error
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
		if at.own != nil {
			kinds = append(kinds, slices.Sorted(maps.Keys(at.signals))...)
		}
	}
	return kinds
}

// startServers starts a database and the servers of the brokers. In place of one whose binary is not
// there, that of a variable of make test is used, and its faults are left out, which the log is told.
func (s *fixture) startServers(ctx context.Context) (err error) {
	s.servers = &servers{brokers: map[*serverKind]*server{}}
	if s.servers.database, err = s.startServer(ctx, s.database.own, s.database.variable); err != nil {
		return err
	}
	s.servers.database.name, s.servers.database.signals = "database", s.database.signals
	for _, b := range s.brokers {
		if s.servers.brokers[b.server] != nil {
			continue
		}
		at, err := b.server.start(ctx, s)
		if err != nil {
			return err
		}
		at.name, at.signals = b.server.name, b.server.signals
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
	return &server{url: given}, nil
}

// owned is a server that tearDown ends.
func (s *fixture) owned(own *testservers.Own) *server {
	s.closers = append(s.closers, own.Close)
	fmt.Fprintf(s.log, "a server of its own: %s %s\n", own.Name, own.Version)
	return &server{url: own.URL, own: own}
}

// errAway says that a fault found its server away. Otherwise the outages of a server that takes long to
// start would queue up on a busy machine, and it would hardly ever be there.
var errAway = errors.New("chaos: the server is not back from the last fault")

// outage ends a server in one of the ways that faults have, and starts it again after a while.
func (s *servers) outage(ctx context.Context, f Fault) error {
	all := s.all()
	at := all[slices.IndexFunc(all, func(at *server) bool { return at.name == f.Target })]
	if !at.away.TryLock() {
		return errAway
	}
	defer at.away.Unlock()
	if err := at.own.End(at.signals[f.Kind], 30*time.Second); err != nil {
		return fmt.Errorf("chaos: %s: %w", f.Kind, err)
	}
	pauseFor(ctx, f.For)
	again, cancel := context.WithTimeout(context.WithoutCancel(ctx), startPatience)
	defer cancel()
	if err := at.own.Start(again); err != nil {
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
