package testservers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

const (
	natsName = "NATS"
	// natsPackage is what tests have in their process, in the version that go.work agrees on.
	natsPackage = "github.com/nats-io/nats-server/v2"
	natsBinary  = "nats-server.exe" // Windows wants the ending, others ignore it
)

// nats is started by the tests themselves, in a few milliseconds, and killed by them.
var nats = &service{
	name: natsName, binVariable: NATSBinVariable, find: findNATS, fetch: buildNATS, version: natsBinaryVersion,
	remedy: "make test-all builds it with the go command; " + NATSBinVariable + " names a nats-server",
}

// findNATS returns the path that the variable names, else what was built before. One in PATH may be
// of any version.
func findNATS(ctx context.Context) (string, bool) {
	path := os.Getenv(NATSBinVariable)
	if path == "" {
		version, err := natsVersion(ctx)
		dir, cacheErr := cacheDir()
		if err != nil || cacheErr != nil {
			return "", false
		}
		path = filepath.Join(dir, natsDir(version), natsBinary)
	}
	found, err := exec.LookPath(path)
	return found, err == nil
}

// buildNATS builds the server into the cache, which keeps one of each version.
func buildNATS(ctx context.Context, log io.Writer) (string, error) {
	version, err := natsVersion(ctx)
	if err != nil {
		return "", err
	}
	dir, err := cached(log, natsDir(version), natsPackage+"@"+version+", built with the go command,", func(dir string) error {
		_, err := execute(ctx, "go", "build", "-trimpath", "-o", filepath.Join(dir, natsBinary), natsPackage)
		return err
	})
	return filepath.Join(dir, natsBinary), err
}

func natsBinaryVersion(ctx context.Context, binary string) (string, error) {
	said, err := execute(ctx, binary, "--version")
	return strings.TrimPrefix(strings.TrimSpace(said), "nats-server: v"), err
}

func natsVersion(ctx context.Context) (string, error) {
	said, err := execute(ctx, "go", "list", "-f", "{{.Module.Version}}", natsPackage)
	return strings.TrimSpace(said), err
}

func natsDir(version string) string { return "nats-server-" + version }

// OwnNATS starts a nats-server with JetStream, with flags of the caller's, and returns when it
// answers. The error is [ErrNoBinary] where no binary is known: only make test-all builds one.
func OwnNATS(ctx context.Context, flags ...string) (*Own, error) {
	own, err := newNATS(ctx, "one", flags...)
	if err != nil {
		return nil, err
	}
	return own, own.beginNATS(ctx)
}

// OwnNATSCluster starts servers that form a cluster, and returns when JetStream has a leader in it
// and all of them follow. Errors are those of [OwnNATS]; after one, none is left.
func OwnNATSCluster(ctx context.Context, size int) ([]*Own, error) {
	routes := make([]string, size)
	for i := range routes {
		port, err := freePort(ctx)
		if err != nil {
			return nil, err
		}
		routes[i] = "nats://" + net.JoinHostPort("127.0.0.1", port)
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
	var starting sync.WaitGroup // side by side: none is ready before most are there
	failures := make([]error, size)
	for i, node := range nodes {
		starting.Go(func() { failures[i] = node.beginNATS(ctx) })
	}
	starting.Wait()
	if err := errors.Join(failures...); err != nil {
		return nil, errors.Join(err, closeAll(nodes))
	}
	return nodes, nil
}

func closeAll(nodes []*Own) error {
	var failures []error
	for _, node := range nodes {
		failures = append(failures, node.Close())
	}
	return errors.Join(failures...)
}

// newNATS prepares a server of a name that is unique in its cluster.
func newNATS(ctx context.Context, name string, flags ...string) (*Own, error) {
	bin, err := exec.LookPath(os.Getenv(NATSBinVariable)) // not findNATS: make test is the same with and without what was built
	if err != nil {
		return nil, noBinary(nats)
	}
	monitor, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	files, err := newWorkspace("nats", nil)
	if err != nil {
		return nil, err
	}
	own := &Own{Name: natsName}
	name += "-" + filepath.Base(files.dir)
	own.run = &local{
		name: natsName, workspace: files, shutdown: redisShutdown,
		command: func(port string) *exec.Cmd {
			return files.command(ctx, bin, append([]string{
				"--name", name, "--addr", "127.0.0.1", "--port", port, "--http_port", monitor, "--jetstream", "--store_dir", files.path("data"),
			}, flags...)...)
		},
		ready: func(ctx context.Context, port string, _ int) error {
			info, err := natsInfo(ctx, net.JoinHostPort("127.0.0.1", port))
			if err != nil {
				return err
			}
			if info.Name != name {
				return fmt.Errorf("another server answers, %q", info.Name)
			}
			own.Version = info.Version
			_, err = ask(ctx, "http://"+net.JoinHostPort("127.0.0.1", monitor)+"/healthz") // of JetStream, too
			return err
		},
	}
	return own, nil
}

func (o *Own) beginNATS(ctx context.Context) error {
	if err := o.begin(ctx); err != nil {
		return err
	}
	o.URL = "nats://" + o.Address()
	return nil
}

// natsGreeting is what a server says about itself, in one line, when a client connects
// (https://docs.nats.io/reference/reference-protocols/nats-protocol#info).
type natsGreeting struct {
	Name    string `json:"server_name"`
	Version string
}

func natsInfo(ctx context.Context, address string) (info natsGreeting, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return info, err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return info, err
		}
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return info, err
	}
	said, found := strings.CutPrefix(line, "INFO ")
	if !found {
		return info, fmt.Errorf("the server greets otherwise than NATS does: %q", line)
	}
	return info, json.Unmarshal([]byte(said), &info) //nolint:musttag // they have the names of the fields
}
