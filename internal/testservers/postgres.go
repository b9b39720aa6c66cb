package testservers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gorm-fanout/fanout/internal/testservers/child"
)

const (
	postgresName     = "PostgreSQL"
	postgresUser     = "postgres"
	postgresDatabase = "fanout"
)

var postgres = &service{
	name:        postgresName,
	variable:    PostgresVariable,
	binVariable: PostgresBinVariable,
	container:   "postgres",
	port:        "5432",
	find:        findPostgres,
	launch:      launchPostgres,
	probe:       probePostgres,
	containerURL: func(address string) string {
		return postgresURL(url.UserPassword(postgresUser, "fanout"), address, postgresDatabase)
	},
}

// postgresShutdown: a fast shutdown writes a checkpoint; an immediate one does not wait for it.
var postgresShutdown = []child.Step{
	{Signal: syscall.SIGINT, Patience: 10 * time.Second},
	{Signal: syscall.SIGQUIT, Patience: 5 * time.Second},
	{Signal: syscall.SIGKILL, Patience: 5 * time.Second},
}

// fsyncVariable is off where the server that tests share need not survive a crash of the machine:
// databases are then created and dropped, hundreds of them, without waiting for the disk.
// Benchmarks need the real thing. What tests kill is an [Own] server, which keeps what it has
// acknowledged.
const fsyncVariable = "FANOUT_TEST_FSYNC"

func launchPostgres(ctx context.Context, bin string) (*Server, error) {
	return launchPostgresAt(ctx, bin, "30432")
}

// launchPostgresAt creates a cluster and starts its server, at the usual port if that is free.
func launchPostgresAt(ctx context.Context, bin, usual string) (*Server, error) {
	who, err := unprivileged(os.Geteuid())
	if err != nil {
		return nil, err
	}
	files, err := newWorkspace("postgres", who)
	if err != nil {
		return nil, err
	}
	server, err := launchPostgresIn(ctx, files, bin, usual)
	if err != nil {
		return nil, errors.Join(err, files.remove())
	}
	return server, nil
}

func launchPostgresIn(ctx context.Context, files *workspace, bin, usual string) (*Server, error) {
	data := files.path("data")
	if err := initCluster(ctx, files, bin, data); err != nil {
		return nil, err
	}
	var settings []string
	if os.Getenv(fsyncVariable) == "off" {
		// Hundreds of small databases come and go: to look after each, and to compile queries of a
		// second, takes longer than it saves, and plans would depend on when it happened.
		settings = []string{"fsync=off", "autovacuum=off", "jit=off"}
	}
	run := localPostgres(ctx, files, bin, data, settings...)
	run.usual = usual
	port, stop, err := run.run(ctx)
	if err != nil {
		return nil, err
	}
	version, err := createDatabase(ctx, localPostgresURL(port, "postgres"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("testservers: create database: %w", err), stop())
	}
	return &Server{
		Name: postgresName, URL: localPostgresURL(port, postgresDatabase), Version: version,
		Origin: fmt.Sprintf("started from %s at 127.0.0.1:%s", bin, port), stop: stop,
	}, nil
}

// localPostgres is the server of a cluster, with settings ("name=value") beside those of all tests.
func localPostgres(ctx context.Context, files *workspace, bin, data string, settings ...string) *local {
	return &local{
		name:      postgresName,
		workspace: files,
		command: func(port string) *exec.Cmd {
			args := []string{"-D", data, "-p", port}
			for _, setting := range append([]string{
				"listen_addresses=127.0.0.1", "unix_socket_directories=" + data, "max_connections=200", "shared_buffers=128MB",
				"max_prepared_transactions=8", // PREPARE TRANSACTION
			}, settings...) {
				args = append(args, "-c", setting)
			}
			return files.command(ctx, filepath.Join(bin, "postgres"), args...)
		},
		ready: func(ctx context.Context, port string, _ int) error {
			return isOurCluster(ctx, localPostgresURL(port, "postgres"), data)
		},
		shutdown: postgresShutdown,
	}
}

// initCluster runs initdb. Every user of this machine may connect at 127.0.0.1 without a password:
// it holds test data only.
func initCluster(ctx context.Context, files *workspace, bin, data string) error {
	cmd := files.command(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", postgresUser, "--auth=trust",
		"--encoding=UTF8", "--locale=C", "--no-sync")
	initdb, err := files.start(cmd)
	if err != nil {
		return fmt.Errorf("testservers: initdb: %w", err)
	}
	if err := initdb.Wait(); err != nil {
		return fmt.Errorf("testservers: initdb: %w; the end of its output:\n%s", err, files.logTail())
	}
	return nil
}

// isOurCluster guards against another server that took the port before ours.
func isOurCluster(ctx context.Context, dsn, data string) error {
	var directory string
	err := withPostgres(ctx, dsn, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SHOW data_directory").Scan(&directory)
	})
	if err == nil && directory != data {
		return fmt.Errorf("another server answers, with its data in %s", directory)
	}
	return err
}

func createDatabase(ctx context.Context, dsn string) (string, error) {
	err := withPostgres(ctx, dsn, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{postgresDatabase}.Sanitize())
		return err
	})
	if err != nil {
		return "", err
	}
	return probePostgres(ctx, dsn)
}

func probePostgres(ctx context.Context, dsn string) (string, error) {
	var version string
	err := withPostgres(ctx, dsn, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT split_part(current_setting('server_version'), ' ', 1)").Scan(&version)
	})
	return version, err
}

// withPostgres calls work with a connection that is closed afterwards. No error of pgx shows the
// password.
func withPostgres(ctx context.Context, dsn string, work func(*pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	return errors.Join(work(conn), conn.Close(ctx))
}

func localPostgresURL(port, database string) string {
	return postgresURL(url.User(postgresUser), net.JoinHostPort("127.0.0.1", port), database)
}

func postgresURL(user *url.Userinfo, address, database string) string {
	dsn := url.URL{Scheme: "postgres", User: user, Host: address, Path: "/" + database, RawQuery: "sslmode=disable"}
	return dsn.String()
}
