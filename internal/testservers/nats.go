package testservers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// nats starts within milliseconds, so that tests start their own.
var nats = &kind{
	flag: "nats", name: "NATS", binVariable: NATSBinVariable,
	find: nowhere, fetch: built("nats-server", "github.com/nats-io/nats-server/v2"), tool: "go",
	remedy: "Run in this repository, with the go command in PATH",
}

// OwnNATS starts a nats-server with JetStream and flags of the caller's. Errors are those of [OwnRedis].
func OwnNATS(ctx context.Context, flags ...string) (*Own, error) {
	own, err := newNATS(ctx, "one", flags...)
	if err != nil {
		return nil, err
	}
	return own.begin(ctx)
}

// OwnNATSCluster starts servers that form a cluster, and returns when JetStream has a leader in it
// and all of them follow. Errors are those of [OwnNATS]; after one, none is left.
func OwnNATSCluster(ctx context.Context, size int) ([]*Own, error) {
	routes := make([]string, size)
	for i := range routes {
		port, err := FreePort(ctx)
		if err != nil {
			return nil, err
		}
		routes[i] = "nats://" + loopback(port)
	}
	nodes := make([]*Own, size)
	for i := range nodes {
		var err error
		nodes[i], err = newNATS(ctx, fmt.Sprintf("node%d", i+1),
			"--cluster_name", "cluster", "--cluster", routes[i], "--routes", strings.Join(routes, ","))
		if err != nil {
			return nil, errors.Join(err, closeAll(nodes[:i]))
		}
	}
	return nodes, beginAll(ctx, nodes)
}

// newNATS prepares a server of a name that is unique in its cluster.
func newNATS(ctx context.Context, name string, flags ...string) (*Own, error) {
	bin, err := binary(NATSBinVariable)
	if err != nil {
		return nil, err
	}
	monitor, err := FreePort(ctx)
	if err != nil {
		return nil, err
	}
	files, err := newWorkspace("nats", false)
	if err != nil {
		return nil, err
	}
	started := logs(`Version:\s+([\d.]+).*Server is ready`)
	return &Own{
		Name: "NATS", files: files, shutdown: politely(5 * time.Second),
		url: func(address string) string { return "nats://" + address },
		command: func(port string) *exec.Cmd {
			return files.command(ctx, bin, append([]string{
				"--name", name + "-" + filepath.Base(files.dir), "--addr", "127.0.0.1", "--port", port, "--http_port", monitor,
				"--jetstream", "--store_dir", files.path("data"),
			}, flags...)...)
		},
		ready: func(ctx context.Context, o *Own) error {
			if err := started(ctx, o); err != nil {
				return err
			}
			return healthy(ctx, "http://"+loopback(monitor)+"/healthz") // of JetStream, too
		},
	}, nil
}

func healthy(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, response.Status)
	}
	return errors.Join(err, response.Body.Close())
}
