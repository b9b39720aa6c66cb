// Package natsprocess runs NATS servers in processes of their own, for tests that kill them. Such a
// process is the test's own program: [Main] makes it a server.
package natsprocess

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
)

// variable holds the options of a process that is to be a server.
const variable = "FANOUT_TEST_NATS_SERVER"

// startTime is how long a server may take to start.
const startTime = 2 * time.Minute

// ready is the line by which a server reports that it answers.
const ready = "ready"

type options struct {
	Name    string
	Dir     string
	Host    string
	Port    int
	Cluster int      // port; 0: a single server
	Routes  []string // of all servers of the cluster
}

// A Process is a server with JetStream that a test can kill and start again.
type Process struct {
	URL     string
	Address string // host:port
	Name    string

	options options
	command *exec.Cmd
	input   io.Closer // its end ends the server
}

// Main is called by TestMain before anything else: it does not return in a process that is a server.
func Main() {
	given := os.Getenv(variable)
	if given == "" {
		return
	}
	fmt.Fprintln(os.Stderr, serve(given)) // it returns only where the server cannot start
	os.Exit(1)
}

func serve(given string) error {
	go func() { // ends with the test's process, whatever the server does
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	var o options
	if err := json.Unmarshal([]byte(given), &o); err != nil {
		return err
	}
	settings := &server.Options{
		ServerName: o.Name, Host: o.Host, Port: o.Port, JetStream: true, StoreDir: o.Dir, NoSigs: true, NoLog: true,
	}
	if o.Cluster != 0 {
		settings.Cluster = server.ClusterOpts{Name: "cluster", Host: o.Host, Port: o.Cluster}
		for _, route := range o.Routes {
			parsed, err := url.Parse(route)
			if err != nil {
				return err
			}
			settings.Routes = append(settings.Routes, parsed)
		}
	}
	s, err := server.NewServer(settings)
	if err != nil {
		return err
	}
	s.Start()
	for began := time.Now(); !s.ReadyForConnections(time.Second) || o.Cluster != 0 && !s.JetStreamIsCurrent(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > startTime { // such as when another program has taken the port
			return fmt.Errorf("it does not answer after %s", startTime)
		}
	}
	fmt.Println(ready)
	select {}
}

// Start starts a server, or a cluster of several, until the test ends. A cluster takes seconds to elect its
// leaders: its tests need FANOUT_TEST_LONG=1.
func Start(t testing.TB, size int) []*Process {
	t.Helper()
	if size > 1 && os.Getenv("FANOUT_TEST_LONG") != "1" {
		t.Skip("takes minutes: FANOUT_TEST_LONG=1 runs it")
	}
	host := "127.0.0.1"
	if runtime.GOOS == "linux" { // all of 127/8 is this machine: no client takes a free port of an address that it does not connect from
		host = fmt.Sprintf("127.%d.%d.%d", 1+rand.N(254), rand.N(256), 1+rand.N(254))
	}
	ports := freePorts(t, host, 2*size)
	var routes []string
	for _, port := range ports[size:] {
		routes = append(routes, "nats://"+net.JoinHostPort(host, strconv.Itoa(port)))
	}
	all := make([]*Process, size)
	for i := range all {
		address := net.JoinHostPort(host, strconv.Itoa(ports[i]))
		p := &Process{URL: "nats://" + address, Address: address, Name: fmt.Sprint("node", i+1)}
		p.options = options{Name: p.Name, Dir: t.TempDir(), Host: host, Port: ports[i]}
		if size > 1 {
			p.options.Cluster, p.options.Routes = ports[size+i], routes
		}
		all[i] = p
	}
	t.Cleanup(func() {
		for _, p := range all {
			p.Kill(t)
		}
	})
	var starting sync.WaitGroup // side by side: a cluster has no leader before most of its servers are there
	failures := make([]error, size)
	for i, p := range all {
		starting.Go(func() { failures[i] = p.start() })
	}
	starting.Wait()
	for _, err := range failures {
		require.NoError(t, err)
	}
	return all
}

// Start starts a killed server again, at the same address and with its data, and waits until it answers.
func (p *Process) Start(t testing.TB) {
	t.Helper()
	require.NoError(t, p.start())
}

func (p *Process) start() error {
	given, err := json.Marshal(p.options)
	if err != nil {
		return err
	}
	var said strings.Builder
	p.command = exec.Command(os.Args[0]) //nolint:noctx // the test's own program, until it is killed
	p.command.Env = append(os.Environ(), variable+"="+string(given))
	p.command.Stderr = &said
	if p.input, err = p.command.StdinPipe(); err != nil {
		return err
	}
	output, err := p.command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.command.Start(); err != nil {
		return err
	}
	if line, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		_ = p.command.Wait()
		return fmt.Errorf("a NATS server did not start: %q, %w: %s", line, err, said.String())
	}
	return nil
}

// Kill ends the server by SIGKILL.
func (p *Process) Kill(testing.TB) {
	if p.command == nil || p.command.Process == nil {
		return
	}
	_ = p.command.Process.Kill()
	_ = p.command.Wait()
	_ = p.input.Close()
	p.command = nil
}

func freePorts(t testing.TB, host string, n int) (ports []int) {
	t.Helper()
	for range n {
		listener, err := net.Listen("tcp", net.JoinHostPort(host, "0")) //nolint:noctx // it is closed at once
		require.NoError(t, err)
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports
}
