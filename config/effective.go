package config

import (
	"cmp"

	"github.com/gorm-fanout/fanout/cleanup"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/outbox"
)

// Routing says which brokers an event is written for, and in which form. gormplugin.New needs it.
// Its Notify is true if any database has notify: set it for each handle if they differ.
func (c *Config) Routing() outbox.Routing {
	routing := outbox.Routing{
		Table: c.Outbox.Table, InternalBroker: c.Outbox.InternalBroker, MaxPayloadBytes: c.Outbox.MaxPayloadBytes,
		SerializeKeys: c.Outbox.SerializeKeys,
	}
	for _, database := range c.Databases {
		routing.Notify = routing.Notify || database.Notify
	}
	if c.Tenants.File != "" {
		routing.Notify = routing.Notify || c.notifies(c.TenantSettings().Driver)
	}
	routing = routing.WithDefaults()
	routing.Internal = c.Brokers[routing.InternalBroker].Overrides
	for _, name := range c.Outbox.ExternalBrokers {
		broker := c.Brokers[name]
		routing.External = append(routing.External, outbox.Route{
			Broker: name, Format: cmp.Or(broker.MessageFormat, envelope.FormatNative), Types: broker.Filter, Source: broker.Source,
			Extensions: broker.Extensions,
			Include:    broker.Include,
			JSON:       broker.JSON,
			Overrides:  broker.Overrides,
		})
	}
	return routing.WithDefaults()
}

// Policy says how the rows of one broker are delivered: the settings of the outbox with the
// broker's overrides, and the defaults for the rest. A broker that is not declared has the settings
// of the outbox. The result can be given defaults again without a change: where no jitter is
// wanted, Retry.Jitter is negative.
func (c *Config) Policy(broker string) outbox.Policy {
	policy, overrides := c.Outbox.Policy, c.Brokers[broker]
	policy.Workers = cmp.Or(overrides.Workers, policy.Workers)
	policy.BatchSize = cmp.Or(overrides.BatchSize, policy.BatchSize)
	policy.BatchBytes = cmp.Or(overrides.BatchBytes, policy.BatchBytes)
	policy.MaxPayloadBytes = max(outbox.DefaultBatchBytes, policy.BatchBytes, c.Outbox.MaxPayloadBytes)
	policy.PublishTimeout = cmp.Or(overrides.PublishTimeout, policy.PublishTimeout)
	policy.Rate = overrides.Rate
	policy.Breaker = outbox.Breaker{
		TripAfter: cmp.Or(overrides.Breaker.TripAfter, policy.Breaker.TripAfter),
		MinDelay:  cmp.Or(overrides.Breaker.MinDelay, policy.Breaker.MinDelay),
		MaxDelay:  cmp.Or(overrides.Breaker.MaxDelay, policy.Breaker.MaxDelay),
	}
	if overrides.Ordering != "" {
		policy.Unordered = overrides.Ordering == OrderingNone
	}
	if overrides.OnAbandon != "" {
		policy.BlockAbandoned = overrides.OnAbandon == OnAbandonBlock
	}
	if overrides.Keep != nil {
		policy.DeletePublished = !*overrides.Keep
	}
	retry := outbox.Retry{
		MaxAttempts: cmp.Or(overrides.Retry.MaxAttempts, policy.Retry.MaxAttempts),
		BaseDelay:   cmp.Or(overrides.Retry.BaseDelay, policy.Retry.BaseDelay),
		Multiplier:  cmp.Or(overrides.Retry.Multiplier, policy.Retry.Multiplier),
		MaxDelay:    cmp.Or(overrides.Retry.MaxDelay, policy.Retry.MaxDelay),
		Jitter:      cmp.Or(overrides.Retry.Jitter, policy.Retry.Jitter),
	}
	policy.Retry = retry
	policy = policy.WithDefaults()
	if retry.Jitter < 0 {
		policy.Retry.Jitter = noJitter
	}
	return policy
}

// noJitter is "jitter: 0" in a policy, where zero stands for the default.
const noJitter = -1

// Retention says how long finished rows of one broker stay: the cleanup's windows with the broker's
// overrides. A broker that is not declared has those of the cleanup.
func (c *Config) Retention(broker string) cleanup.Retention {
	overrides, defaults := c.Brokers[broker].Retention, DefaultCleanup()
	return cleanup.Retention{
		Published: cmp.Or(overrides.Published, c.Cleanup.PublishedRetention, defaults.PublishedRetention),
		Abandoned: cmp.Or(overrides.Abandoned, c.Cleanup.AbandonedRetention, defaults.AbandonedRetention),
	}
}

// NotKept lists the brokers in use whose rows are removed as they are delivered ("keep: false").
func (c *Config) NotKept() (names []string) {
	for _, name := range c.BrokerNames() {
		if c.Policy(name).DeletePublished {
			names = append(names, name)
		}
	}
	return names
}

// BrokerNames lists the brokers in use: the internal one first, then the external ones in the order
// of the file.
func (c *Config) BrokerNames() []string {
	return append([]string{cmp.Or(c.Outbox.InternalBroker, outbox.DefaultInternalBroker)}, c.Outbox.ExternalBrokers...)
}
