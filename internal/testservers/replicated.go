package testservers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrNoReplication says that the binaries for a replicated PostgreSQL are not all known.
var ErrNoReplication = errors.New("testservers: no PostgreSQL with a pg_basebackup that is not older is known")

// Replicated is a PostgreSQL with a synchronous physical standby. Both end with this process. Its methods
// are not for several goroutines at a time.
type Replicated struct {
	PrimaryURL, StandbyURL string

	primary, standby *Own
}

// StartReplicated starts both servers and returns when the standby confirms what the primary
// commits. via is told the primary's address (host:port), and returns the one by which the standby
// reaches it, so that a network can stand between the two. The error is [ErrNoReplication] where
// that is the reason.
func StartReplicated(ctx context.Context, via func(primary string) string) (*Replicated, error) {
	bin, err := binary(PostgresBinVariable)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoReplication, err)
	}
	backup := filepath.Join(bin, "pg_basebackup")
	if _, err := exec.LookPath(backup); err != nil {
		backup = "pg_basebackup"
	}
	if majorOf(ctx, backup) < postgresMajor(ctx, bin) {
		return nil, ErrNoReplication
	}
	r := &Replicated{}
	if err := r.start(ctx, bin, backup, via); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Replicated) start(ctx context.Context, bin, backup string, via func(string) string) (err error) {
	settings := []string{"shared_buffers=32MB", "wal_retrieve_retry_interval=100ms"}
	primary, err := newPostgres(ctx, bin, settings...)
	if err != nil {
		return err
	}
	if err := primary.initCluster(ctx, bin); err != nil {
		return err
	}
	if r.primary, err = primary.begin(ctx); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(via(r.primary.Address()))
	if err != nil {
		return err
	}
	standby, err := newPostgres(ctx, bin, settings...)
	if err != nil {
		return err
	}
	err = standby.files.run(standby.files.command(ctx, backup, "-D", standby.files.path("data"), "-h", host, "-p", port, "-U", "postgres",
		"-R", "-X", "stream", "-c", "fast", "--no-sync"))
	if err != nil {
		return errors.Join(err, standby.files.remove())
	}
	if r.standby, err = standby.begin(ctx); err != nil {
		return err
	}
	r.PrimaryURL, r.StandbyURL = r.primary.URL, r.standby.URL
	return awaitReady(ctx, r.primary.process.Done(), r.synchronous)
}

// synchronous makes the primary wait for the standby, and succeeds when it does.
func (r *Replicated) synchronous(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, r.PrimaryURL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var state string
	for _, statement := range []string{"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	err = conn.QueryRow(ctx, "SELECT coalesce(max(sync_state), '') FROM pg_stat_replication WHERE state = 'streaming'").Scan(&state)
	if err == nil && state != "sync" {
		err = fmt.Errorf("the standby is %q", state)
	}
	return err
}

// KillPrimary ends the primary as a power failure does.
func (r *Replicated) KillPrimary() error { return r.primary.End(syscall.SIGKILL, 10*time.Second) }

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

// Close ends both servers, if they run, and removes their files.
func (r *Replicated) Close() error {
	var problems []error
	for _, server := range []*Own{r.standby, r.primary} {
		if server != nil {
			server.shutdown = postgresShutdown[1:] // its data is not needed
			problems = append(problems, server.Close())
		}
	}
	return errors.Join(problems...)
}
