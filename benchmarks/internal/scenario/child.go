package scenario

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/config"
)

// ChildVariable is set where a program is to run [Child] and nothing else: a part of a scenario
// that wants a process of its own.
const ChildVariable = "FANOUT_BENCH_CHILD"

// childSpec tells a child what to do: one line of JSON. It works until its input ends, so that none
// outlives its parent.
type childSpec struct {
	Kind string `json:"kind"`
	// Config of a relay.
	Config string `json:"config"`
	// Database, Redis and Stream of a listener.
	Database string `json:"database"`
	Redis    string `json:"redis"`
	Stream   string `json:"stream"`
}

// The kinds of children.
const (
	childRelay    = "relay"
	childListener = "listener"
)

const (
	childReady = "ready\n"
	// childStart bounds how long a child may take to be ready, and childStop how long to end.
	childStart = 30 * time.Second
	childStop  = 30 * time.Second
)

// Child is the whole program of a child.
func Child(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	input := bufio.NewReader(stdin)
	line, err := input.ReadBytes('\n')
	if err != nil {
		return err
	}
	var spec childSpec
	if err := json.Unmarshal(line, &spec); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // it ends with the process
		_, _ = io.Copy(io.Discard, input)
		cancel()
	}()
	ready := func() error {
		_, err := io.WriteString(stdout, childReady)
		return err
	}
	switch spec.Kind {
	case childRelay:
		return relayChild(ctx, &spec, ready)
	case childListener:
		return listenerChild(ctx, &spec, ready)
	default:
		return fmt.Errorf("scenario: there is no child of kind %q", spec.Kind)
	}
}

func relayChild(ctx context.Context, spec *childSpec, ready func() error) error {
	cfg, err := config.Parse([]byte(spec.Config), "latency")
	if err != nil {
		return err
	}
	relay, err := fanout.Open(ctx, cfg, fanout.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	if err := ready(); err != nil {
		return errors.Join(err, relay.Close()) //nolint:contextcheck // it has a time of its own
	}
	return relay.Run(ctx)
}

func listenerChild(ctx context.Context, spec *childSpec, ready func() error) (err error) {
	h, err := openHand(ctx, spec.Database, spec.Redis)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close(ctx)) }()
	if _, err := h.conn.Exec(ctx, "LISTEN "+handChannel); err != nil {
		return err
	}
	if err := ready(); err != nil {
		return err
	}
	err = h.serve(ctx, spec.Stream, func(ctx context.Context) error {
		_, err := h.conn.WaitForNotification(ctx)
		return err
	})
	if ctx.Err() != nil {
		return nil // it was told to end
	}
	return err
}

// child is a process of this program.
type child struct {
	cmd   *exec.Cmd
	input io.WriteCloser
}

// startChild returns when the child is ready.
func startChild(ctx context.Context, spec childSpec) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program) //nolint:gosec // this program itself
	cmd.Env = append(os.Environ(), ChildVariable+"=1")
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = childStop
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, input: input}
	late := time.AfterFunc(childStart, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	err = json.NewEncoder(input).Encode(spec)
	if err == nil {
		_, err = io.ReadFull(output, make([]byte, len(childReady)))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("scenario: a process of its own was not ready: %w", err), c.stop())
	}
	return c, nil
}

// stop ends the child, and returns when it has ended.
func (c *child) stop() error {
	late := time.AfterFunc(childStop, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	return errors.Join(c.input.Close(), c.cmd.Wait())
}
