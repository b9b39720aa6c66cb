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

// kinds are the faults of the servers that are ours to kill.
func (s *servers) kinds() (kinds []Kind) {
	if s.database != nil {
		kinds = s.kind.kinds()
	}
	if s.redis != nil {
		kinds = append(kinds, RedisTerm, RedisKill)
	}
	return kinds
}

// startServers starts a database and Redis from their binaries. In place of one that has none, the
// server that a variable of make test names is used, and its faults are left out, which log is told.
func startServers(ctx context.Context, kind *database, log io.Writer, dir, program string) (*servers, error) {
	s := &servers{kind: kind}
	var err, err1, err2 error
	s.database, s.databaseURL, err = startServer(ctx, log, kind.own, kind.variable)
	s.redis, s.redisURL, err1 = startServer(ctx, log, testservers.OwnRedis, testservers.RedisVariable)
	if err = errors.Join(err, err1); err == nil {
		err2 = s.startFake(ctx, dir, program)
	}
	if err = errors.Join(err, err2); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// startServer starts a server, or takes the one that a variable names.
func startServer(ctx context.Context, log io.Writer, start func(context.Context) (*testservers.Own, error), variable string) (*testservers.Own, string, error) {
	err := testservers.ErrNoBinary
	if start != nil {
		var own *testservers.Own
		if own, err = start(ctx); err == nil {
			fmt.Fprintf(log, "a server of its own: %s %s\n", own.Name, own.Version)
			return own, own.URL, nil
		}
	}
	server := os.Getenv(variable)
	switch {
	case !errors.Is(err, testservers.ErrNoBinary):
		return nil, "", err
	case server == "":
		return nil, "", fmt.Errorf("chaos: no server: %w; set %s", err, variable)
	}
	fmt.Fprintf(log, "NOTE: %v: using that of %s, and SKIPPING all faults that kill or restart it\n", err, variable)
	return nil, server, nil
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
