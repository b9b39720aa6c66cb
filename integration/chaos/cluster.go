//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gorm-fanout/fanout/integration/chaos/worker"
)

// makeNetwork makes the network, which servers can have links in before there are processes.
func (s *fixture) makeNetwork(context.Context) error {
	s.network = newNetwork()
	s.closers = append(s.closers, func() error { s.network.close(); return nil })
	return nil
}

// connected are the names of the processes that use all brokers.
func (s *fixture) connected() (names []string) {
	for n := range s.options.Relays {
		names = append(names, relayName(n))
	}
	for n := range s.options.Projectors {
		names = append(names, projectorName(n))
	}
	return names
}

func relayName(n int) string     { return fmt.Sprintf("relay-%d", n) }
func projectorName(n int) string { return fmt.Sprintf("projector-%d", n) }

// assemble makes the processes of the cluster, each with a network of its own.
func (s *fixture) assemble(ctx context.Context) error {
	s.processes = map[string]*process{}
	s.cluster.clocks, s.cluster.lease = !s.options.TrueClocks, s.options.Lease
	s.cluster.servers, s.cluster.nodes, s.cluster.strains = s.servers.kinds(), s.servers.nodes(), s.database.strain.kinds()
	for n := range s.options.Producers {
		name := fmt.Sprintf("producer-%d", n)
		s.cluster.producers = append(s.cluster.producers, name)
		if err := s.addProducer(ctx, name); err != nil {
			return err
		}
	}
	for n := range s.options.Relays {
		name := relayName(n)
		s.cluster.relays = append(s.cluster.relays, name)
		if err := s.addConnected(ctx, name, "relay"); err != nil {
			return err
		}
	}
	for n := range s.options.Projectors {
		name := projectorName(n)
		s.cluster.projectors = append(s.cluster.projectors, name)
		var environ []string
		if n == 0 {
			environ = []string{worker.SoleVariable + "=1"}
		}
		if err := s.addConnected(ctx, name, "project", environ...); err != nil {
			return err
		}
	}
	for _, b := range s.brokers {
		if name := b.server.observer(); s.processes[name] == nil {
			s.cluster.observers = append(s.cluster.observers, name)
			if err := s.addObserver(name, b.server); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *fixture) addProducer(ctx context.Context, name string) error {
	database, err := s.connect(name, "database", s.database.address(s.servers.database.url))
	if err != nil {
		return err
	}
	// A producer has one link and a relay one to each server: it is listed as often as it would be
	// with two brokers, since its faults cause commits of unknown outcome.
	s.cluster.links = append(s.cluster.links, name+"/database", name+"/database")
	p := s.add(name, "producer", fmt.Sprintf("%s=%d", worker.RateVariable, s.options.Rate), fmt.Sprintf("%s=%d", worker.KeysVariable, s.options.Keys))
	return s.configure(ctx, p, database, s.servers.urls())
}

// addObserver adds the process that writes down what a server gives out.
func (s *fixture) addObserver(name string, kind *serverKind) error {
	url, err := s.reach(name, kind)
	if err != nil {
		return err
	}
	s.add(name, "observe-"+kind.name, worker.ServerVariable+"="+url)
	return nil
}

// reach links a process with a server, unless that has done so itself, and returns the URL for it.
func (s *fixture) reach(client string, kind *serverKind) (url string, err error) {
	at := s.servers.brokers[kind]
	if at.reached != nil {
		return at.reached[client], nil
	}
	address, err := s.connect(client, kind.name, kind.address(at.url))
	return kind.through(at.url, address), err
}

// addConnected adds a process that uses the database and all brokers.
func (s *fixture) addConnected(ctx context.Context, name, role string, environ ...string) error {
	database, err := s.connect(name, "database", s.database.address(s.servers.database.url))
	if err != nil {
		return err
	}
	urls := map[*serverKind]string{}
	for _, b := range s.brokers {
		kind := b.server
		if urls[kind] != "" {
			continue
		}
		if urls[kind], err = s.reach(name, kind); err != nil {
			return err
		}
		if s.options.Slow == 0 || role != "relay" {
			continue
		}
		away := s.options.Slow / time.Duration(2-len(s.cluster.relays)%2)
		for _, n := range s.servers.brokers[kind].nodes {
			if err := s.network.links[name+"/"+n.name].slowDown(away); err != nil {
				return err
			}
		}
	}
	return s.configure(ctx, s.add(name, role, environ...), database, urls)
}

// connect makes a link that faults can hit.
func (s *fixture) connect(client, server, address string) (string, error) {
	s.cluster.links = append(s.cluster.links, client+"/"+server)
	return s.network.connect(client, server, address)
}

// add adds a process that is not started yet.
func (s *fixture) add(name, role string, environ ...string) *process {
	p := &process{
		name: name, dir: s.dir, program: s.program, seed: s.options.Seed*1_000_003 + uint64(len(s.processes))*1_000,
		environ: append(environ, worker.RoleVariable+"="+role),
	}
	s.processes[name] = p
	return p
}

// configure writes the configuration of Fanout for one process, with the addresses of its links.
func (s *fixture) configure(ctx context.Context, p *process, database string, urls map[*serverKind]string) error {
	path := p.path("yaml")
	p.environ = append(p.environ, worker.ConfigVariable+"="+path)
	dsn, err := s.database.through(s.servers.database.url, database, p.name)
	if err := errors.Join(err, s.makeUser(ctx, p.name)); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(s.configuration(dsn, urls)), 0o600)
}
