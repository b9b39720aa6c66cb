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
	"strconv"
	"strings"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/internal/testservers/child"
)

const redisName = "Redis"

var redis = &service{
	name:         redisName,
	variable:     RedisVariable,
	binVariable:  RedisBinVariable,
	container:    "redis",
	port:         "6379",
	find:         findRedis,
	launch:       launchRedis,
	probe:        probeRedis,
	containerURL: redisURL,
}

var redisShutdown = []child.Step{
	{Signal: syscall.SIGTERM, Patience: 5 * time.Second},
	{Signal: syscall.SIGKILL, Patience: 5 * time.Second},
}

// findRedis returns the server's path: the one that the variable names, else one in PATH, else one
// of Homebrew or MacPorts. Valkey is Redis under the name that newer distributions ship.
func findRedis(context.Context) (string, bool) {
	if path := os.Getenv(RedisBinVariable); path != "" {
		found, err := exec.LookPath(path)
		return found, err == nil
	}
	for _, name := range []string{"redis-server", "valkey-server"} {
		for _, dir := range []string{"", "/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin", "/usr/local/bin", "/opt/local/bin"} {
			if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return found, true
			}
		}
	}
	return "", false
}

// launchRedis starts a server that keeps nothing on disk.
func launchRedis(ctx context.Context, bin string) (*Server, error) {
	files, err := newWorkspace("redis", nil)
	if err != nil {
		return nil, err
	}
	var version string
	run := localRedis(ctx, files, bin, &version, "--save", "", "--appendonly", "no")
	run.usual = "30379"
	port, stop, err := run.run(ctx)
	if err != nil {
		return nil, errors.Join(err, files.remove())
	}
	return &Server{
		Name: redisName, URL: redisURL(net.JoinHostPort("127.0.0.1", port)), Version: version,
		Origin: fmt.Sprintf("started from %s at 127.0.0.1:%s", bin, port), stop: stop,
	}, nil
}

// localRedis is a server with arguments that say what it keeps; its version is known when it is
// ready.
func localRedis(ctx context.Context, files *workspace, bin string, version *string, args ...string) *local {
	return &local{
		name:      redisName,
		workspace: files,
		command: func(port string) *exec.Cmd {
			return files.command(ctx, bin, append([]string{"--bind", "127.0.0.1", "--port", port, "--dir", files.dir, "--daemonize", "no"}, args...)...)
		},
		ready: func(ctx context.Context, port string, pid int) error {
			info, err := redisInfo(ctx, redisURL(net.JoinHostPort("127.0.0.1", port)))
			if answers := info["process_id"]; err == nil && answers != strconv.Itoa(pid) {
				return fmt.Errorf("another server answers, process %s", answers)
			}
			*version = info["redis_version"]
			return err
		},
		shutdown: redisShutdown,
	}
}

func probeRedis(ctx context.Context, dsn string) (string, error) {
	info, err := redisInfo(ctx, dsn)
	return info["redis_version"], err
}

// redisInfo asks a server about itself.
func redisInfo(ctx context.Context, dsn string) (map[string]string, error) {
	options, err := goredis.ParseURL(dsn)
	if err != nil {
		return nil, withoutURL(err)
	}
	if err := listens(ctx, options.Network, options.Addr); err != nil {
		return nil, err
	}
	options.MaxRetries = -1 // whoever waits for the server does the retrying
	client := goredis.NewClient(options)
	said, err := client.Info(ctx, "server").Result()
	return parseInfo(said), errors.Join(err, client.Close())
}

// listens reports whether a server does at this address. The client would log that none does, at
// each attempt of a start.
func listens(ctx context.Context, network, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// parseInfo reads the "name:value" lines of INFO.
func parseInfo(said string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(said) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// withoutURL takes the URL, and with it the password, out of an error of url.Parse.
func withoutURL(err error) error {
	if parse := (*url.Error)(nil); errors.As(err, &parse) {
		return fmt.Errorf("malformed URL: %w", parse.Err)
	}
	return err
}

func redisURL(address string) string { return "redis://" + address + "/0" }
