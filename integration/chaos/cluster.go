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

// assemble makes the processes of the cluster, each with a network of its own.
func (s *fixture) assemble(ctx context.Context) error {
	s.network = newNetwork()
	s.closers = append(s.closers, func() error { s.network.close(); return nil })
	s.processes = map[string]*process{}
	s.cluster = cluster{clocks: !s.options.TrueClocks, lease: s.options.Lease, consumers: []string{"reader", "puller"}}
	s.cluster.servers = s.servers.kinds()
	for n := range s.options.Producers {
		name := fmt.Sprintf("producer-%d", n)
		s.cluster.producers = append(s.cluster.producers, name)
		if err := s.addProducer(ctx, name); err != nil {
			return err
		}
	}
	for n := range s.options.Relays {
		name := fmt.Sprintf("relay-%d", n)
		s.cluster.relays = append(s.cluster.relays, name)
		if err := s.addConnected(ctx, name, "relay"); err != nil {
			return err
		}
	}
	for n := range s.options.Projectors {
		name := fmt.Sprintf("projector-%d", n)
		s.cluster.projectors = append(s.cluster.projectors, name)
		if err := s.addConnected(ctx, name, "project"); err != nil {
			return err
		}
	}
	redis, err := s.connect("reader", "redis", host(s.servers.redisURL))
	if err != nil {
		return err
	}
	s.add("reader", "redis", worker.ServerVariable+"="+behind(s.servers.redisURL, redis))
	pubsub, err := s.connect("puller", "pubsub", s.servers.pubsub)
	if err != nil {
		return err
	}
	s.add("puller", "pubsub", worker.ServerVariable+"="+pubsub)
	return nil
}

func (s *fixture) addProducer(ctx context.Context, name string) error {
	database, err := s.connect(name, "database", s.database.address(s.servers.databaseURL))
	if err != nil {
		return err
	}
	// A producer has one link and a relay three: it is listed as often, since its faults cause
	// commits of unknown outcome.
	s.cluster.links = append(s.cluster.links, name+"/database", name+"/database")
	p := s.add(name, "producer", fmt.Sprintf("%s=%d", worker.RateVariable, s.options.Rate), fmt.Sprintf("%s=%d", worker.KeysVariable, s.options.Keys))
	return s.configure(ctx, p, database, host(s.servers.redisURL), s.servers.pubsub)
}

// addConnected adds a process that uses the database and all brokers.
func (s *fixture) addConnected(ctx context.Context, name, role string) error {
	addresses := make([]string, 0, 3)
	for _, server := range [][2]string{{"database", s.database.address(s.servers.databaseURL)}, {"redis", host(s.servers.redisURL)}, {"pubsub", s.servers.pubsub}} {
		address, err := s.connect(name, server[0], server[1])
		if err != nil {
			return err
		}
		addresses = append(addresses, address)
		if s.options.Slow > 0 && role == "relay" && server[0] != "database" {
			away := s.options.Slow / time.Duration(2-len(s.cluster.relays)%2)
			if err := s.network.links[name+"/"+server[0]].slowDown(away); err != nil {
				return err
			}
		}
	}
	return s.configure(ctx, s.add(name, role), addresses[0], addresses[1], addresses[2])
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
func (s *fixture) configure(ctx context.Context, p *process, database, redis, pubsub string) error {
	path := p.path("yaml")
	p.environ = append(p.environ, worker.ConfigVariable+"="+path)
	dsn, err := s.database.through(s.servers.databaseURL, database, p.name)
	if err := errors.Join(err, s.makeUser(ctx, p.name)); err != nil {
		return err
	}
	text := s.configuration(dsn, behind(s.servers.redisURL, redis), pubsub)
	return os.WriteFile(path, []byte(text), 0o600)
}
