package testservers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gorm-fanout/fanout/internal/testservers/child"
)

// ErrNoReplication says that a replicated PostgreSQL cannot be started here, because a binary is
// not on this machine.
var ErrNoReplication = errors.New("testservers: postgres, initdb and a pg_basebackup that is not older are not all on this machine")

// Replicated is a PostgreSQL with a synchronous physical standby, for tests of a failover. Both end
// with this process. Its methods are not for several goroutines at a time.
type Replicated struct {
	PrimaryURL, StandbyURL string

	primary, standby *replica
}

// replica is one of the two servers.
type replica struct {
	files   *workspace
	bin     string
	port    string
	process *child.Child
}

// StartReplicated starts both servers and returns when the standby confirms what the primary
// commits. via is told the primary's address (host:port), and returns the one by which the standby
// reaches it, so that a network can stand between the two. The error is [ErrNoReplication] where
// that is the reason.
func StartReplicated(ctx context.Context, via func(primary string) string) (*Replicated, error) {
	bin, found := findPostgres(ctx)
	backup, err := exec.LookPath(filepath.Join(bin, "pg_basebackup"))
	if err != nil {
		backup, err = exec.LookPath("pg_basebackup")
	}
	if !found || err != nil || !copies(ctx, backup, bin) {
		return nil, ErrNoReplication
	}
	r := &Replicated{}
	if err := r.start(ctx, bin, backup, via); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// copies tells whether pg_basebackup can copy the data of the server in bin, which must not be newer.
func copies(ctx context.Context, backup, bin string) bool {
	server, ok := inspectPostgres(ctx, bin)
	said, err := execute(ctx, backup, "--version")
	major, _, known := parsePostgresVersion(said)
	return ok && err == nil && known && major >= server.major
}

func (r *Replicated) start(ctx context.Context, bin, backup string, via func(string) string) (err error) {
	if r.primary, err = newReplica(bin); err != nil {
		return err
	}
	if err := initCluster(ctx, r.primary.files, bin, r.primary.data()); err != nil {
		return err
	}
	if err := r.primary.run(ctx); err != nil {
		return err
	}
	if _, err := createDatabase(ctx, localPostgresURL(r.primary.port, "postgres")); err != nil {
		return fmt.Errorf("testservers: create database: %w", err)
	}
	if r.standby, err = newReplica(bin); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(via(net.JoinHostPort("127.0.0.1", r.primary.port)))
	if err != nil {
		return err
	}
	copying, err := r.standby.files.start(r.standby.files.command(ctx, backup, "-D", r.standby.data(), "-h", host, "-p", port, "-U", postgresUser,
		"-R", "-X", "stream", "-c", "fast", "--no-sync"))
	if err == nil {
		err = copying.Wait()
	}
	if err != nil {
		return fmt.Errorf("testservers: pg_basebackup: %w; the end of its output:\n%s", err, r.standby.files.logTail())
	}
	if err := r.standby.run(ctx); err != nil {
		return err
	}
	r.PrimaryURL, r.StandbyURL = localPostgresURL(r.primary.port, postgresDatabase), localPostgresURL(r.standby.port, postgresDatabase)
	return r.synchronous(ctx)
}

// synchronous makes the primary wait for the standby, and waits until it does.
func (r *Replicated) synchronous(ctx context.Context) error {
	return awaitReady(ctx, r.primary.process.Done(), func(ctx context.Context) error {
		return withPostgres(ctx, r.PrimaryURL, func(conn *pgx.Conn) error {
			for _, statement := range []string{"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"} {
				if _, err := conn.Exec(ctx, statement); err != nil {
					return err
				}
			}
			var state string
			if err := conn.QueryRow(ctx, "SELECT coalesce(max(sync_state), '') FROM pg_stat_replication WHERE state = 'streaming'").Scan(&state); err != nil {
				return err
			}
			if state != "sync" {
				return fmt.Errorf("the standby is %q", state)
			}
			return nil
		})
	})
}

// KillPrimary ends the primary as a power failure does.
func (r *Replicated) KillPrimary() error {
	return r.primary.process.Stop(child.Step{Signal: syscall.SIGKILL, Patience: 10 * time.Second})
}

// Promote makes the standby a primary, and returns when it is.
func (r *Replicated) Promote(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, r.StandbyURL)
	if err != nil {
		return fmt.Errorf("testservers: promote: %w", err)
	}
	defer conn.Close(ctx)
	var done bool
	if err := conn.QueryRow(ctx, "SELECT pg_promote(true, 60)").Scan(&done); err != nil || !done {
		return fmt.Errorf("testservers: promote: done is %v: %w", done, err)
	}
	return nil
}

// Close ends both servers, those that run still, and removes their files.
func (r *Replicated) Close() error {
	var problems []error
	for _, server := range []*replica{r.standby, r.primary} {
		if server == nil {
			continue
		}
		if server.process != nil {
			problems = append(problems, server.process.Stop(postgresShutdown[1:]...)) // its data is not needed
		}
		problems = append(problems, server.files.remove())
	}
	return errors.Join(problems...)
}

func newReplica(bin string) (*replica, error) {
	who, err := unprivileged(os.Geteuid())
	if err != nil {
		return nil, err
	}
	files, err := newWorkspace("postgres", who)
	if err != nil {
		return nil, err
	}
	return &replica{files: files, bin: bin}, nil
}

func (r *replica) data() string { return r.files.path("data") }

// run starts the server, at another port where another process took the first one.
func (r *replica) run(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		port, err := freePort(ctx)
		if err != nil {
			return err
		}
		r.port = port
		r.process, err = r.files.start(r.files.command(ctx, filepath.Join(r.bin, "postgres"), "-D", r.data(), "-p", port,
			"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="+r.data(), "-c", "shared_buffers=32MB",
			"-c", "max_connections=100", "-c", "wal_retrieve_retry_interval=100ms"))
		if err != nil {
			return fmt.Errorf("testservers: start PostgreSQL: %w", err)
		}
		err = awaitReady(ctx, r.process.Done(), func(ctx context.Context) error {
			return isOurCluster(ctx, localPostgresURL(port, "postgres"), r.data())
		})
		if err == nil {
			return nil
		}
		err = errors.Join(err, r.process.Stop(postgresShutdown...))
		if !errors.Is(err, errExited) || attempt == launchAttempts {
			return fmt.Errorf("testservers: start PostgreSQL: %w; the end of its log:\n%s", err, r.files.logTail())
		}
	}
}
