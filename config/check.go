package config

import (
	"cmp"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/outbox"
)

// checkShared compares the settings of the outbox section with each other.
func (r *reader) checkShared(section *outboxSection, cfg *Config) {
	policy := cfg.Outbox.Policy.WithDefaults()
	if section.sound("lease", "publish_timeout") && policy.PublishTimeout >= policy.Lease {
		r.problemf(section.where("publish_timeout"), section.path+".publish_timeout", timeoutOverLease, short(policy.PublishTimeout), short(policy.Lease))
	}
	if poll := section.poll; poll.sound("min", "max") && policy.PollMax < policy.PollMin {
		r.problemf(poll.where("max"), poll.path+".max", "is %s, below poll.min (%s)", short(policy.PollMax), short(policy.PollMin))
	}
	r.checkDelays(section.retry, "base_delay", policy.Retry.BaseDelay, policy.Retry.MaxDelay)
	r.checkDelays(section.breaker, "min_delay", policy.Breaker.MinDelay, policy.Breaker.MaxDelay)
}

const timeoutOverLease = "is %s, but must be below outbox.lease (%s): a publish must end before others can claim its rows"

// checkDelays reports a first delay above max_delay at the section that is to blame. It has at
// least one of the two.
func (r *reader) checkDelays(section *object, first string, least, most time.Duration) {
	if !section.sound("max_delay", first) || most >= least {
		return
	}
	if section.has("max_delay") {
		r.problemf(section.where("max_delay"), section.path+".max_delay", "is %s, below %s (%s)", short(most), first, short(least))
	} else {
		r.problemf(section.where(first), section.path+"."+first, "is %s, above max_delay (%s)", short(least), short(most))
	}
}

// checkOverride compares delays of which a broker has at least one, and the outbox may have the
// other.
func (r *reader) checkOverride(own, shared *object, first string, least, most time.Duration) {
	if (own.has("max_delay") || own.has(first)) && shared.sound("max_delay", first) {
		r.checkDelays(own, first, least, most)
	}
}

// checkReferences looks up the brokers that the outbox section names.
func (r *reader) checkReferences(cfg *Config, section *outboxSection, brokers *object, targets []*target) {
	var names, proper []string // messages repeat proper names alone
	for _, target := range targets {
		names = append(names, target.name)
		if namePattern.MatchString(target.name) {
			proper = append(proper, target.name)
		}
	}
	internal := cfg.Outbox.InternalBroker
	if section.sound("internal_broker") && !slices.Contains(names, internal) {
		if f := section.find("internal_broker"); f != nil {
			r.rejectf(f, "brokers has no entry %s%s", shownName(f.source), suggest(f.source, proper))
		} else {
			r.problemf(brokers.at, section.path+".internal_broker", "brokers has no entry %q, which is the default: declare it, or name another one", internal)
		}
	}
	lines := map[string]int{}
	for _, item := range section.external {
		first := lines[item.text]
		switch {
		case item.text == internal && section.sound("internal_broker"):
			r.rejectf(item, "internal broker %s is also listed as external: its rows would collide; remove it here", shownName(item.source))
		case first > 0:
			r.rejectf(item, "duplicate external broker %s: it is listed in line %d already", shownName(item.source), first)
		case !slices.Contains(names, item.text):
			r.rejectf(item, "brokers has no entry %s%s", shownName(item.source), suggest(item.source, proper))
		}
		if first == 0 {
			lines[item.text] = item.at.line
		}
	}
}

// checkPlaces refuses two brokers that are one and the same place, unless they name their
// destinations differently: the internal and the stripped form of an event, or two copies of it,
// would stand in the same streams.
func (r *reader) checkPlaces(cfg *Config, sections []*section) {
	seen := map[address]*section{}
	for _, s := range sections {
		target, broker := s.target, cfg.Brokers[s.target.name]
		if !slices.Contains(cfg.BrokerNames(), target.name) || !target.sound("destination") {
			continue
		}
		shared := ""
		for _, server := range s.place.Servers { // a cluster has several, any of which names it
			at := address{broker.Type, server, s.place.Inside, cmp.Or(broker.Destination, "{stream}")}
			if first := seen[at]; first == nil {
				seen[at] = s
			} else if first != s && (!s.place.Partners || s.Internal() || first.Internal()) {
				shared = cmp.Or(shared, first.target.name)
			}
		}
		if shared != "" {
			r.problemf(target.at, target.path, samePlace, shared, s.place.Elsewhere)
		}
	}
}

const samePlace = "is the same place as broker %q: both would write to the same streams; use another %s, or a destination such as partner.{stream}"

// address is where a broker puts its messages.
type address struct{ kind, server, inside, destination string }

// checkTarget compares a broker's settings with each other and with those of the outbox.
func (r *reader) checkTarget(cfg *Config, shared *outboxSection, target *target) *section {
	broker, policy := cfg.Brokers[target.name], cfg.Policy(target.name)
	if target.has("publish_timeout") && target.sound("publish_timeout") && shared.sound("lease") && policy.PublishTimeout >= policy.Lease {
		r.problemf(target.where("publish_timeout"), target.path+".publish_timeout", timeoutOverLease, short(policy.PublishTimeout), short(policy.Lease))
	}
	r.checkOverride(target.retry, shared.retry, "base_delay", policy.Retry.BaseDelay, policy.Retry.MaxDelay)
	r.checkOverride(target.breaker, shared.breaker, "min_delay", policy.Breaker.MinDelay, policy.Breaker.MaxDelay)
	checked := &section{reader: r, target: target, cfg: cfg}
	if target.sound("publish_timeout") && shared.sound("publish_timeout") {
		checked.timeout = policy.PublishTimeout
	}
	if broker.Settings != nil {
		broker.Settings.Check(checked)
	}
	if target.name == cfg.Outbox.InternalBroker && shared.sound("internal_broker") {
		for _, name := range []string{"format", "encoding", "source", "extensions", "include", "filter"} {
			if f := target.find(name); f != nil {
				r.problemf(f.key, f.path, "does nothing for the internal broker, which gets every event in its internal form: remove it")
			}
		}
		return checked
	}
	r.checkForm(target, broker.MessageFormat)
	return checked
}

// checkForm compares what an external broker's messages are with their format.
func (r *reader) checkForm(target *target, format envelope.Format) {
	if f := target.find("content_type"); f != nil && target.sound("format", "content_type") && format == envelope.FormatCloudEvents {
		r.problemf(f.key, f.path, "does not go together with format: cloudevents, whose messages are %s: remove it", envelope.FormatCloudEvents.ContentType())
	}
	if f := target.find("source"); f != nil && target.sound("format", "source") && format != envelope.FormatCloudEvents {
		r.problemf(f.key, f.path, "does nothing without format: cloudevents")
	}
}

// adviseOn warns about what works but is probably not meant.
func (r *reader) adviseOn(cfg *Config, section *outboxSection, targets []*target) {
	if section.find("external_brokers") == nil { // an empty list is meant
		r.warnf(section.at, section.path+".external_brokers",
			"there are no external brokers: published events go to the internal broker alone; say external_brokers: [] if that is meant")
	}
	const slowPoll = time.Minute
	if longest := cfg.Outbox.Policy.PollMax; longest > slowPoll {
		r.warnf(section.poll.where("max"), section.poll.path+".max", "is %s: a row of another process may wait that long", short(longest))
	}
	r.adviseOnWorkers(section.object, cfg.Outbox.Policy.Workers)
	used := cfg.BrokerNames()
	for _, target := range targets {
		broker := cfg.Brokers[target.name]
		r.adviseOnWorkers(target.object, broker.Workers)
		if at := target.find("retention"); at != nil && broker.Retention.Published > 0 && cfg.Policy(target.name).DeletePublished {
			r.warnf(at.at, at.path+".published", "is for rows of before: what is delivered is not kept (keep: false)")
		}
		if !slices.Contains(used, target.name) {
			r.warnf(target.at, target.path, "is neither the internal broker nor an external one: nothing is sent there")
		}
	}
}

func (r *reader) adviseOnWorkers(o *object, workers int) {
	if workers > outbox.Shards {
		r.warnf(o.where("workers"), o.path+".workers", "is %d: more than %d, the number of shards, bring nothing", workers, outbox.Shards)
	}
}
