package config

import (
	"math"
	"path"
	"slices"

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
		checked := r.readConnection(entry, &broker)

		format := entry.choice("format", string(envelope.FormatNative), string(envelope.FormatCloudEvents))
		broker.MessageFormat = envelope.Format(format)
		broker.JSON = entry.choice("encoding", "own", "json") == "json"
		entry.text("source", &broker.Source)
		broker.Extensions = entry.extensions(broker.MessageFormat)
		broker.Include = entry.include(broker.MessageFormat)
		broker.Filter = entry.filter()
		entry.overrides(&broker.Overrides)

		broker.Sign = entry.sign()
		entry.integer("workers", &broker.Workers, math.MaxInt32)
		entry.integer("batch_size", &broker.BatchSize, outbox.MaxBatchSize)
		entry.integer("batch_bytes", &broker.BatchBytes, math.MaxInt32)
		entry.duration("publish_timeout", &broker.PublishTimeout, 0)
		entry.number("rate", &broker.Rate, leastRate, math.MaxFloat64)
		breaker := entry.breaker(&broker.Breaker)
		broker.Ordering = entry.ordering()
		broker.OnAbandon = entry.onAbandon()
		if keep := true; entry.boolean("keep", &keep) != nil {
			broker.Keep = &keep
		}
		retry := entry.retry(&broker.Retry)
		retention := entry.object("retention")
		retention.duration("published", &broker.Retention.Published, 0)
		retention.duration("abandoned", &broker.Retention.Abandoned, 0)
		retention.close()
		if checked || entry.broken {
			entry.close()
		}

		cfg.Brokers[name] = broker
		targets = append(targets, &target{object: entry, name: name, retry: retry, breaker: breaker})
	})
	return targets
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
	attributes.takesAny("", textShape)
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

// include reads what leaves beside what always does.
func (o *object) include(format envelope.Format) (include envelope.Include) {
	all := envelope.Include{FQN: true, OriginStream: true, IdempotencyKey: true, Nulls: true, TraceState: true}.Names()
	items := o.list("include")
	o.takes("include", func() map[string]any { return listShape(choiceShape(all)) })
	for _, item := range items {
		switch {
		case slices.Contains(include.Names(), item.text):
			o.rejectf(item, "%s is listed twice: list it once", shown(item.source))
		case format == envelope.FormatCloudEvents && item.text != "tracestate" && slices.Contains(all, item.text):
			o.rejectf(item, "%s does not go together with format: cloudevents, which has no such attribute: remove it", shown(item.source))
		default:
			var known bool
			if include, known = include.With(item.text); !known {
				o.rejectf(item, "%s is not known%s", shown(item.source), suggest(item.source, all))
			}
		}
	}
	return include
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
