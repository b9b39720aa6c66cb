//go:build unix

package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/config"
)

// fixture is everything that a run needs: programs, servers, network and processes.
type fixture struct {
	options  Options
	log      io.Writer
	dir      string
	programs programs
	database *database
	brokers  []*broker
	without  []string // brokers that are left out, since there is no server of theirs
	servers  *servers
	// The name of the database of the run.
	databaseName string
	network      *network
	cluster      cluster
	processes    map[string]*process
	missed       atomic.Int64 // faults that found their server away
	inPipeline   atomic.Int64 // stops that met a transaction half sent
	locked       atomic.Int64 // rows, by the faults that they have
	closers      []func() error
}

// programs are the builds of the worker.
type programs struct{ plain, skewed string }

// setUp builds the programs, starts the servers and makes the tables. After a failure, tearDown
// still cleans up.
func (s *fixture) setUp(ctx context.Context) error {
	var err error
	if s.database, err = databaseOf(s.options.Database); err != nil {
		return err
	}
	if s.brokers, err = brokersOf(s.options.Brokers); err != nil {
		return err
	}
	steps := []func(context.Context) error{s.makeDir, s.build, s.makeNetwork, s.startServers, s.makeTables, s.assemble}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *fixture) makeDir(context.Context) (err error) {
	if s.dir = s.options.Keep; s.dir != "" {
		return os.MkdirAll(s.dir, 0o700)
	}
	s.dir, err = os.MkdirTemp("", "fanout-chaos-")
	s.closers = append(s.closers, func() error { return os.RemoveAll(s.dir) })
	return err
}

func (s *fixture) build(ctx context.Context) error {
	if s.programs.plain = s.options.Program; s.programs.plain != "" {
		if !s.options.TrueClocks || s.options.Broken != "" {
			return errors.New("chaos: a program that is not built by the rig has true clocks and no defect: set TrueClocks, and not Broken")
		}
		return nil
	}
	began := time.Now()
	defects, err := defectEdits(s.options.Broken)
	if err != nil {
		return err
	}
	b, err := newBuilder(ctx, s.dir)
	if err != nil {
		return err
	}
	if s.programs.plain, err = b.build(ctx, "plain", defects); err != nil {
		return err
	}
	if !s.options.TrueClocks {
		clock, err := wrongClock(b.goroot)
		if err != nil {
			return err
		}
		if s.programs.skewed, err = b.build(ctx, "skewed", slices.Concat(defects, clock)); err != nil {
			return err
		}
	}
	fmt.Fprintf(s.log, "built the programs in %s\n", time.Since(began).Round(time.Second))
	return nil
}

// makeTables makes the tables of the application, of the outbox and of the watch, in a database of
// their own.
func (s *fixture) makeTables(ctx context.Context) error {
	if err := s.makeDatabase(ctx); err != nil {
		return err
	}
	cfg, err := config.Parse([]byte(s.configuration(s.servers.database.url, s.servers.urls())), "chaos.yaml")
	if err != nil {
		return err
	}
	store, err := fanout.OpenStore(ctx, cfg, "default")
	if err != nil {
		return err
	}
	_, err = store.Migrate(ctx)
	if err := errors.Join(err, store.Close(), s.makeInbox(ctx)); err != nil {
		return err
	}
	accounts := make([]string, s.options.Keys)
	for n := range accounts {
		accounts[n] = fmt.Sprintf("('account-%03d')", n)
	}
	script := s.database.business + "\nGO\n" + s.database.watch
	if s.options.NotKept {
		script += "\nGO\n" + s.database.watchNotKept
	}
	return s.ask(ctx, func(ctx context.Context, db *sql.DB) error {
		for _, text := range append(batches(script), "INSERT INTO accounts (id) VALUES "+strings.Join(accounts, ", ")) {
			if _, err := db.ExecContext(ctx, text); err != nil {
				return fmt.Errorf("chaos: make the tables: %w", err)
			}
		}
		return nil
	})
}

// configuration is that of producers, relays and projectors, with the URLs that a process has for
// its servers. Retries are quick, and no message may reach the maximum of attempts.
func (s *fixture) configuration(dsn string, urls map[*serverKind]string) string {
	external, settings := []string{}, strings.Builder{}
	for _, b := range s.brokers {
		if !b.internal() {
			external = append(external, b.name)
		}
		fmt.Fprintf(&settings, "  %s: {%s}\n", b.name, b.settings(urls[b.server]))
	}
	return fmt.Sprintf(`
databases:
  default: {driver: %s, dsn: %q}
outbox:
  external_brokers: [%s]
  keep: %t
  lease: %s
  publish_timeout: 1s
  shutdown_timeout: 3s
  batch_size: 50
  poll: {min: 20ms, max: 500ms}
  retry: {max_attempts: %d, base_delay: 200ms, max_delay: 2s}
  breaker: {min_delay: 100ms, max_delay: 1s}
brokers:
%s`, s.database.driver, dsn, strings.Join(external, ", "), !s.options.NotKept, s.options.Lease, maxAttempts, settings.String())
}

// maxAttempts bounds the attempts of a message. Whatever fault there is, no message may need as
// many.
const maxAttempts = 25

// program returns the build with an adjustable clock where the clock is to be wrong.
func (s *fixture) program(skew time.Duration) string {
	if skew != 0 {
		return s.programs.skewed
	}
	return s.programs.plain
}

// tearDown cleans up in reverse order.
func (s *fixture) tearDown() error {
	var problems []error
	for _, end := range slices.Backward(s.closers) {
		problems = append(problems, end())
	}
	return errors.Join(problems...)
}
