package redisstreams

import (
	"cmp"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Timeouts of [Open], where the URL names no others. All are bounded further by the context of the
// call.
const (
	dialTimeout  = 3 * time.Second
	readTimeout  = 10 * time.Second // a script call waits for other scripts, a rewrite of the append-only file, a fork
	writeTimeout = 10 * time.Second
)

// errURL says nothing about the URL it got: a parser's message would quote it, and with it the
// password. What fails to parse is often the password itself, unescaped.
var errURL = errors.New("redisstreams: open: the URL is not understood; write redis://user:password@host:port/database, " +
	"or rediss:// for TLS, and escape special characters in the password (@ is %40, / is %2F, # is %23)")

// Open returns a broker for one server, with connections of its own that Close closes. It does not
// connect yet: use Ping to find out. For Sentinel and Cluster build the client yourself and use
// [New].
//
// The URL is redis://user:password@host:port/database, or rediss:// for TLS; go-redis documents its
// further parameters (redis.ParseURL), such as pool_size and read_timeout. No part of it appears in
// an error. Client retries are always off: the processor retries.
func Open(url string, opts ...Option) (*Broker, error) {
	settings, err := redis.ParseURL(url)
	if err != nil {
		return nil, errURL
	}
	settings.MaxRetries = -1
	settings.DialerRetries = 1
	settings.ContextTimeoutEnabled = true
	settings.DialTimeout = cmp.Or(settings.DialTimeout, dialTimeout)
	settings.ReadTimeout = cmp.Or(settings.ReadTimeout, readTimeout)
	settings.WriteTimeout = cmp.Or(settings.WriteTimeout, writeTimeout)
	// Hand-over of connections during maintenance moves calls to other connections behind our back;
	// a lost connection is handled anyway.
	settings.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

	o := defaults()
	for _, opt := range opts {
		opt(&o)
	}
	if o.tls != nil {
		if settings.TLSConfig == nil {
			return nil, errors.New("redisstreams: open: WithTLS needs a URL that begins with rediss://")
		}
		name := settings.TLSConfig.ServerName
		settings.TLSConfig = o.tls.Clone()
		settings.TLSConfig.ServerName = cmp.Or(settings.TLSConfig.ServerName, name)
	}
	if settings.ReadTimeout > 0 { // negative means none
		settings.ReadTimeout += o.replicaTimeout // WAIT takes that long before it answers
	}

	b := New(redis.NewClient(settings), opts...)
	b.owned = true
	return b, nil
}
