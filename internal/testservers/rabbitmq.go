package testservers

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gorm-fanout/fanout/internal/testservers/child"
)

const rabbitMQName = "RabbitMQ"

var rabbitMQ = &service{
	name:         rabbitMQName,
	variable:     RabbitMQVariable,
	binVariable:  RabbitMQBinVariable,
	container:    "rabbitmq",
	port:         "5672",
	find:         findRabbitMQ,
	launch:       launchRabbitMQ,
	probe:        probeRabbitMQ,
	containerURL: rabbitMQURL,
}

var rabbitMQShutdown = []child.Step{
	{Signal: syscall.SIGTERM, Patience: 20 * time.Second},
	{Signal: syscall.SIGKILL, Patience: 5 * time.Second},
}

// rabbitMQDirs is where packages put the script that starts a server. What they put into PATH is, on
// Debian and Fedora, a script of the same name that becomes the user of the system's own server.
var rabbitMQDirs = []string{
	"/usr/lib/rabbitmq/bin", "/usr/lib/rabbitmq/lib/*/sbin",
	"/opt/homebrew/opt/rabbitmq/sbin", "/usr/local/opt/rabbitmq/sbin", "/home/linuxbrew/.linuxbrew/opt/rabbitmq/sbin", "",
}

// findRabbitMQ returns the path of rabbitmq-server: the one that the variable names, else one of a
// package, else one in PATH.
func findRabbitMQ(context.Context) (string, bool) {
	if path := os.Getenv(RabbitMQBinVariable); path != "" {
		found, err := exec.LookPath(path)
		return found, err == nil
	}
	const name = "rabbitmq-server"
	for _, pattern := range rabbitMQDirs {
		paths := []string{name}
		if pattern != "" {
			paths, _ = filepath.Glob(filepath.Join(pattern, name)) // fails for a malformed pattern only
		}
		for _, path := range paths {
			if found, err := exec.LookPath(path); err == nil {
				return found, true
			}
		}
	}
	return "", false
}

// launchRabbitMQ starts a node with an empty data directory.
func launchRabbitMQ(ctx context.Context, bin string) (*Server, error) {
	node, err := newRabbitMQNode(ctx, bin)
	if err != nil {
		return nil, err
	}
	var version string
	run := node.local(ctx, &version)
	run.usual = "30672"
	port, stop, err := run.run(ctx)
	if err != nil {
		return nil, errors.Join(err, node.files.remove())
	}
	return &Server{
		Name: rabbitMQName, URL: rabbitMQURL(net.JoinHostPort("127.0.0.1", port)), Version: version,
		Origin: fmt.Sprintf("started from %s at 127.0.0.1:%s", bin, port), stop: stop,
	}, nil
}

// rabbitMQNode is one node of Erlang, with the daemon in which nodes look for each other's ports.
// Without a daemon of our own the node would start one that outlives it.
type rabbitMQNode struct {
	bin     string
	name    string // of the node, new each time
	files   *workspace
	environ []string // of the node, and of the tools that control it
}

// newRabbitMQNode makes a workspace with a configuration (lines of rabbitmq.conf) and starts the
// daemon.
func newRabbitMQNode(ctx context.Context, bin string, settings ...string) (*rabbitMQNode, error) {
	files, err := newWorkspace("rabbitmq", nil)
	if err != nil {
		return nil, err
	}
	node := &rabbitMQNode{bin: bin, name: "fanout-" + strings.ToLower(rand.Text()[:10]), files: files}
	if err := node.prepare(ctx, settings); err != nil {
		return nil, errors.Join(err, files.remove())
	}
	return node, nil
}

func (n *rabbitMQNode) prepare(ctx context.Context, settings []string) error {
	for name, content := range map[string]string{
		"enabled_plugins": "[rabbitmq_consistent_hash_exchange].\n",
		"rabbitmq.conf":   strings.Join(append(settings, ""), "\n"),
	} {
		if err := os.WriteFile(n.files.path(name), []byte(content), 0o600); err != nil {
			return fmt.Errorf("testservers: configure %s: %w", rabbitMQName, err)
		}
	}
	daemon, err := n.startDaemon(ctx)
	if err != nil {
		return err
	}
	distribution, err := freePort(ctx)
	if err != nil {
		return err
	}
	n.environ = []string{
		"HOME=" + n.files.dir, // Erlang makes its cookie there
		"ERL_EPMD_ADDRESS=127.0.0.1",
		"ERL_EPMD_PORT=" + daemon,
		"RABBITMQ_NODENAME=" + n.name + "@localhost",
		"RABBITMQ_DIST_PORT=" + distribution,
		"RABBITMQ_CONF_ENV_FILE=" + os.DevNull, // not the one of the system's server
		"RABBITMQ_CONFIG_FILE=" + n.files.path("rabbitmq.conf"),
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + n.files.path("none.config"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + n.files.path("enabled_plugins"),
		"RABBITMQ_MNESIA_BASE=" + n.files.path("data"),
		"RABBITMQ_LOG_BASE=" + n.files.path("log"),
		"RABBITMQ_LOGS=-", // standard output
		"RABBITMQ_PID_FILE=" + n.files.path("pid"),
	}
	return nil
}

// startDaemon starts epmd and returns its port. It ends with the workspace.
func (n *rabbitMQNode) startDaemon(ctx context.Context) (port string, err error) {
	path, err := exec.LookPath("epmd")
	if err != nil {
		return "", fmt.Errorf("testservers: there is %s, but not epmd, a part of Erlang, in PATH: %w", n.bin, err)
	}
	if port, err = freePort(ctx); err != nil {
		return "", err
	}
	daemon, err := child.Start(n.files.command(ctx, path, "-address", "127.0.0.1", "-port", port))
	if err != nil {
		return "", fmt.Errorf("testservers: %w", err)
	}
	n.files.daemons = append(n.files.daemons, daemon)
	err = awaitReady(ctx, daemon.Done(), func(ctx context.Context) error {
		return listens(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
	})
	if err != nil {
		return "", fmt.Errorf("testservers: start epmd: %w", err)
	}
	return port, nil
}

// local is the node as a server; its version is known when it is ready.
func (n *rabbitMQNode) local(ctx context.Context, version *string) *local {
	return &local{
		name:      rabbitMQName,
		workspace: n.files,
		command: func(port string) *exec.Cmd {
			cmd := n.files.command(ctx, n.bin)
			cmd.Env = append(append(cmd.Env, n.environ...),
				"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
				"RABBITMQ_NODE_PORT="+port,
				// The script becomes the node itself, which gets the signals that are meant for it, and does
				// not ignore those that end it together with us, as is the script's default.
				"RABBITMQ_ALLOW_INPUT=1",
				"RABBITMQ_IGNORE_SIGINT=false",
				"RABBITMQ_SERVER_START_ARGS=-noinput +B d",
				// Two schedulers are enough, idle ones sleep, and the distribution is for this machine alone.
				"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}")
			return cmd
		},
		ready: func(ctx context.Context, port string, _ int) error {
			said, err := rabbitMQGreeting(ctx, "amqp", net.JoinHostPort("127.0.0.1", port))
			if err != nil {
				return err
			}
			if cluster := field(said, "cluster_name"); !strings.HasPrefix(cluster, n.name+"@") {
				return fmt.Errorf("another server answers, %q", cluster)
			}
			*version = field(said, "version")
			return nil
		},
		shutdown: rabbitMQShutdown,
	}
}

// eval has the node evaluate expressions of Erlang, between which are commas and behind which is a point. erl_call asks for that at
// once; rabbitmqctl is a whole node of Erlang itself, which takes a minute to start on a busy machine.
func (n *rabbitMQNode) eval(ctx context.Context, expressions string) (string, error) {
	var cmd *exec.Cmd
	path, err := exec.LookPath("erl_call")
	quick := err == nil
	if quick {
		cmd = n.files.command(ctx, path, "-sname", n.name+"@localhost", "-e")
		cmd.Stdin = strings.NewReader(expressions + "\n")
	} else {
		cmd = n.files.command(ctx, filepath.Join(filepath.Dir(n.bin), "rabbitmqctl"), "eval", expressions)
	}
	cmd.Env = append(cmd.Env, n.environ...)
	said, err := cmd.CombinedOutput()
	said = bytes.TrimSpace(said)
	if err != nil {
		return "", fmt.Errorf("testservers: evaluate %q in RabbitMQ: %w: %s", expressions, err, said)
	}
	if !quick {
		return string(said), nil
	}
	value, ok := bytes.CutPrefix(said, []byte("{ok, "))
	if !ok {
		return "", fmt.Errorf("testservers: evaluate %q in RabbitMQ: %s", expressions, said)
	}
	return string(bytes.TrimSuffix(value, []byte("}"))), nil
}

func rabbitMQURL(address string) string { return "amqp://guest:guest@" + address + "/" }

// probeRabbitMQ asks whether a server is there. Whether it lets us in, the first test tells: a login
// needs the client, which this module does not have.
func probeRabbitMQ(ctx context.Context, dsn string) (string, error) {
	address, err := url.Parse(dsn)
	if err != nil {
		return "", withoutURL(err)
	}
	port := map[string]string{"amqp": "5672", "amqps": "5671"}[address.Scheme]
	if port == "" {
		return "", errors.New("want a URL like amqp://user:password@host:5672/vhost")
	}
	if given := address.Port(); given != "" {
		port = given
	}
	said, err := rabbitMQGreeting(ctx, address.Scheme, net.JoinHostPort(address.Hostname(), port))
	return field(said, "version"), err
}

// rabbitMQGreeting returns what a server says about itself when a client names the protocol: a frame
// (type, channel, size) with the method connection.start
// (https://www.rabbitmq.com/resources/specs/amqp0-9-1.pdf, 2.2.4 and 2.3.5).
func rabbitMQGreeting(ctx context.Context, scheme, address string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	dial := new(net.Dialer).DialContext
	if scheme == "amqps" {
		dial = new(tls.Dialer).DialContext
	}
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if _, err := conn.Write([]byte("AMQP\x00\x00\x09\x01")); err != nil {
		return nil, err
	}
	const header, longest = 7, 1 << 16
	head := make([]byte, header)
	if _, err := io.ReadFull(conn, head); err != nil {
		return nil, fmt.Errorf("the server does not greet: %w", err)
	}
	size := binary.BigEndian.Uint32(head[3:])
	if head[0] != 1 || size > longest {
		return nil, errors.New("the server greets otherwise than RabbitMQ does")
	}
	said := make([]byte, size)
	if _, err := io.ReadFull(conn, said); err != nil {
		return nil, fmt.Errorf("the server does not greet: %w", err)
	}
	if !bytes.HasPrefix(said, []byte{0, 10, 0, 10}) { // class and number of the method
		return nil, errors.New("the server greets otherwise than RabbitMQ does")
	}
	return said, nil
}

// field finds a string in the properties of a greeting: the name, an S, four bytes with the length of
// the value, the value.
func field(said []byte, name string) string {
	_, rest, found := bytes.Cut(said, []byte(name+"S"))
	if !found || len(rest) < 4 {
		return ""
	}
	size := binary.BigEndian.Uint32(rest)
	if rest = rest[4:]; uint64(size) > uint64(len(rest)) {
		return ""
	}
	return string(rest[:size])
}

// RabbitMQ is a node of a test's own. [Own] tells what can be done with it.
type RabbitMQ struct {
	*Own

	node *rabbitMQNode
}

// OwnRabbitMQ starts a new node of RabbitMQ, with settings (lines of rabbitmq.conf) of the caller's,
// and returns when it answers. The error is [ErrNoBinary] where that is the reason.
func OwnRabbitMQ(ctx context.Context, settings ...string) (*RabbitMQ, error) {
	bin, found := findRabbitMQ(ctx)
	if !found {
		return nil, fmt.Errorf("%w: RabbitMQ (%s names it)", ErrNoBinary, RabbitMQBinVariable)
	}
	node, err := newRabbitMQNode(ctx, bin, settings...)
	if err != nil {
		return nil, err
	}
	own := &Own{Name: rabbitMQName}
	own.run = node.local(ctx, &own.Version)
	if err := own.begin(ctx); err != nil {
		return nil, err
	}
	own.URL = rabbitMQURL(own.Address())
	return &RabbitMQ{Own: own, node: node}, nil
}

// Eval has the node, which has to run, evaluate expressions of Erlang, between which are commas and
// behind which is a point, and returns the value of the last one.
func (r *RabbitMQ) Eval(ctx context.Context, expressions string) (string, error) {
	return r.node.eval(ctx, expressions)
}
