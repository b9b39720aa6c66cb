package testservers

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/gorm-fanout/fanout/internal/testservers/child"
)

// local describes how a server's binary is run in a workspace.
type local struct {
	name      string
	workspace *workspace
	// command is the server at a port of 127.0.0.1.
	command func(port string) *exec.Cmd
	// ready succeeds when our server, not somebody else's at this port, answers.
	ready func(ctx context.Context, port string, pid int) error
	// shutdown ends the server, politely first.
	shutdown []child.Step
}

// run starts the server and returns its port and what stops it and removes its files. Between our look for a free port and the
// server's own bind somebody else may take it; then the next one is tried.
func (l *local) run(ctx context.Context) (string, func() error, error) {
	for attempt := 1; ; attempt++ {
		port, err := freePort(ctx)
		if err != nil {
			return "", nil, err
		}
		process, err := l.workspace.start(l.command(port))
		if err != nil {
			return "", nil, fmt.Errorf("testservers: start %s: %w", l.name, err)
		}
		err = awaitReady(ctx, process.Done(), func(ctx context.Context) error { return l.ready(ctx, port, process.Pid()) })
		if err == nil {
			return port, func() error { return errors.Join(process.Stop(l.shutdown...), l.workspace.remove()) }, nil
		}
		err = errors.Join(err, process.Stop(l.shutdown...))
		log := l.workspace.logTail()
		portTaken := errors.Is(err, errExited) && strings.Contains(log, "Address already in use")
		if !portTaken || attempt == launchAttempts {
			return "", nil, fmt.Errorf("testservers: start %s: %w; the end of its log:\n%s", l.name, err, log)
		}
	}
}
