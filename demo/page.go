package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/monitor"
	assets "github.com/gorm-fanout/fanout/monitor/dashboard"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// dashboard serves the pages of a run.
type dashboard struct {
	url     string
	server  *http.Server
	stop    context.CancelFunc // ends the samples of the history
	running sync.WaitGroup
}

// openDashboard serves the dashboard. Every visitor is an operator: only this machine reaches it, and
// the outbox is thrown away at the end.
func (r *run) openDashboard(ctx context.Context) (*dashboard, error) {
	discard := slog.New(slog.DiscardHandler)
	handler, err := monitor.New(monitor.Config{
		Console: monitor.NewConsole(map[string]admin.Administration{"default": r.store}, monitor.WithBrokers("default", "partner", "carrier")),
		Stats:   r.engine.Stats, Assets: assets.Assets, Log: discard,
		Authorise: func(*http.Request) (monitor.Identity, error) {
			return monitor.Identity{Name: "you", Role: monitor.RoleOperator}, nil
		},
	})
	if err != nil {
		return nil, err
	}
	listener, err := listen(ctx, r.cfg.port)
	if err != nil {
		return nil, err
	}
	sampling, stop := context.WithCancel(ctx)
	d := &dashboard{url: "http://" + listener.Addr().String() + "/", stop: stop}
	d.server = &http.Server{
		Handler: loopbackNames(handler), ReadHeaderTimeout: 5 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(discard.Handler(), slog.LevelDebug),
	}
	d.running.Go(func() { _ = handler.Run(sampling) })
	d.running.Go(func() { _ = d.server.Serve(listener) })
	return d, nil
}

// close stops the server, before the relay and its databases are closed.
func (d *dashboard) close() {
	d.stop()
	_ = d.server.Close()
	d.running.Wait()
}

// listen opens a port of this machine, or another one if that one cannot be had.
func listen(ctx context.Context, port int) (net.Listener, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil { // systems differ in how they say that a port is taken, so every reason counts
		listener, err = lc.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("open a port for the dashboard: %w", err)
	}
	return listener, nil
}

// loopbackNames refuses requests for any host but this machine. Otherwise a foreign page could have
// its own name resolved to this machine, and act here without a token.
func loopbackNames(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if (err != nil || !addr.IsLoopback()) && !strings.EqualFold(host, "localhost") {
			http.Error(w, "the demo answers to localhost and to addresses such as 127.0.0.1 only", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// waitForLine returns when a line can be read, or the context ends.
func waitForLine(ctx context.Context, from io.Reader) {
	line := make(chan struct{})
	go func() { // it may wait for a key until the process ends
		_, _ = bufio.NewReader(from).ReadString('\n')
		close(line)
	}()
	select {
	case <-line:
	case <-ctx.Done():
	}
}
