package config

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/internal/dbtable"
	"github.com/gorm-fanout/fanout/outbox"
)

// namePattern is what databases and brokers may be called: names end up in columns, metrics, URLs
// and on the command line.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

// readNamed calls read for each entry of a section whose keys are names of the user's.
func (r *reader) readNamed(section *object, read func(name string, entry *object)) {
	byFolded := map[string]*field{}
	for _, f := range section.fields {
		folded := strings.ToLower(f.name)
		if !namePattern.MatchString(f.name) {
			r.problemf(f.key, section.path, "name %s: use letters, digits, _ and -, at most 63", shown(f.name))
			f.path = section.path + ".?"
		} else if first := byFolded[folded]; first != nil {
			r.problemf(f.key, f.path, "differs from %q in line %d only in capitals, which some databases do not tell apart", first.name, first.key.line)
		}
		byFolded[folded] = f
		if value := r.plain(f.value, f.path); value != nil {
			entry := r.open(value, f.path, f.key)
			entry.shape = section.shape.entry(f.name)
			read(f.name, entry)
		}
	}
}

func (r *reader) readDatabases(section *object, cfg *Config, tenants bool) {
	r.readNamed(section, func(name string, entry *object) {
		var database Database
		database.Driver, database.DSN = r.connection(entry)
		driver := string(database.Driver)
		database.Notify = database.Driver == outbox.Postgres
		if entry.boolean("notify", &database.Notify); entry.has("notify") && database.Driver != outbox.Postgres && driver != "" {
			f := entry.find("notify")
			f.bad = true
			r.problemf(f.key, f.path, "does nothing for driver %s, which cannot notify other processes: remove it", driver)
		}
		entry.close()
		cfg.Databases[name] = database
	})
	if len(section.fields) == 0 && !tenants {
		r.warnf(section.at, "databases", "no database is declared: the commands have none to open, and an application must pass its own")
	}
}

// connection reads how a database is reached.
func (r *reader) connection(entry *object) (driver outbox.Dialect, dsn Secret) {
	driver = outbox.Dialect(entry.choice("driver", dialects()...))
	entry.require("driver", ": use "+outbox.DialectNames)
	entry.secret("dsn", &dsn)
	r.checkURL(entry, "dsn", dsn)
	return driver, dsn
}

// readConsumers returns the fields that name brokers.
func (r *reader) readConsumers(section *object, cfg *Config) (brokers []*field) {
	r.readNamed(section, func(name string, entry *object) {
		var consumer Consumer
		consumer.Driver, consumer.DSN = r.connection(entry)
		entry.require("dsn", ": use the connection string of the database with the consumer's inbox")
		if f := entry.text("table", &consumer.Table); f != nil && dbtable.CheckName(consumer.Table, "inbox_messages") != nil {
			entry.rejectf(f, "%s is no table name: use letters, digits and underscores (at most 48), with an optional schema as in %q",
				shown(f.source), "app.inbox_messages")
		}
		if f := entry.text("broker", &consumer.Broker); f != nil {
			brokers = append(brokers, f)
		}
		entry.close()
		cfg.Consumers[name] = consumer
	})
	return brokers
}

// checkConsumers refuses brokers that nothing is delivered to.
func (r *reader) checkConsumers(cfg *Config, brokers []*field) {
	for _, f := range brokers {
		if !slices.Contains(cfg.BrokerNames(), f.text) {
			r.rejectf(f, "no messages are delivered to a broker %s%s", shownName(f.source), suggest(f.source, cfg.BrokerNames()))
		}
	}
}

// outboxSection is the outbox section as the file has it, for checks that need positions.
type outboxSection struct {
	*object

	poll, retry, breaker *object
	external             []*field
}

func (r *reader) readOutbox(o *object, cfg *Config) *outboxSection {
	section := &outboxSection{object: o}
	out := &cfg.Outbox
	out.Table, out.InternalBroker, out.MaxPayloadBytes = outbox.DefaultTable, outbox.DefaultInternalBroker, outbox.DefaultMaxPayloadBytes

	if f := o.text("table", &out.Table); f != nil && outbox.ValidateTable(out.Table) != nil {
		o.rejectf(f, "%s is no table name: use letters, digits and underscores (at most 48), with an optional schema as in %q",
			shown(f.source), "app.outbox_messages")
	}
	o.text("internal_broker", &out.InternalBroker)
	section.external = o.list("external_brokers")
	for _, item := range section.external {
		out.ExternalBrokers = append(out.ExternalBrokers, item.text)
	}
	o.integer("max_payload_bytes", &out.MaxPayloadBytes, math.MaxInt32)

	policy := &out.Policy
	policy.Unordered = o.ordering() == OrderingNone
	o.integer("workers", &policy.Workers, math.MaxInt32)
	o.integer("batch_size", &policy.BatchSize, outbox.MaxBatchSize)
	o.integer("batch_bytes", &policy.BatchBytes, math.MaxInt32)
	o.duration("lease", &policy.Lease, time.Second)
	o.duration("publish_timeout", &policy.PublishTimeout, 0)
	o.duration("shutdown_timeout", &policy.ShutdownTimeout, 0)
	section.poll = o.object("poll")
	section.poll.duration("min", &policy.PollMin, 0)
	section.poll.duration("max", &policy.PollMax, 0)
	section.poll.close()
	section.retry = o.retry(&policy.Retry)
	section.breaker = o.breaker(&policy.Breaker)

	policy.BlockAbandoned = o.onAbandon() == OnAbandonBlock
	keep := true
	o.boolean("keep", &keep)
	policy.DeletePublished = !keep
	o.boolean("serialize_keys", &out.SerializeKeys)
	o.close()
	r.checkShared(section, cfg)
	return section
}

func (o *object) ordering() Ordering {
	return Ordering(o.choice("ordering", string(OrderingPerKey), string(OrderingNone)))
}

func (o *object) onAbandon() OnAbandon {
	return OnAbandon(o.choice("on_abandon", string(OnAbandonContinue), string(OnAbandonBlock)))
}

// retry reads the section of that name, which outbox and brokers have in common.
func (o *object) retry(dst *outbox.Retry) *object {
	retry := o.object("retry")
	retry.integer("max_attempts", &dst.MaxAttempts, math.MaxInt32)
	retry.duration("base_delay", &dst.BaseDelay, 0)
	retry.number("multiplier", &dst.Multiplier, 1, math.MaxFloat64)
	retry.duration("max_delay", &dst.MaxDelay, 0)
	if retry.number("jitter", &dst.Jitter, 0, 1) != nil && dst.Jitter == 0 {
		dst.Jitter = noJitter
	}
	retry.close()
	return retry
}

// breaker reads the section of that name, which outbox and brokers have in common.
func (o *object) breaker(dst *outbox.Breaker) *object {
	breaker := o.object("breaker")
	breaker.integer("trip_after", &dst.TripAfter, math.MaxInt32)
	breaker.duration("min_delay", &dst.MinDelay, 0)
	breaker.duration("max_delay", &dst.MaxDelay, 0)
	breaker.close()
	return breaker
}

func (r *reader) readCleanup(o *object, cfg *Config) {
	o.duration("interval", &cfg.Cleanup.Interval, 0)
	o.duration("published_retention", &cfg.Cleanup.PublishedRetention, 0)
	o.duration("abandoned_retention", &cfg.Cleanup.AbandonedRetention, 0)
	o.integer("batch_size", &cfg.Cleanup.BatchSize, math.MaxInt32)
	o.duration("max_lag", &cfg.Cleanup.MaxLag, 0)
	o.close()
}
