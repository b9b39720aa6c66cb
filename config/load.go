package config

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/gorm-fanout/fanout/brokers/adapter"
)

// Option changes how a configuration is read.
type Option func(*reader)

// WithEnv replaces the environment that ${NAME} is looked up in. lookup returns the value and
// whether the variable is set. Default: os.LookupEnv.
func WithEnv(lookup func(name string) (value string, ok bool)) Option {
	return func(r *reader) { r.lookup = lookup }
}

// WithBrokerTypes names the types of brokers whose adapters the program links, beside its own sections
// so that those of their brokers are checked, and Broker.Settings is made. The section of a broker of
// another type is left unchecked but for the keys that all brokers have, for programs that deliver
// nothing: a type that looks like a misspelt one of these is refused, and another one has a warning.
// fanout.Open looks at the sections again, with the types that are built in and those that it is given.
func WithBrokerTypes(types ...adapter.Type) Option {
	return func(r *reader) { r.types = append(r.types, types...) }
}

// WithUnsetVariables allows variables that are not set in these top-level sections, such as
// "brokers": a setting that needs one is as if it were not there, and nothing is said about it. It
// is for programs that look at an outbox and repair it, which need no credentials but those of the
// databases. Of such a configuration no broker can be opened. Everything else that is wrong is
// reported as ever.
func WithUnsetVariables(sections ...string) Option {
	return func(r *reader) { r.unsetIn = append(r.unsetIn, sections...) }
}

// Load reads a configuration file. The error is an *Error when the content is wrong, and wraps the
// operating system's when the file cannot be read.
func Load(path string, opts ...Option) (*Config, error) {
	source, err := os.ReadFile(path) //nolint:gosec // the path is the caller's to choose
	if err != nil {
		return nil, fmt.Errorf("config: read the configuration: %w", err)
	}
	return Parse(source, path, opts...)
}

// Parse reads a configuration from memory. name stands for the file in messages. Everything that is
// wrong is reported together, in an *Error.
func Parse(source []byte, name string, opts ...Option) (*Config, error) {
	r := &reader{file: name, lookup: os.LookupEnv}
	for _, opt := range opts {
		opt(r)
	}
	cfg := r.read(source)
	if len(r.problems) > 0 {
		r.problems = append(r.problems, r.unlinked...)
	} else {
		r.warnings = append(r.warnings, r.unlinked...)
	}
	sortProblems(r.problems)
	sortProblems(r.warnings)
	if len(r.problems) > 0 {
		return nil, &Error{Problems: slices.Compact(r.problems)}
	}
	cfg.Warnings, cfg.lookup = r.warnings, r.lookup
	cfg.again = func(types []adapter.Type) (*Config, error) {
		return Parse(source, name, append(slices.Clone(opts), WithBrokerTypes(types...))...)
	}
	return cfg, nil
}

// read turns the document into a configuration, which is of use only if there are no problems.
func (r *reader) read(source []byte) *Config {
	cfg := &Config{
		Databases: map[string]Database{}, Consumers: map[string]Consumer{}, Brokers: map[string]Broker{}, Cleanup: DefaultCleanup(), Monitor: DefaultMonitor(),
	}
	content := r.parseDocument(source)
	if content == nil {
		return cfg
	}
	r.collectAnchors(content)
	if content = r.plain(content, ""); content == nil {
		return cfg
	}
	root := r.open(content, "", position{1, 1})
	root.shape = r.describes
	r.readDatabases(root.object("databases"), cfg, root.has("tenants"))
	r.readTenants(root.object("tenants"), cfg)
	consumers := r.readConsumers(root.object("consumers"), cfg)
	shared := r.readOutbox(root.object("outbox"), cfg)
	brokers := root.object("brokers")
	targets := r.readBrokers(brokers, cfg)
	r.readCleanup(root.object("cleanup"), cfg)
	r.readMonitor(root.object("monitor"), cfg)
	root.close()

	if !root.broken && !brokers.broken {
		r.checkReferences(cfg, shared, brokers, targets)
		r.checkConsumers(cfg, consumers)
	}
	sections := make([]*section, 0, len(targets))
	for _, target := range targets {
		sections = append(sections, r.checkTarget(cfg, shared, target))
	}
	r.checkPlaces(cfg, sections)
	r.adviseOn(cfg, shared, targets)
	if len(r.problems) == 0 {
		r.checkAgain(cfg, shared)
	}
	return cfg
}

// checkAgain asks the packages that will use the values. Everything they refuse is refused above
// with its line; should a rule be added there, this keeps start-up from failing later and without
// the file's name.
func (r *reader) checkAgain(cfg *Config, shared *outboxSection) {
	check := func(path string, err error) {
		if err != nil {
			r.problemf(shared.at, path, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	check("outbox", cfg.Routing().Validate())
	for _, name := range cfg.BrokerNames() {
		check(join("brokers", name), cfg.Policy(name).Validate())
	}
}

// Link returns the configuration with the settings of brokers of these types, beside those that it has:
// it reads the sections that the program which loaded the file has not linked. The error is an *Error.
func (c *Config) Link(types ...adapter.Type) (*Config, error) {
	if c.again == nil || !slices.ContainsFunc(slices.Collect(maps.Values(c.Brokers)), func(b Broker) bool { return b.Settings == nil }) {
		return c, nil
	}
	read, err := c.again(types)
	if err != nil {
		return nil, err
	}
	linked := *c
	linked.Brokers = maps.Clone(c.Brokers)
	for name, broker := range linked.Brokers {
		if broker.Settings == nil {
			broker.Settings = read.Brokers[name].Settings
			linked.Brokers[name] = broker
		}
	}
	return &linked, nil
}
