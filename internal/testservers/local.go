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
	// ready succeeds when our server, not another process's at this port, answers.
	ready func(ctx context.Context, port string, pid int) error
	// shutdown ends the server, politely first.
	shutdown []child.Step
	// usual is the port that is tried first: the URL of a server is part of what go test knows its
	// cached results by. Empty: none.
	usual string
}

// run starts the server and returns its port and what stops it and removes its files.
func (l *local) run(ctx context.Context) (string, func() error, error) {
	port, process, err := l.anywhere(ctx)
	if err != nil {
		return "", nil, err
	}
	return port, func() error { return errors.Join(process.Stop(l.shutdown...), l.workspace.remove()) }, nil
}

// anywhere starts the server at its usual port or another free one. Between our look for one and
// the server's own bind another process may take it; then the next one is tried.
func (l *local) anywhere(ctx context.Context) (string, *child.Child, error) {
	for attempt := 1; ; attempt++ {
		port, err := l.freePort(ctx, attempt)
		if err != nil {
			return "", nil, err
		}
		process, err := l.at(ctx, port)
		if err == nil {
			return port, process, nil
		}
		if !portTaken(err) || attempt == launchAttempts {
			return "", nil, err
		}
	}
}

// portTaken reports whether a server ended since another process has its port; Erlang has a word of its
// own for that.
func portTaken(err error) bool {
	said := strings.ToLower(err.Error())
	return errors.Is(err, errExited) && (strings.Contains(said, "address already in use") || strings.Contains(said, "eaddrinuse"))
}

func (l *local) freePort(ctx context.Context, attempt int) (string, error) {
	if attempt == 1 && l.usual != "" {
		if port, err := portToListen(ctx, l.usual); err == nil {
			return port, nil
		}
	}
	return freePort(ctx)
}

// at starts the server at a port and returns when it answers.
func (l *local) at(ctx context.Context, port string) (*child.Child, error) {
	process, err := l.workspace.start(l.command(port))
	if err != nil {
		return nil, fmt.Errorf("testservers: start %s: %w", l.name, err)
	}
	err = awaitReady(ctx, process.Done(), func(ctx context.Context) error { return l.ready(ctx, port, process.Pid()) })
	if err == nil {
		return process, nil
	}
	err = errors.Join(err, process.Stop(l.shutdown...))
	return nil, fmt.Errorf("testservers: start %s: %w; the end of its log:\n%s", l.name, err, l.workspace.logTail())
}
