package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/telemetry/otelinbox"
	"github.com/gorm-fanout/fanout/telemetry/prometheus"
)

// stopTime is how long the monitor's server may take to stop: requests in progress are cancelled.
const stopTime = 5 * time.Second

// door is where the monitor listens; nil inside where it does not.
type door struct{ net.Listener }

func (d door) close() {
	if d.Listener != nil {
		_ = d.Close() // the server has closed it already, unless it was never started
	}
}

// listen opens the address of the monitor.
func listen(ctx context.Context, address string) (door, error) {
	if address == "" {
		return door{}, nil
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return door{}, fmt.Errorf("the monitor cannot listen on %s: is another process there? Choose another address under monitor.listen: %w", address, err)
	}
	return door{listener}, nil
}

// measure makes what the monitor serves at /metrics; nil where nothing serves it.
func measure(cfg *config.Config) (*prometheus.Exporter, error) {
	if cfg.Monitor.Listen == "" || !cfg.Monitor.Metrics {
		return nil, nil //nolint:nilnil // which is no error
	}
	return prometheus.New()
}

// runMonitored runs a relay, and beside it the server of its monitor where there is one. At the end
// the server stops first, for what is in progress there needs the databases.
func runMonitored(ctx context.Context, relay *fanout.Relay, at door, cfg *config.Config, scraped *prometheus.Exporter, log *slog.Logger) error {
	if at.Listener == nil {
		return relay.Run(ctx)
	}
	consumers := openConsumers(cfg)
	defer consumers.close()
	options := fanout.MonitorOptions{Consumers: consumers.known()}
	if scraped != nil {
		options.Metrics = scraped
	}
	handler, err := relay.Monitor(options)
	if err != nil {
		return errors.Join(err, relay.Close()) //nolint:contextcheck // closing has its own time
	}
	unwatch, err := watchConsumers(scraped, relay.Console(monitor.WithConsumers(consumers.known())))
	if err != nil {
		return errors.Join(err, relay.Close()) //nolint:contextcheck // closing has its own time
	}
	defer unwatch()
	if len(cfg.Monitor.ViewerTokens)+len(cfg.Monitor.OperatorTokens) == 0 {
		handler = localNames(handler)
	}
	server := &http.Server{
		Handler: handler, BaseContext: func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		ConnState:      (&crowd{most: maxConnections}).changed,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	log.InfoContext(ctx, "monitor listens", "url", "http://"+at.Addr().String()+"/")

	delivering, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(at) }()
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(delivering) }()

	var problem error
	select {
	case <-ctx.Done():
	case problem = <-failed:
		problem = fmt.Errorf("the monitor stopped: %w", problem)
	case problem = <-ended: // the relay, which ends by itself only when it cannot go on
		ended <- nil
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if err := server.Shutdown(stopping); err != nil {
		_ = server.Close() // who is left is cut off
	}
	stop()
	return errors.Join(problem, <-ended)
}

// watchConsumers measures how far the consumers of the configuration are behind, which they cannot say
// themselves once they have died.
func watchConsumers(scraped *prometheus.Exporter, console *monitor.Console) (stop func(), err error) {
	if scraped == nil {
		return func() {}, nil
	}
	telemetry, err := otelinbox.New(otelinbox.Config{MeterProvider: scraped})
	if err != nil {
		return nil, err
	}
	unregister, err := telemetry.WatchBehind(func(ctx context.Context, report func(consumer string, behind time.Duration, err error)) {
		for _, status := range console.Consumers(ctx) {
			if status.Err != nil || !status.Silent && !status.NotKept {
				report(status.Name, status.Behind, status.Err)
			}
		}
	})
	return func() { _ = unregister() }, err
}

// localNames refuses requests for any host but this machine by a name that no one else can give it:
// a page elsewhere could otherwise have its own name resolved to this machine, and read what is
// open to all here.
func localNames(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		_, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if err != nil && !strings.EqualFold(host, "localhost") {
			http.Error(w, "without tokens the monitor answers to localhost and to addresses only: set monitor.viewer_tokens to use a name", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
