package testservers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

const (
	readyPatience  = 10 * time.Minute       // for a server to answer: seconds, and minutes for RabbitMQ on a machine with more to do than it can
	attemptTimeout = 5 * time.Second        // for one attempt to connect
	firstPause     = 10 * time.Millisecond  // between attempts, doubled up to lastPause
	lastPause      = 500 * time.Millisecond // so that a ready server is noticed soon
	launchAttempts = 3                      // for ports that another process took in the meantime
)

// errExited says that a server ended instead of answering.
var errExited = errors.New("the server ended while it was starting")

// awaitReady calls probe, with growing pauses, until it succeeds. It gives up when exited is
// closed, when ctx ends, and after readyPatience; the error then holds the last one of probe.
func awaitReady(ctx context.Context, exited <-chan struct{}, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := attempt(ctx, probe)
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

func attempt(ctx context.Context, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return probe(ctx)
}

// freePort returns a TCP port that is free on 127.0.0.1 at this moment.
func freePort(ctx context.Context) (string, error) { return portToListen(ctx, "0") }

// portToListen returns a TCP port if it is free on 127.0.0.1 at this moment, and any free one for
// port 0.
func portToListen(ctx context.Context, port string) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return "", fmt.Errorf("testservers: find a free port: %w", err)
	}
	_, port, err = net.SplitHostPort(listener.Addr().String())
	return port, errors.Join(err, listener.Close())
}
