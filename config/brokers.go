package config

import (
	"math"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/outbox"
)

// target is one broker as the file has it, for checks that need positions.
type target struct {
	*object

	name           string
	retry, breaker *object
}

func (r *reader) readBrokers(section *object, cfg *Config) []*target {
	var targets []*target
	r.readNamed(section, func(name string, entry *object) {
		broker := Broker{}
		r.readConnection(entry, &broker)

		format := entry.choice("format", string(envelope.FormatNative), string(envelope.FormatCloudEvents))
		broker.Format = envelope.Format(format)
		entry.text("source", &broker.Source)
		broker.Extensions = entry.extensions(broker.Format)
		broker.Filter = entry.filter()
		entry.overrides(&broker.Overrides)

		entry.integer("workers", &broker.Workers, math.MaxInt32)
		entry.integer("batch_size", &broker.BatchSize, outbox.MaxBatchSize)
		entry.integer("batch_bytes", &broker.BatchBytes, math.MaxInt32)
		entry.duration("publish_timeout", &broker.PublishTimeout, 0)
		entry.number("rate", &broker.Rate, leastRate, math.MaxFloat64)
		breaker := entry.breaker(&broker.Breaker)
		broker.Ordering = entry.ordering()
		broker.OnAbandon = entry.onAbandon()
		retry := entry.retry(&broker.Retry)
		retention := entry.object("retention")
		retention.duration("published", &broker.Retention.Published, 0)
		retention.duration("abandoned", &broker.Retention.Abandoned, 0)
		retention.close()
		entry.close()

		cfg.Brokers[name] = broker
		targets = append(targets, &target{object: entry, name: name, retry: retry, breaker: breaker})
	})
	return targets
}

// readConnection reads the type and what belongs to it.
func (r *reader) readConnection(entry *object, broker *Broker) {
	types := append(BrokerTypes(), r.brokerTypes...)
	f := entry.text("type", &broker.Type)
	if !entry.broken && !entry.has("type") {
		r.problemf(entry.at, entry.path, "type is missing: use %s", either(types))
	}
	if f != nil && !slices.Contains(types, broker.Type) {
		misspelt := nearest(f.source, types) != ""
		if misspelt || !r.anyBrokerType || !namePattern.MatchString(broker.Type) { // what is no name may be a secret
			hint := suggest(f.source, types)
			if !misspelt {
				hint += ", or register it in Go"
			}
			r.rejectf(f, "%s is not known%s", shown(f.source), hint)
			broker.Type = ""
		}
	}
	entry.secret("url", &broker.URL)
	entry.text("project", &broker.Project)
	entry.text("endpoint", &broker.Endpoint)
	entry.integer("compression", &broker.Compression, math.MaxInt32)
	r.readRedis(entry, &broker.Redis)
	if f := entry.get("options"); f != nil {
		broker.Options = r.readOptions(f)
	}

	switch broker.Type {
	case "": // reported
	case TypeRedis:
		r.refuseOthers(entry, broker, append(redisKeys, "url")...)
		r.checkRedis(entry)
		r.require(entry, "url", "redis://user:password@host:6379/0")
		r.checkRedisURL(entry, broker.URL)
	case TypePubSub:
		r.refuseOthers(entry, broker, "project", "endpoint", "compression")
		r.require(entry, "project", "the id of a Google Cloud project")
	case TypeMemory:
		r.refuseOthers(entry, broker)
	default:
		r.refuseOthers(entry, broker, "url", "options")
	}
}

// refuseOthers refuses the settings of a connection that the broker's type does not take.
func (r *reader) refuseOthers(entry *object, broker *Broker, takes ...string) {
	for _, name := range append([]string{"url", "project", "endpoint", "compression", "options"}, redisKeys...) {
		if f := entry.find(name); f != nil && !slices.Contains(takes, name) {
			f.bad = true
			r.problemf(f.key, f.path, "does nothing for a broker of type %s: remove it", broker.Type)
		}
	}
}

// checkURL refuses what no client can read. Connection strings in other forms than a URL are the
// driver's to judge.
func (r *reader) checkURL(entry *object, name string, secret Secret) {
	f := entry.find(name)
	if f == nil || f.bad || !strings.Contains(secret.Reveal(), "://") {
		return
	}
	if _, err := url.Parse(secret.Reveal()); err != nil { // whose text would quote the password
		r.rejectf(f, "cannot be read as a URL: check the port, and write special characters in the password as %%40 and the like")
	}
}

// checkRedisURL looks at the scheme; the rest is for the client to judge.
func (r *reader) checkRedisURL(entry *object, secret Secret) {
	known := func(scheme string) bool { return strings.HasPrefix(secret.Reveal(), scheme) }
	f := entry.find("url")
	if f != nil && !f.bad && !slices.ContainsFunc([]string{"redis://", "rediss://", "unix://"}, known) {
		r.rejectf(f, "must begin with redis://, rediss:// or unix://")
		return
	}
	r.checkURL(entry, "url", secret)
}

func (r *reader) require(entry *object, name, example string) {
	if !entry.has(name) {
		r.problemf(entry.at, entry.path, "%s is missing: use %s", name, example)
	}
}

// leastRate is one message in a thousand seconds, beyond which a typing error is likelier.
const leastRate = 0.001

// overrides reads what a broker's rows have in place of what an event says.
func (o *object) overrides(dst *outbox.Overrides) {
	if f := o.text("destination", &dst.Destination); f != nil {
		o.check(f, outbox.ValidateDestination(dst.Destination))
	}
	o.duration("ttl", &dst.TTL, 0)
	if f := o.text("content_type", &dst.ContentType); f != nil {
		o.check(f, outbox.ValidateContentType(dst.ContentType))
	}
	attributes := o.object("attributes")
	for _, f := range attributes.fields {
		var value string
		if attributes.text(f.name, &value) == nil {
			continue
		}
		o.check(f, outbox.ValidateAttribute(f.name, value))
		if dst.Attributes == nil {
			dst.Attributes = map[string]string{}
		}
		dst.Attributes[f.name] = value
	}
	if f := o.find("attributes"); f != nil && !f.bad && len(dst.Attributes) > outbox.MaxAttributes {
		o.rejectf(f, "has %d entries: use at most %d", len(dst.Attributes), outbox.MaxAttributes)
	}
}

// check reports the error of a value.
func (o *object) check(f *field, err error) {
	if err != nil && !f.bad {
		o.rejectf(f, "%s", err)
	}
}

// extensions reads the names of those that leave.
func (o *object) extensions(format envelope.Format) (names []string) {
	for _, item := range o.list("extensions") {
		names = append(names, item.text)
		if err := outbox.ValidateExtensions(names, format); err != nil {
			o.check(item, err)
			names = names[:len(names)-1] // the others are looked at by themselves
		}
	}
	return names
}

// filter reads the patterns of event types.
func (o *object) filter() []string {
	patterns := []string{}
	for _, item := range o.list("filter") {
		if _, err := path.Match(item.text, "x"); err != nil {
			o.rejectf(item, `%s is not a pattern such as "Ordering.*"`, shown(item.source))
		}
		patterns = append(patterns, item.text)
	}
	if f := o.find("filter"); f != nil && !f.bad && len(patterns) == 0 {
		o.rejectf(f, "is empty: name a pattern, or remove it to let every event pass")
	}
	if len(patterns) == 0 {
		return nil
	}
	return patterns
}
