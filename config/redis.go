package config

import (
	"math"
	"strconv"
	"time"
)

// Redis is what a broker of type redis takes beside its URL; package redisstreams has the options
// of the same names.
type Redis struct {
	// URLs of Sentinels, with Master, or of some nodes of a cluster, with Cluster; in place of the
	// broker's URL.
	URLs []Secret
	// Master is the name by which Sentinels know the primary.
	Master string
	// Cluster is true for Redis Cluster.
	Cluster bool
	// MaxLen trims each stream to so many entries as messages are added. Default 0: streams grow.
	MaxLen int
	// MaxAge trims each stream to the entries of so long, by the server's clock. At least 1 s. Not
	// together with MaxLen.
	MaxAge time.Duration
	// Exact trims to the entry, which costs far more; "approximate: false" in the file. Default:
	// whole nodes.
	Exact bool
	// Replicas have to acknowledge each message before it counts as published. Default 0: none.
	Replicas int
	// ReplicaTimeout is how long they have for that. Default: DefaultReplicaTimeout where there are
	// Replicas.
	ReplicaTimeout time.Duration
	// Backfill sends messages with a priority below BackfillBelow to streams of their own. Internal
	// broker only.
	Backfill      bool
	BackfillBelow int
}

// DefaultReplicaTimeout is how long replicas have to acknowledge, where the configuration says
// nothing.
const DefaultReplicaTimeout = time.Second

// The ends of what is a limit for the backfill: below the least priority there is nothing, and all
// but the highest is the most.
const (
	leastBackfill = -99
	mostBackfill  = 100
)

// readRedis reads the keys of brokers of type redis, also of others, which then refuse them.
func (r *reader) readRedis(entry *object, redis *Redis) {
	for _, item := range entry.list("urls") {
		redis.URLs = append(redis.URLs, Secret(item.text))
	}
	entry.text("master", &redis.Master)
	entry.boolean("cluster", &redis.Cluster)
	entry.integer("max_len", &redis.MaxLen, math.MaxInt32)
	entry.duration("max_age", &redis.MaxAge, time.Second)
	approximate := true
	entry.boolean("approximate", &approximate)
	redis.Exact = !approximate

	replicas := entry.object("replicas")
	replicas.integer("count", &redis.Replicas, math.MaxInt32)
	replicas.duration("timeout", &redis.ReplicaTimeout, time.Millisecond)
	replicas.close()
	if entry.has("replicas") && !replicas.broken && !replicas.has("count") {
		r.problemf(replicas.at, replicas.path, "count is missing: how many replicas have to acknowledge a message, such as 1")
	}
	if redis.Replicas > 0 && redis.ReplicaTimeout == 0 {
		redis.ReplicaTimeout = DefaultReplicaTimeout
	}

	backfill := entry.object("backfill")
	redis.Backfill = backfill.limit("below", &redis.BackfillBelow, leastBackfill, mostBackfill)
	backfill.close()
	if entry.has("backfill") && !backfill.broken && !backfill.has("below") {
		r.problemf(backfill.at, backfill.path, "below is missing: the priority below which messages go to the backfill, such as 0")
	}
}

// limit reads a whole number that may be negative, and reports whether there was one.
func (o *object) limit(name string, dst *int, least, most int) bool {
	f := o.get(name)
	if f == nil || !o.scalar(f) {
		return false
	}
	n, err := strconv.Atoi(f.text)
	if err != nil || !wholeNumber.MatchString(f.text) || !o.looksLike(f, integerTypes...) {
		o.rejectf(f, "must be a whole number in plain digits, without quotes")
		return false
	}
	if n < least || n > most {
		o.rejectf(f, "is %s: use %d to %d", shown(f.source), least, most)
		return false
	}
	*dst = n
	return true
}

// checkRedis compares the keys of a broker of type redis with each other.
func (r *reader) checkRedis(entry *object, broker *Broker) {
	r.checkRedisServers(entry, broker)
	if f := entry.find("max_age"); f != nil && entry.has("max_len") {
		r.problemf(f.key, f.path, "does not go with max_len: Redis trims a stream by one of them; remove the other")
	}
	if f := entry.find("approximate"); f != nil && !entry.has("max_len") && !entry.has("max_age") {
		r.problemf(f.key, f.path, "does nothing without max_len or max_age")
	}
}

// checkReplicas compares what replicas have time for with what a publish has.
func (r *reader) checkReplicas(cfg *Config, section *outboxSection, target *target) {
	f := target.find("replicas")
	if f == nil || f.bad || !target.sound("publish_timeout") || !section.sound("publish_timeout") {
		return
	}
	timeout, publish := cfg.Brokers[target.name].Redis.ReplicaTimeout, cfg.Policy(target.name).PublishTimeout
	if timeout < publish {
		return
	}
	r.problemf(f.at, f.path+".timeout", "is %s, but must be below publish_timeout (%s): a publish waits for the replicas", short(timeout), short(publish))
}

// checkBackfill refuses a backfill where consumers do not know of it.
func (r *reader) checkBackfill(cfg *Config, section *outboxSection, target *target) {
	if f := target.find("backfill"); f != nil && !f.bad && section.sound("internal_broker") && target.name != cfg.Outbox.InternalBroker {
		r.problemf(f.key, f.path, "is for the internal broker alone: consumers outside know one stream for each destination; remove it")
	}
}

// redisSchemes are those of its URLs.
var redisSchemes = []string{"redis://", "rediss://", "unix://"}

// checkRedisServers checks which servers are named, and how.
func (r *reader) checkRedisServers(entry *object, broker *Broker) {
	urls, settings := entry.find("urls"), broker.Redis
	switch f := entry.find("url"); {
	case urls == nil:
		r.require(entry, "url", "redis://user:password@host:6379/0")
		r.checkScheme(entry, broker.URL, redisSchemes...)
		r.checkURL(entry, "url", broker.URL)
	case f != nil:
		r.problemf(urls.key, urls.path, "does not go with url: remove one of them")
	case urls.bad:
	case len(settings.URLs) == 0:
		r.rejectf(urls, "is empty: name Sentinels, with master, or nodes of a cluster, with cluster: true")
	case settings.Master == "" && !settings.Cluster && !entry.has("master") && !entry.has("cluster"):
		r.rejectf(urls, "needs master, the name by which Sentinels know the primary, or cluster: true")
	default:
		for _, secret := range settings.URLs {
			r.checkSchemeAt(urls, secret, redisSchemes[:2]...)
			r.checkURL(entry, "urls", secret)
		}
	}
	if f := entry.find("master"); f != nil && settings.Master != "" && settings.Cluster {
		r.problemf(f.key, f.path, "does not go with cluster: Sentinels watch servers that are not in a cluster; remove one of them")
	}
}
