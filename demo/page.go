package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/monitor"
)

// stopTime is how long requests in progress may take once the demo ends.
const stopTime = time.Second

// page is the dashboard of a run.
type page struct {
	url    string
	server *http.Server
	failed chan error
}

// openPage serves the dashboard of a relay, which must not run yet; nil where no address is asked
// for. Whoever reaches it is an operator: the outbox is thrown away at the end, and only this
// machine reaches it.
func openPage(ctx context.Context, relay *fanout.Relay, address string) (*page, error) {
	if address == "" {
		return nil, nil //nolint:nilnil // which is no error
	}
	listener, err := listen(ctx, address)
	if err != nil {
		return nil, err
	}
	handler, err := relay.Monitor(fanout.MonitorOptions{Authorise: func(*http.Request) (monitor.Identity, error) {
		return monitor.Identity{Name: "you", Role: monitor.RoleOperator}, nil
	}})
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	p := &page{url: "http://" + listener.Addr().String() + "/", failed: make(chan error, 1)}
	p.server = &http.Server{
		Handler: loopbackNames(handler), BaseContext: func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	go func() { p.failed <- p.server.Serve(listener) }()
	return p, nil
}

// checkListen says what is wrong with an address for the dashboard, if anything is.
func checkListen(address string) error {
	if address == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("the dashboard cannot listen on %q: write it as HOST:PORT, such as 127.0.0.1:8088: %w", address, err)
	}
	if !loopback(host) {
		return fmt.Errorf("the dashboard does not listen on %q: whoever reaches the demo may act in it, so give an address of this "+
			"machine only, such as 127.0.0.1:8088", address)
	}
	return nil
}

// listen opens the address, or another port of the same host where that one cannot be had.
func listen(ctx context.Context, address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err // which checkListen has said
	}
	var lc net.ListenConfig
	listener, taken := lc.Listen(ctx, "tcp", address)
	if taken == nil {
		return listener, nil
	}
	// Systems differ in how they say that a port is taken or kept, so every reason counts.
	if listener, err = lc.Listen(ctx, "tcp", net.JoinHostPort(host, "0")); err != nil {
		return nil, fmt.Errorf("the dashboard cannot listen on %s, nor on another port there: %w", address, taken)
	}
	return listener, nil
}

// loopbackNames refuses requests for any host but this machine's own: a page elsewhere could
// otherwise have its own name resolved to this machine, and act here. The relay's monitor lets any
// address through, for there no one acts without a token; here anyone may.
func loopbackNames(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if !loopback(strings.Trim(host, "[]")) {
			http.Error(w, "the demo answers to localhost and to addresses such as 127.0.0.1 only", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback() || strings.EqualFold(host, "localhost")
}

// stay serves until a line can be read, or the context or the server ends.
func (p *page) stay(ctx context.Context, enter io.Reader) {
	line := make(chan struct{})
	go func() { // which waits on where no key is pressed: the process ends then
		_, _ = bufio.NewReader(enter).ReadString('\n') // its end, or an error, is as good as a line
		close(line)
	}()
	select {
	case <-line:
	case <-ctx.Done():
	case err := <-p.failed:
		p.failed <- err
	}
}

// close stops the server. It must come before the relay is closed, for requests in progress need its
// databases.
func (p *page) close() {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	if p.server.Shutdown(ctx) != nil {
		_ = p.server.Close() // who is left is cut off
	}
	<-p.failed //nolint:errcheck // it says that we have closed it
}
