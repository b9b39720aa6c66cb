package testservers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gorm-fanout/fanout/internal/testservers/child"
)

const (
	readyPatience  = 10 * time.Minute       // for a server to answer: seconds, and minutes for RabbitMQ on an overloaded machine
	attemptTimeout = 5 * time.Second        // for one attempt to connect
	firstPause     = 10 * time.Millisecond  // between attempts, doubled up to lastPause
	lastPause      = 500 * time.Millisecond // so that a ready server is noticed soon
	launchAttempts = 3                      // where another process takes the port before the server does
)

// Own is a server process with files and a port of its own, which ends with this process. Its methods
// are not for several goroutines at a time.
type Own struct {
	Name    string
	URL     string // the same after each start
	Version string

	files   *workspace
	command func(port string) *exec.Cmd
	url     func(address string) string
	// ready succeeds when the server takes requests.
	ready    func(ctx context.Context, o *Own) error
	shutdown []child.Step // politely first

	port    string
	process *child.Child
}

// politely ends a server by SIGTERM, and by SIGKILL where it does not end in time.
func politely(patience time.Duration) []child.Step {
	return []child.Step{{Signal: syscall.SIGTERM, Patience: patience}, {Signal: syscall.SIGKILL, Patience: 5 * time.Second}}
}

// begin starts the server for the first time, at another port where another process took the first one.
func (o *Own) begin(ctx context.Context) (*Own, error) {
	for attempt := 1; ; attempt++ {
		port, err := FreePort(ctx)
		if err == nil {
			o.port = port
			err = o.launch(ctx)
		}
		if err == nil {
			if o.url != nil {
				o.URL = o.url(o.Address())
			}
			return o, nil
		}
		if !errors.Is(err, errExited) || attempt == launchAttempts {
			return nil, errors.Join(err, o.files.remove())
		}
	}
}

// launch starts the process and waits until the server takes requests.
func (o *Own) launch(ctx context.Context) error {
	process, err := o.files.start(o.command(o.port))
	if err != nil {
		return fmt.Errorf("testservers: start %s: %w", o.Name, err)
	}
	if err = awaitReady(ctx, process.Done(), func(ctx context.Context) error { return o.ready(ctx, o) }); err != nil {
		err = errors.Join(err, process.Stop(o.shutdown...))
		return fmt.Errorf("testservers: start %s: %w; the end of its log:\n%s", o.Name, err, o.files.logTail())
	}
	o.process = process
	return nil
}

// logs is a readiness: the server's log matches a pattern, whose group, if it has one, is the version.
// Unlike a client, the log cannot mistake another process at the same port for the server.
func logs(pattern string) func(context.Context, *Own) error {
	compiled := regexp.MustCompile("(?s)" + pattern)
	return func(_ context.Context, o *Own) error {
		found := compiled.FindStringSubmatch(o.files.log())
		if found == nil {
			return errors.New("its log does not say that it is ready")
		}
		if len(found) > 1 {
			o.Version = found[1]
		}
		return nil
	}
}

// listens is a readiness: the server takes connections.
func listens(ctx context.Context, o *Own) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", o.Address())
	if err != nil {
		return err
	}
	return conn.Close()
}

// OwnProgram starts a server that is a program of the caller's, and returns when ready says that it
// answers at an address (host:port). environ are variables for it, by the directory of its data and
// its port. Its standard input ends with this process. The caller sets the URL.
func OwnProgram(ctx context.Context, name, program string, environ func(dir, port string) []string, ready func(ctx context.Context, address string) error) (*Own, error) {
	files, err := newWorkspace(strings.ToLower(name), false)
	if err != nil {
		return nil, err
	}
	own := &Own{
		Name: name, files: files, shutdown: politely(5 * time.Second),
		command: func(port string) *exec.Cmd {
			cmd := files.command(ctx, program)
			cmd.Env = append(cmd.Env, environ(files.path("data"), port)...)
			_, _ = cmd.StdinPipe() // fails for a command that has one already
			return cmd
		},
		ready: func(ctx context.Context, o *Own) error { return ready(ctx, o.Address()) },
	}
	return own.begin(ctx)
}

// Address is host:port of the server.
func (o *Own) Address() string { return loopback(o.port) }

func loopback(port string) string { return net.JoinHostPort("127.0.0.1", port) }

// Signal sends the server a signal, SIGSTOP or SIGCONT say.
func (o *Own) Signal(signal os.Signal) error { return o.process.Signal(signal) }

// End sends the server a signal and waits until its process has ended.
func (o *Own) End(signal os.Signal, patience time.Duration) error {
	return o.process.Stop(child.Step{Signal: signal, Patience: patience})
}

// Start starts a server that has ended, at the same port and with its data, and returns when it
// answers. Children of a killed server can be in its way for a moment, so that it tries again until
// ctx ends.
func (o *Own) Start(ctx context.Context) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := o.launch(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// Close ends the server, if it runs, and removes its files.
func (o *Own) Close() error {
	var err error
	if o.process != nil {
		err = o.process.Stop(o.shutdown...)
	}
	return errors.Join(err, o.files.remove())
}

// beginAll starts the nodes of a cluster side by side: none is ready before most run. After an error
// none is left.
func beginAll(ctx context.Context, nodes []*Own) error {
	var starting sync.WaitGroup
	failures := make([]error, len(nodes))
	for i, node := range nodes {
		starting.Go(func() { _, failures[i] = node.begin(ctx) })
	}
	starting.Wait()
	err := errors.Join(failures...)
	if err != nil {
		err = errors.Join(err, closeAll(nodes))
	}
	return err
}

func closeAll(nodes []*Own) error {
	var failures []error
	for _, node := range nodes {
		failures = append(failures, node.Close())
	}
	return errors.Join(failures...)
}

// errExited says that a server ended instead of answering.
var errExited = errors.New("the server ended while it was starting")

// awaitReady calls probe, with growing pauses, until it succeeds. It gives up when exited is
// closed, when ctx ends, and after readyPatience; the error then holds the last one of probe.
func awaitReady(ctx context.Context, exited <-chan struct{}, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		attempt, done := context.WithTimeout(ctx, attemptTimeout)
		err := probe(attempt)
		done()
		if err == nil {
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("%w; last attempt to connect: %w", errExited, err)
		case <-ctx.Done():
			return fmt.Errorf("no answer: %w; last attempt to connect: %w", ctx.Err(), err)
		case <-time.After(pause):
		}
	}
}

// ports that this process has taken.
var ports sync.Map

// FreePort returns a port of 127.0.0.1 for a server. It is below those that the system gives to
// outgoing connections, so that a server that ended can have it again; and so is the bus port of a node
// of a Redis Cluster, which is 10,000 above it. No process gets the same one twice.
func FreePort(ctx context.Context) (string, error) {
	for range 100 {
		port := 10_000 + rand.IntN(10_000)
		if _, taken := ports.LoadOrStore(port, true); !taken && free(ctx, port) && free(ctx, port+10_000) {
			return strconv.Itoa(port), nil
		}
	}
	return "", errors.New("testservers: no port is free")
}

func free(ctx context.Context, port int) bool {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", loopback(strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}
