package testservers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/internal/testservers/child"
)

// ErrNoBinary says that a server of one's own cannot be started here, because its binary is not on
// this machine.
var ErrNoBinary = errors.New("testservers: the server's binary is not on this machine")

// Own is a server for a test that stops and kills it: with files and a port of its own, started
// from a local binary, and keeping what it has acknowledged whatever ends it. It ends with this
// process. Its methods are not for several goroutines at a time.
type Own struct {
	Name    string
	URL     string // the same after each start
	Version string

	run     *local
	port    string
	process *child.Child
}

// OwnPostgres starts a new cluster, with fsync on and settings ("name=value") of the caller's, and
// returns when it answers. The error is [ErrNoBinary] where that is the reason.
func OwnPostgres(ctx context.Context, settings ...string) (*Own, error) {
	bin, found := findPostgres(ctx)
	if !found {
		return nil, fmt.Errorf("%w: PostgreSQL (%s names its directory)", ErrNoBinary, PostgresBinVariable)
	}
	who, err := unprivileged(os.Geteuid())
	if err != nil {
		return nil, err
	}
	files, err := newWorkspace("postgres", who)
	if err != nil {
		return nil, err
	}
	data := files.path("data")
	if err := initCluster(ctx, files, bin, data); err != nil {
		return nil, errors.Join(err, files.remove())
	}
	own := &Own{Name: postgresName, run: localPostgres(ctx, files, bin, data, settings...)}
	if err := own.begin(ctx); err != nil {
		return nil, err
	}
	admin := localPostgresURL(own.port, "postgres")
	own.URL = localPostgresURL(own.port, postgresDatabase)
	if own.Version, err = createDatabase(ctx, admin); err != nil {
		return nil, errors.Join(fmt.Errorf("testservers: create database: %w", err), own.Close())
	}
	return own, nil
}

// OwnRedis starts a new server that writes each command to disk before it answers, and returns when
// it does. The error is [ErrNoBinary] where that is the reason.
func OwnRedis(ctx context.Context) (*Own, error) {
	bin, found := findRedis(ctx)
	if !found {
		return nil, fmt.Errorf("%w: Redis (%s names it)", ErrNoBinary, RedisBinVariable)
	}
	files, err := newWorkspace("redis", nil)
	if err != nil {
		return nil, err
	}
	own := &Own{Name: redisName}
	own.run = localRedis(ctx, files, bin, &own.Version, "--save", "", "--appendonly", "yes", "--appendfsync", "always")
	if err := own.begin(ctx); err != nil {
		return nil, err
	}
	own.URL = redisURL(own.Address())
	return own, nil
}

// OwnMySQL starts a new MySQL or MariaDB server, which writes each commit to disk before it answers,
// with options ("--name=value") of the caller's, and returns when it answers. The error is
// [ErrNoBinary] where that is the reason.
func OwnMySQL(ctx context.Context, options ...string) (*Own, error) {
	bin, found := findMySQL(ctx)
	if !found {
		return nil, fmt.Errorf("%w: MySQL (%s names it)", ErrNoBinary, MySQLBinVariable)
	}
	files, err := initMySQL(ctx, bin)
	if err != nil {
		return nil, err
	}
	own := &Own{Name: mysqlName}
	own.run = localMySQL(ctx, files, bin, &own.Version, options...)
	if err := own.begin(ctx); err != nil {
		return nil, err
	}
	own.URL = mysqlDSN("root", own.Address())
	return own, nil
}

// OwnProgram starts a server that is a program of the caller's, and returns when ready says that it
// answers at an address (host:port). environ are variables for it, by the directory of its data and
// its port. It does not outlive its standard input, which ends with this process. Its URL is the
// caller's to set.
func OwnProgram(ctx context.Context, name, program string, environ func(dir, port string) []string, ready func(ctx context.Context, address string) error) (*Own, error) {
	files, err := newWorkspace(strings.ToLower(name), nil)
	if err != nil {
		return nil, err
	}
	own := &Own{Name: name}
	own.run = &local{
		name: name, workspace: files, shutdown: redisShutdown,
		command: func(port string) *exec.Cmd {
			cmd := files.command(ctx, program)
			cmd.Env = append(cmd.Env, environ(files.path("data"), port)...)
			_, _ = cmd.StdinPipe() // fails for a command that has one already
			return cmd
		},
		ready: func(ctx context.Context, port string, _ int) error {
			return ready(ctx, net.JoinHostPort("127.0.0.1", port))
		},
	}
	if err := own.begin(ctx); err != nil {
		return nil, err
	}
	return own, nil
}

// Address is host:port of the server.
func (o *Own) Address() string { return net.JoinHostPort("127.0.0.1", o.port) }

// begin starts the server for the first time.
func (o *Own) begin(ctx context.Context) (err error) {
	if o.port, o.process, err = o.run.anywhere(ctx); err != nil {
		return errors.Join(err, o.run.workspace.remove())
	}
	return nil
}

// Signal sends the server a signal, SIGSTOP or SIGCONT say.
func (o *Own) Signal(signal os.Signal) error { return o.process.Signal(signal) }

// End sends the server a signal and waits until its process has ended.
func (o *Own) End(signal os.Signal, patience time.Duration) error {
	return o.process.Stop(child.Step{Signal: signal, Patience: patience})
}

// Start starts a server that has ended, at the same port and with its data, and returns when it
// answers. After a kill, what is left of the old one can be in its way for a moment: it is tried
// again until ctx ends.
func (o *Own) Start(ctx context.Context) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		process, err := o.run.at(ctx, o.port)
		if err == nil {
			o.process = process
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// Done is closed when the server's process has ended.
func (o *Own) Done() <-chan struct{} { return o.process.Done() }

// Close ends the server, if it runs, and removes its files.
func (o *Own) Close() error {
	if o.process == nil { // it never ran
		return o.run.workspace.remove()
	}
	return errors.Join(o.process.Stop(o.run.shutdown...), o.run.workspace.remove())
}
