package redisstreams

import (
	"context"
	"crypto/tls"
	"slices"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

// defaultReplicaTimeout is how long replicas have to acknowledge, where the settings say nothing.
const defaultReplicaTimeout = time.Second

// Settings are those of one broker, in Go and in a configuration of type redis. The zero value of each
// is its default.
type Settings struct {
	// URL of one server: redis://user:password@host:port/database, rediss:// for TLS, or unix://; go-redis
	// documents its further parameters (redis.ParseURL), such as pool_size and read_timeout. The port is
	// 6379 by default. Required, or URLs.
	URL adapter.Secret `config:"url"`
	// URLs, in place of URL, are those of the Sentinels, with Master, or of some nodes of a cluster, with
	// Cluster. The first one has user, password, database and parameters; the others may repeat them.
	// They are those of Redis itself: sentinel_username and sentinel_password are parameters for
	// Sentinels that ask for a password of their own. The port of Sentinels is 26379 by default.
	URLs []adapter.Secret `config:"urls"`
	// Master is the name by which Sentinels know the primary. Default: URLs are not of Sentinels.
	Master string `config:"master"`
	// Cluster is true for Redis Cluster, also with one URL. Default: false.
	Cluster bool `config:"cluster"`
	// MaxLen trims each stream to so many entries as messages are added. Default: 0, streams grow without
	// bound. Entries that are trimmed before a consumer group has read them are lost for it: choose it
	// for the longest outage of a consumer.
	MaxLen int `config:"max_len"`
	// MaxAge trims each stream to the entries of so long, at least a second, as messages are added:
	// nothing is removed from a stream that gets none. The age is reckoned by the server's clock alone,
	// which also gives entries their ids. It needs Redis 6.2, and runs every message through the script,
	// because no other command can read the server's clock: about half of the speed. Redis
	// trims by length or age: with both, the age holds, and a configuration may not have both.
	MaxAge time.Duration `config:"max_age,min=1s"`
	// Exact trims to the entry, which costs far more; "approximate: false" in a configuration. Default:
	// whole nodes (MAXLEN ~, MINID ~), which keeps somewhat more.
	Exact bool `config:"approximate,not"`
	// Replicas is how many replicas of its server have to acknowledge each chunk before its messages
	// count as published (WAIT, on the same connection). Where fewer do, the broker is unavailable (on a
	// cluster the destination), no message loses an attempt, and all are sent again later: the stream
	// then holds them twice, once for the outage and not once per attempt, because after such a failure
	// nothing is added until enough replicas have caught up. Default: 0, the server's own word is enough.
	//
	// What is confirmed this way survives the loss of the primary if a replica that has it is promoted.
	// That is certain only where it is the number of all replicas that may be promoted; with fewer,
	// Sentinel and Cluster prefer the replica that is furthest, but do not promise it. Replicas
	// acknowledge what they hold in memory, not on disk. And a primary that is cut off goes on
	// confirming nothing, since its replicas no longer answer. An ACL user needs WAIT and PING too.
	Replicas int `config:"replicas.count"`
	// ReplicaTimeout is how long they have for that, at least a millisecond, and below the publish
	// timeout; the read timeout of a client given to [New] must be longer. Default: 1 s.
	ReplicaTimeout time.Duration `config:"replicas.timeout,min=1ms"`
	// BackfillBelow, -99 to 100, sends messages of a lower priority to a stream of their own, the
	// destination with ":backfill" at its end, so that consumers can read it when there is nothing
	// better to do, as redisconsumer does by itself. Default: nil, none. For the internal broker.
	//
	// A key keeps its order within each of the two streams; but consumers of two streams read them in any
	// order. Give the messages of a key priorities on one side where that matters.
	BackfillBelow *int `config:"backfill.below,min=-99,max=100"`

	// The settings below exist in Go alone.

	// MaxMessageBytes is a lower limit of the server's (proto-max-bulk-len), so that a payload above it
	// fails permanently and by itself instead of costing a connection. Default, and most:
	// [MaxMessageBytes].
	MaxMessageBytes int
	// Chunk is how many messages go in one round trip, and so at most in one transaction; at most
	// 1,000. Smaller chunks let other clients of the server in between, and leave fewer messages in doubt
	// when a connection breaks. Default: 500.
	Chunk int
	// TLSConfig is how TLS is talked, with URLs that begin with rediss://: an authority of one's own, a
	// client certificate. An empty ServerName means the URL's host. It does nothing for [New], whose
	// client has its own. It must not be changed afterwards.
	TLSConfig *tls.Config `json:"-" yaml:"-"`
}

// Type is the type redis of configurations. It is built into package fanout.
func Type() adapter.Type {
	return adapter.Type{Name: "redis", New: func() adapter.Settings { return new(Settings) }}
}

// Open implements [adapter.Settings] by the function [Open].
func (s *Settings) Open(context.Context, string) (brokers.Broker, error) {
	b, err := Open(*s)
	if err != nil {
		return nil, err // and not a broker that is a nil *Broker
	}
	return b, nil
}

// Check implements [adapter.Settings].
func (s *Settings) Check(section adapter.Section) {
	s.checkServers(section)
	if section.Has("max_len") {
		section.Removef("max_age", "does not go with max_len: Redis trims a stream by one of them; remove the other")
	}
	if !section.Has("max_len") && !section.Has("max_age") {
		section.Removef("approximate", "does nothing without max_len or max_age")
	}
	if section.Has("replicas") && section.Require("replicas.count", "1, or however many replicas have to acknowledge a message") &&
		section.Sound("replicas.count", "replicas.timeout") {
		timeout := (&Settings{Replicas: 1, ReplicaTimeout: s.ReplicaTimeout}).options().replicaTimeout
		if publish := section.PublishTimeout(); publish > 0 && timeout >= publish {
			section.Rejectf("replicas.timeout", "is %s, but must be below publish_timeout (%s): a publish waits for the replicas", timeout, publish)
		}
	}
	if section.Has("backfill") && section.Require("backfill.below", "0, or the priority below which messages go to the backfill") && !section.Internal() {
		section.Removef("backfill", "is for the internal broker alone: consumers outside know one stream for each destination; remove it")
	}
	section.Place(adapter.Place{Servers: s.servers(), Inside: s.Master, Elsewhere: "server or database"})
}

var schemes = []string{"redis://", "rediss://", "unix://"}

// checkServers checks which servers are named, and how.
func (s *Settings) checkServers(section adapter.Section) {
	switch {
	case !section.Has("urls"):
		if section.Require("url", "redis://user:password@host:6379/0") && section.Sound("url") {
			adapter.CheckURL(section, "url", s.URL, schemes...)
		}
	case section.Has("url"):
		section.Removef("urls", "does not go with url: remove one of them")
	case !section.Sound("urls"):
	case len(s.URLs) == 0:
		section.Rejectf("urls", "is empty: name Sentinels, with master, or nodes of a cluster, with cluster: true")
	case !section.Has("master") && !section.Has("cluster"):
		section.Rejectf("urls", "needs master, the name by which Sentinels know the primary, or cluster: true")
	default:
		for _, text := range s.URLs {
			adapter.CheckURL(section, "urls", text, schemes[:2]...)
		}
	}
	if s.Master != "" && s.Cluster {
		section.Removef("master", "does not go with cluster: Sentinels watch servers that are not in a cluster; remove one of them")
	}
}

// servers are those that the settings name.
func (s *Settings) servers() (servers []string) {
	port := "6379"
	if s.Master != "" {
		port = "26379"
	}
	for _, text := range s.urls() {
		servers = append(servers, adapter.ServerOf(text, port, "0", "db"))
	}
	return servers
}

// urls are those that are given, by one of the two ways.
func (s *Settings) urls() []adapter.Secret {
	given := func(text adapter.Secret) bool { return strings.TrimSpace(text.Reveal()) != "" }
	if len(s.URLs) == 0 && given(s.URL) {
		return []adapter.Secret{s.URL}
	}
	return slices.Clone(s.URLs)
}
