//go:build unix

package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gorm-fanout/fanout/integration/chaos/worker"
	"github.com/gorm-fanout/fanout/internal/testservers"
	"github.com/gorm-fanout/fanout/internal/testservers/child"
)

// servers are what the processes talk to.
type servers struct {
	kind                  *database
	databaseURL, redisURL string
	pubsub, messages      string // addresses: of the fake, and of its messages
	database, redis       *testservers.Own
	fake                  *child.Child
	databaseOut, redisOut sync.Mutex // held while the server is away
}

// own reports whether the database and Redis are ours to kill.
func (s *servers) own() bool { return s.database != nil && s.redis != nil }

// startServers starts a database and Redis from their binaries. Where there are none, the servers
// that the variables of make test name are used, and faults of servers are left out, which log is
// told.
func startServers(ctx context.Context, kind *database, log io.Writer, dir, program string) (*servers, error) {
	s := &servers{kind: kind}
	var err error
	s.database, err = kind.own(ctx)
	if err == nil {
		s.redis, err = testservers.OwnRedis(ctx)
	}
	switch {
	case err == nil:
		s.databaseURL, s.redisURL = s.database.URL, s.redis.URL
		fmt.Fprintf(log, "servers of its own: %s %s, Redis %s\n", s.database.Name, s.database.Version, s.redis.Version)
	case errors.Is(err, testservers.ErrNoBinary):
		if s.database != nil {
			err = errors.Join(err, s.database.Close())
			s.database = nil
		}
		s.databaseURL, s.redisURL = os.Getenv(kind.variable), os.Getenv(testservers.RedisVariable)
		if s.databaseURL == "" || s.redisURL == "" {
			return nil, fmt.Errorf("chaos: no servers: %w; install them, or set %s and %s", err, kind.variable, testservers.RedisVariable)
		}
		fmt.Fprintf(log, "NOTE: %v: using the servers of the environment, and SKIPPING all faults that kill or restart them\n", err)
	default:
		return nil, errors.Join(err, s.close())
	}
	if err := s.startFake(ctx, dir, program); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// startFake starts the fake of Pub/Sub in a process of its own.
func (s *servers) startFake(ctx context.Context, dir, program string) error {
	log, err := os.Create(filepath.Join(dir, "fake.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program)
	cmd.Env = append(os.Environ(), worker.RoleVariable+"=fake", worker.LedgerVariable+"="+filepath.Join(dir, "fake.ledger"))
	cmd.Stderr = log
	said, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if _, err := cmd.StdinPipe(); err != nil {
		return err
	}
	if s.fake, err = child.Start(cmd); err != nil {
		return err
	}
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		return fmt.Errorf("chaos: the fake of Pub/Sub did not start: %w", err)
	}
	if _, err := fmt.Sscan(line, &s.pubsub, &s.messages); err != nil {
		return fmt.Errorf("chaos: the fake of Pub/Sub said %q: %w", line, err)
	}
	return nil
}

// close ends what was started.
func (s *servers) close() error {
	var problems []error
	if s.fake != nil {
		problems = append(problems, s.fake.Stop(child.Step{Signal: syscall.SIGKILL, Patience: 10 * time.Second}))
	}
	for _, own := range []*testservers.Own{s.database, s.redis} {
		if own != nil {
			problems = append(problems, own.Close())
		}
	}
	return errors.Join(problems...)
}

// outage ends a server in one of the ways that faults have, and starts it again after a while.
func (s *servers) outage(ctx context.Context, kind Kind, d time.Duration) error {
	server, out, signal := s.database, &s.databaseOut, s.kind.signals[kind]
	switch kind {
	case RedisTerm:
		server, out, signal = s.redis, &s.redisOut, syscall.SIGTERM
	case RedisKill:
		server, out, signal = s.redis, &s.redisOut, syscall.SIGKILL
	default:
	}
	out.Lock() // on a busy machine, it may not be back from the last time
	defer out.Unlock()
	if err := server.End(signal, 30*time.Second); err != nil {
		return fmt.Errorf("chaos: %s: %w", kind, err)
	}
	pauseFor(ctx, d)
	again, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := server.Start(again); err != nil {
		return fmt.Errorf("chaos: %s: start again: %w", kind, err)
	}
	return nil
}

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
	parsed, err := url.Parse(server)
	if err != nil {
		return server
	}
	parsed.Host = address
	query := parsed.Query()
	for _, parameter := range parameters {
		name, value, _ := strings.Cut(parameter, "=")
		query.Set(name, value)
	}
	parsed.RawQuery = query.Encode()
	return parsed.String()
}
