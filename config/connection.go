package config

import (
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// connectionKeys are the settings of a connection that brokers of each type take.
var connectionKeys = map[string][]string{
	TypeRedis:    {"url", "urls", "master", "cluster", "max_len", "max_age", "approximate", "replicas", "backfill"},
	TypePubSub:   {"project", "endpoint", "compression", "create_destinations"},
	TypeRabbitMQ: {"url", "tls", "create_destinations", "max_message_bytes", "exchange", "unroutable", "expiration"},
	TypeNATS:     {"url", "tls", "create_destinations", "max_message_bytes", "subject_prefix", "credentials_file", "stream"},
	TypeKafka:    {"bootstrap_servers", "sasl", "tls", "create_destinations", "max_message_bytes", "topics"},
	TypeWebhook:  {"url", "secrets", "tls", "max_message_bytes", "concurrency", "request_timeout", "allow_http", "allow_private_networks"},
	TypeMemory:   {},
}

// registeredKeys are those that the types registered in Go take.
var registeredKeys = []string{"url", "options"}

// allConnectionKeys are those of all types.
var allConnectionKeys = func() []string {
	all := slices.Clone(registeredKeys)
	for _, keys := range connectionKeys {
		all = append(all, keys...)
	}
	return all
}()

// mostMessageBytes is beyond what any of the servers takes.
const mostMessageBytes = 1 << 30

// readConnection reads the type and what belongs to it.
func (r *reader) readConnection(entry *object, broker *Broker) {
	r.readType(entry, broker)
	entry.secret("url", &broker.URL)
	entry.text("project", &broker.Project)
	entry.text("endpoint", &broker.Endpoint)
	entry.integer("compression", &broker.Compression, math.MaxInt32)
	entry.boolean("create_destinations", &broker.CreateDestinations)
	entry.integer("max_message_bytes", &broker.MaxMessageBytes, mostMessageBytes)
	r.readTLS(entry, &broker.TLS)
	r.readRedis(entry, &broker.Redis)
	entry.readRabbitMQ(&broker.RabbitMQ)
	entry.readNATS(&broker.NATS)
	r.readKafka(entry, &broker.Kafka)
	entry.readWebhook(&broker.Webhook)
	if f := entry.get("options"); f != nil {
		broker.Options = r.readOptions(f)
	}

	if broker.Type == "" { // reported
		return
	}
	r.refuseOthers(entry, broker)
	switch broker.Type {
	case TypeRedis:
		r.checkRedis(entry, broker)
	case TypePubSub:
		r.require(entry, "project", "the id of a Google Cloud project")
	case TypeRabbitMQ:
		r.require(entry, "url", "amqp://user:password@host:5672/vhost")
		r.checkScheme(entry, broker.URL, "amqp://", "amqps://")
		r.checkURL(entry, "url", broker.URL)
		r.checkTLS(entry, broker.URL, "amqps://")
	case TypeNATS:
		r.require(entry, "url", "nats://user:password@host:4222")
		r.checkScheme(entry, broker.URL, "nats://", "tls://", "ws://", "wss://") // of several servers, maybe, which is no URL
		r.checkCreated(entry, "stream", broker.CreateDestinations)
	case TypeKafka:
		r.checkKafka(entry, broker)
	case TypeWebhook:
		r.checkWebhook(entry, broker)
	}
}

// readType reads the type of a broker; it remains empty where there is none, or an unknown one.
func (r *reader) readType(entry *object, broker *Broker) {
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
}

// refuseOthers refuses the settings of a connection that the broker's type does not take. Nobody is
// told to use one of them.
func (r *reader) refuseOthers(entry *object, broker *Broker) {
	takes, builtIn := connectionKeys[broker.Type]
	if !builtIn {
		takes = registeredKeys
	}
	others := func(name string) bool {
		return slices.Contains(allConnectionKeys, name) && !slices.Contains(takes, name)
	}
	entry.ignored = others
	for _, f := range entry.fields {
		if others(f.name) {
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
	u, err := url.Parse(secret.Reveal())
	if err == nil && u.Port() != "" {
		var n uint64
		if n, err = strconv.ParseUint(u.Port(), 10, 16); n == 0 {
			err = strconv.ErrRange
		}
	}
	if err != nil { // whose text would quote the password
		r.rejectf(f, "cannot be read as a URL: check the port, and write special characters in the password as %%40 and the like")
	}
}

// checkScheme looks at how a URL begins; the rest is for the client to judge.
func (r *reader) checkScheme(entry *object, secret Secret, schemes ...string) {
	r.checkSchemeAt(entry.find("url"), secret, schemes...)
}

// checkSchemeAt checks a URL that stands in a field, or in its list.
func (r *reader) checkSchemeAt(f *field, secret Secret, schemes ...string) {
	known := func(scheme string) bool { return strings.HasPrefix(secret.Reveal(), scheme) }
	if f != nil && !f.bad && !slices.ContainsFunc(schemes, known) {
		r.rejectf(f, "must begin with %s", either(schemes))
	}
}

func (r *reader) require(entry *object, name, example string) {
	if !entry.has(name) {
		r.problemf(entry.at, entry.path, "%s is missing: use %s", name, example)
	}
}
