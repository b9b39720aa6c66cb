package integration_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// childVariable makes this test program a relay with a broker that misbehaves: the value says which
// one.
const childVariable = "FANOUT_TEST_CHILD"

// Arguments of a child, beside those of its broker.
const (
	dsnVariable    = "FANOUT_TEST_CHILD_DSN"
	driverVariable = "FANOUT_TEST_CHILD_DRIVER"
	talksVariable  = "FANOUT_TEST_CHILD_TALKS" // it logs what is no error, too
)

// misbehaviour are the brokers that a child can have, and how it delivers to them.
var misbehaviour = map[string]func() (brokers.Broker, outbox.Policy, error){
	"poison":   newPoisoned,
	"chaos":    newChaos,
	"recorder": newRecorder,
}

// child is the relay. It ends when it is told to, or dies of its broker.
func child() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	run := runChild
	if os.Getenv(childVariable) == writerChild {
		run = runWriter
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func runChild(ctx context.Context) error {
	broker, policy, err := misbehaviour[os.Getenv(childVariable)]()
	if err != nil {
		return err
	}
	store, err := openStore(ctx, outbox.Dialect(os.Getenv(driverVariable)), os.Getenv(dsnVariable))
	switch {
	case err != nil && ctx.Err() != nil: // it was asked to end before it had begun
		return nil
	case err != nil:
		return err
	}
	defer store.Close()
	level := slog.LevelError
	if os.Getenv(talksVariable) != "" {
		level = slog.LevelInfo
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	processor, err := relay.NewProcessor(relay.ProcessorConfig{
		Database: "test", Broker: "b", Store: store, Target: broker, Policy: policy,
		Log: log,
	})
	if err != nil {
		return err
	}
	err = processor.Run(ctx)
	log.InfoContext(ctx, "processor stopped", "lease_lost", processor.Stats().LeaseLost)
	return err
}

// process is a child, seen by the test.
type process struct {
	cmd *exec.Cmd
	log bytes.Buffer
}

// startChild starts this program anew as a child. Whatever becomes of the test, the child ends with
// it.
func startChild(at *place, kind string, env ...string) *process {
	at.Helper()
	p := &process{cmd: exec.Command(os.Args[0])} //nolint:noctx // it is stopped by a signal
	p.cmd.Env = append(append(os.Environ(), childVariable+"="+kind, driverVariable+"="+string(at.driver), dsnVariable+"="+at.dsn), env...)
	p.cmd.Stderr = &p.log
	require.NoError(at, p.cmd.Start())
	at.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// kill ends a child as a crash does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// stop asks a child to end.
func (p *process) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.cmd.Wait(), p.log.String())
}

// confirming is what brokers of this file share.
type confirming struct{}

func (confirming) Capabilities() brokers.Capabilities { return brokers.Capabilities{Ordering: true} }
func (confirming) Ping(context.Context) error         { return nil }
func (confirming) Close(context.Context) error        { return nil }

// complaints are the errors that it has logged, but for calls to the database that took longer than
// a quarter of its short lease, which a busy machine brings about.
func (p *process) complaints() (lines []string) {
	for line := range strings.Lines(p.log.String()) {
		if !strings.Contains(line, context.DeadlineExceeded.Error()) {
			lines = append(lines, line)
		}
	}
	return lines
}

// shortLease are the defaults, but for a lease that a test can wait for.
func shortLease() outbox.Policy {
	return outbox.Policy{Lease: 2 * time.Second, PublishTimeout: time.Second, PollMax: 100 * time.Millisecond}
}
