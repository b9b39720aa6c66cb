package testservers

import (
	"context"
	"os/exec"
	"time"
)

// Valkey is Redis under the name that newer distributions ship.
var redis = &kind{
	flag: "redis", name: "Redis", variable: RedisVariable, binVariable: RedisBinVariable,
	container: "redis", port: "6379", containerURL: redisURL,
	find: func(context.Context) string {
		return inPath([]string{"redis-server", "valkey-server"}, "/opt/homebrew/bin", "/usr/local/bin")
	},
	launch: func(ctx context.Context, bin string) (*Own, error) {
		return startRedis(ctx, bin, "--save", "", "--appendonly", "no")
	},
	remedy: "Install Redis",
}

// OwnRedis starts a new server that writes each command to disk before it answers. The error is
// [ErrNoBinary] where that is the reason.
func OwnRedis(ctx context.Context) (*Own, error) {
	bin, err := binary(RedisBinVariable)
	if err != nil {
		return nil, err
	}
	return startRedis(ctx, bin, "--save", "", "--appendonly", "yes", "--appendfsync", "always")
}

func startRedis(ctx context.Context, bin string, args ...string) (*Own, error) {
	files, err := newWorkspace("redis", false)
	if err != nil {
		return nil, err
	}
	own := &Own{
		Name: "Redis", files: files, url: redisURL, shutdown: politely(5 * time.Second),
		command: func(port string) *exec.Cmd {
			return files.command(ctx, bin, append([]string{"--bind", "127.0.0.1", "--port", port, "--dir", files.dir, "--daemonize", "no"}, args...)...)
		},
		ready: logs(`version=([\d.]+).*Ready to accept connections`),
	}
	return own.begin(ctx)
}

func redisURL(address string) string { return "redis://" + address + "/0" }
