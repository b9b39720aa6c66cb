package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/user"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// connectTimeout bounds how long a command waits for a database to answer.
const connectTimeout = 10 * time.Second

// target are the flags that say on which databases a command works.
type target struct {
	config    *string
	databases *[]string
}

func targetFlags(cmd *cobra.Command) *target {
	t := &target{config: configFlag(cmd)}
	t.databases = cmd.Flags().StringSlice("database", nil, "only in these databases of the configuration (default: in all)")
	complete(cmd, "database", func(cfg *config.Config) []string { return slices.Sorted(maps.Keys(cfg.Databases)) })
	return t
}

// administration is what commands need of a database.
type administration interface {
	admin.Administration
	Close() error
}

// session is the console on the databases of one command.
type session struct {
	*monitor.Console

	cfg    *config.Config
	stores map[string]administration
	// consumers are opened when they are asked.
	consumers consumers
	// failed are the databases that could not be opened.
	failed map[string]error
	// tenants is what is wrong with the list of the tenants.
	tenants error
}

// open connects to the databases. One that cannot be reached does not keep the command from the
// others.
func (t *target) open(cmd *cobra.Command) (*session, error) {
	cfg, err := load(cmd, *t.config)
	if err != nil {
		return nil, err
	}
	tenants, tenantProblem := addTenants(cmd, cfg)
	names, err := t.names(cfg)
	if err != nil {
		return nil, withTenants(err, tenantProblem)
	}
	s := &session{cfg: cfg, stores: map[string]administration{}, failed: map[string]error{}, tenants: tenantProblem}
	var (
		mu    sync.Mutex
		group sync.WaitGroup
	)
	asked := make(chan struct{}, maxAsked)
	for _, name := range names {
		if tenants[name] {
			mu.Lock()
			s.stores[name] = &onDemand{places: asked, brokers: cfg.BrokerNames(), connect: func(ctx context.Context) (administration, error) {
				if err := present(cfg, name); err != nil {
					return nil, err
				}
				store, err := fanout.OpenStore(ctx, cfg, name)
				if cause := errors.Unwrap(err); cause != nil {
					err = cause // who asks says which database it is
				}
				return store, err
			}}
			mu.Unlock()
			continue
		}
		group.Go(func() {
			ctx, cancel := context.WithTimeout(cmd.Context(), connectTimeout)
			defer cancel()
			store, err := fanout.OpenStore(ctx, cfg, name)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				s.failed[name] = err
			} else {
				s.stores[name] = store
			}
		})
	}
	group.Wait()
	stores := make(map[string]admin.Administration, len(s.stores))
	for name, store := range s.stores {
		stores[name] = store
	}
	s.consumers = openConsumers(cfg)
	s.Console = monitor.NewConsole(stores, monitor.WithBrokers(cfg.BrokerNames()...), monitor.WithRetention(cfg.Retention), monitor.WithNotKept(cfg.NotKept()...),
		monitor.WithConsumers(s.consumers.known()))
	return s, nil
}

func (t *target) names(cfg *config.Config) ([]string, error) {
	if len(cfg.Databases) == 0 {
		return nil, usageError{errors.New("the configuration has no database")}
	}
	all := slices.Sorted(maps.Keys(cfg.Databases))
	for _, name := range *t.databases {
		if _, ok := cfg.Databases[name]; !ok {
			return nil, usageError{fmt.Errorf("the configuration has no database %q: it has %q", name, all)}
		}
	}
	if len(*t.databases) > 0 {
		all = slices.Compact(slices.Sorted(slices.Values(*t.databases)))
	}
	return all, nil
}

// Close closes what was opened.
func (s *session) Close() {
	for _, store := range s.stores {
		_ = store.Close() // nothing is left to be written
	}
	s.consumers.close()
}

// problem joins the errors of the databases that could not be opened.
func (s *session) problem() error {
	problems := []error{s.tenants}
	for _, name := range slices.Sorted(maps.Keys(s.failed)) {
		problems = append(problems, s.failed[name])
	}
	return errors.Join(problems...)
}

// each asks one database after the other. One that fails does not keep it from the others.
func (s *session) each(ask func(database string) error) error {
	var problems []error
	for _, database := range s.Databases() {
		problems = append(problems, asUsage(ask(database)))
	}
	return errors.Join(append(problems, s.problem())...)
}

// show fills an output database by database. It fails where nothing is found and the broker, unless it
// is empty, is unknown.
func (t *target) show(out *output, broker, nothing string, ask func(session *session, database string) error) error {
	session, err := t.open(out.cmd)
	if err != nil {
		return err
	}
	defer session.Close()
	err = session.each(func(database string) error { return ask(session, database) })
	if err == nil && out.found == 0 {
		if err := session.exist(out.cmd.Context(), admin.Filter{Broker: broker}, ""); err != nil {
			return err
		}
	}
	return out.end(err, nothing)
}

// asUsage marks what the console refuses.
func asUsage(err error) error {
	var refused *monitor.RefusedError
	if errors.As(err, &refused) {
		return usageError{errors.New(refused.Reason)}
	}
	return err
}

// exist fails where a name in a filter is unknown: a typing error must not look like a success. What a
// database has that does not answer is not known.
func (s *session) exist(ctx context.Context, filter admin.Filter, fingerprint string) error {
	if partial := len(s.failed) > 0 || s.tenants != nil; partial {
		return nil
	}
	return s.Exist(ctx, nil, filter, fingerprint)
}

// actorFlag adds --by; what it returns names who acts, for the audit.
func actorFlag(cmd *cobra.Command) func() monitor.Actor {
	by := cmd.Flags().String("by", currentUser(), "who does it, for the audit")
	return func() monitor.Actor { return monitor.Actor{Name: *by, Via: "cli"} }
}

// currentUser names whoever runs the command, as far as the system knows.
func currentUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}
