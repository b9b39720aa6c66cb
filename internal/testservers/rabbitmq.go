package testservers

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/internal/testservers/child"
)

var rabbitMQ = &kind{
	flag: "rabbitmq", name: "RabbitMQ", variable: RabbitMQVariable, binVariable: RabbitMQBinVariable,
	container: "rabbitmq", port: "5672", containerURL: rabbitMQURL,
	find: func(context.Context) string {
		// The script of this name in PATH becomes, on Debian and Fedora, the user of the system's own server.
		for _, dir := range []string{"/usr/lib/rabbitmq/bin/", "/opt/homebrew/opt/rabbitmq/sbin/", "/usr/local/opt/rabbitmq/sbin/", ""} {
			if path := inPath([]string{dir + "rabbitmq-server"}); path != "" {
				return path
			}
		}
		return ""
	},
	launch: func(ctx context.Context, bin string) (*Own, error) {
		node, err := startRabbitMQ(ctx, bin)
		if err != nil {
			return nil, err
		}
		return node.Own, nil
	},
	remedy: "Install RabbitMQ 3.10 or later",
}

// RabbitMQ is a node of a test's own.
type RabbitMQ struct {
	*Own

	name    string   // of the node, new each time
	environ []string // of the node, and of the tools that control it
}

// OwnRabbitMQ starts a new node of RabbitMQ, with settings (lines of rabbitmq.conf) of the caller's,
// and returns when it answers. The error is [ErrNoBinary] where that is the reason.
func OwnRabbitMQ(ctx context.Context, settings ...string) (*RabbitMQ, error) {
	bin, err := binary(RabbitMQBinVariable)
	if err != nil {
		return nil, err
	}
	return startRabbitMQ(ctx, bin, settings...)
}

func startRabbitMQ(ctx context.Context, bin string, settings ...string) (*RabbitMQ, error) {
	files, err := newWorkspace("rabbitmq", false)
	if err != nil {
		return nil, err
	}
	r := &RabbitMQ{name: "fanout-" + strings.ToLower(rand.Text()[:10])}
	r.Own = &Own{
		Name: "RabbitMQ", files: files, url: rabbitMQURL, shutdown: politely(20 * time.Second),
		command: func(port string) *exec.Cmd {
			cmd := files.command(ctx, bin)
			cmd.Env = append(append(cmd.Env, r.environ...),
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
		ready: logs(`Starting RabbitMQ ([\d.]+) .*Server startup complete`),
	}
	if err := r.prepare(ctx, settings); err != nil {
		return nil, errors.Join(err, files.remove())
	}
	_, err = r.begin(ctx)
	return r, err
}

// prepare configures the node and starts epmd, the daemon in which nodes look for each other's ports.
// Without a daemon of our own the node would start one that outlives it.
func (r *RabbitMQ) prepare(ctx context.Context, settings []string) error {
	for name, content := range map[string]string{
		"enabled_plugins": "[rabbitmq_consistent_hash_exchange].\n",
		"rabbitmq.conf":   strings.Join(append(settings, ""), "\n"),
	} {
		if err := os.WriteFile(r.files.path(name), []byte(content), 0o600); err != nil {
			return fmt.Errorf("testservers: configure RabbitMQ: %w", err)
		}
	}
	port, err := FreePort(ctx)
	if err != nil {
		return err
	}
	distribution, err := FreePort(ctx)
	if err != nil {
		return err
	}
	epmd, err := child.Start(r.files.command(ctx, "epmd", "-address", "127.0.0.1", "-port", port))
	if err != nil {
		return fmt.Errorf("testservers: epmd, a part of Erlang, has to be in PATH: %w", err)
	}
	r.files.daemons = append(r.files.daemons, epmd)
	r.environ = []string{
		"HOME=" + r.files.dir, // Erlang makes its cookie there
		"ERL_EPMD_ADDRESS=127.0.0.1",
		"ERL_EPMD_PORT=" + port,
		"RABBITMQ_NODENAME=" + r.name + "@localhost",
		"RABBITMQ_DIST_PORT=" + distribution,
		"RABBITMQ_CONF_ENV_FILE=" + os.DevNull, // not the one of the system's server
		"RABBITMQ_CONFIG_FILE=" + r.files.path("rabbitmq.conf"),
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + r.files.path("none.config"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + r.files.path("enabled_plugins"),
		"RABBITMQ_MNESIA_BASE=" + r.files.path("data"),
		"RABBITMQ_LOG_BASE=" + r.files.path("log"),
		"RABBITMQ_LOGS=-", // standard output
		"RABBITMQ_PID_FILE=" + r.files.path("pid"),
	}
	return awaitReady(ctx, epmd.Done(), func(ctx context.Context) error { return listens(ctx, &Own{port: port}) })
}

// Eval has the node, which has to run, evaluate expressions of Erlang, between which are commas and
// behind which is a point, and returns the value of the last one. rabbitmqctl, a whole node of Erlang
// itself, would take a minute on a busy machine.
func (r *RabbitMQ) Eval(ctx context.Context, expressions string) (string, error) {
	cmd := r.files.command(ctx, "erl_call", "-sname", r.name+"@localhost", "-e")
	cmd.Stdin = strings.NewReader(expressions + "\n")
	cmd.Env = append(cmd.Env, r.environ...)
	said, err := cmd.CombinedOutput()
	value, ok := bytes.CutPrefix(bytes.TrimSpace(said), []byte("{ok, "))
	if err != nil || !ok {
		return "", fmt.Errorf("testservers: evaluate %q in RabbitMQ: %w: %s", expressions, err, said)
	}
	return string(bytes.TrimSuffix(value, []byte("}"))), nil
}

func rabbitMQURL(address string) string { return "amqp://guest:guest@" + address + "/" }
