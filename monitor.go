package fanout

import (
	"cmp"
	"fmt"
	"io/fs"
	"net/http"

	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/monitor/dashboard"
)

// MonitorOptions refine [Relay.Monitor]. Zero values take the defaults.
type MonitorOptions struct {
	// Authorise says who asks, as the application knows its users. Default: by the tokens of the configuration; where there are none
	// everybody may look, and nobody may act or see a payload.
	Authorise func(*http.Request) (monitor.Identity, error)
	// CSRFKey is for an Authorise behind a load balancer, see [monitor.Config]. Default: monitor.csrf_key of the configuration.
	CSRFKey string
	// Assets of the dashboard. Default: those of package monitor/dashboard.
	Assets fs.FS
	// Metrics answers GET /metrics. Default: 404.
	Metrics http.Handler
}

// Monitor makes the HTTP interface for the people who run the outbox: the API, the probes and the dashboard, to be mounted in the
// application's own server, under a prefix with http.StripPrefix. Its history is filled while [Relay.Run] runs, so make it before that. It
// answers until the relay is closed.
func (r *Relay) Monitor(opts MonitorOptions) (http.Handler, error) {
	var err error
	cfg := monitor.Config{
		Console: r.Console(), Stats: r.Stats, Running: r.running.Load, Authorise: opts.Authorise, Assets: opts.Assets, Metrics: opts.Metrics,
		Version: programVersion(), Log: r.log, CSRFKey: cmp.Or(opts.CSRFKey, r.cfg.Monitor.CSRFKey.Reveal()),
	}
	if cfg.Assets == nil {
		cfg.Assets = dashboard.Assets
	}
	if opts.Authorise == nil && len(r.cfg.Monitor.ViewerTokens)+len(r.cfg.Monitor.OperatorTokens) > 0 {
		if cfg.Tokens, err = monitor.NewTokens(reveal(r.cfg.Monitor.ViewerTokens), reveal(r.cfg.Monitor.OperatorTokens)); err != nil {
			return nil, fmt.Errorf("fanout: %w", err)
		}
	}
	handler, err := monitor.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("fanout: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handlers = append(r.handlers, handler)
	return handler, nil
}

// Console looks at the relay's databases and repairs them by hand. It works until the relay is closed.
func (r *Relay) Console() *monitor.Console {
	stores := make(map[string]monitor.Store, len(r.stores))
	for name, store := range r.stores {
		stores[name] = store
	}
	return monitor.NewConsole(stores, monitor.WithBrokers(r.cfg.BrokerNames()...))
}

func reveal(secrets map[string]config.Secret) map[string]string {
	plain := make(map[string]string, len(secrets))
	for name, secret := range secrets {
		plain[name] = secret.Reveal()
	}
	return plain
}
