package redisstreams

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Timeouts of [Connect], where the URL names no others. All are bounded further by the context of the
// call.
const (
	dialTimeout  = 3 * time.Second
	readTimeout  = 10 * time.Second // a script call waits for other scripts, a rewrite of the append-only file, a fork
	writeTimeout = 10 * time.Second
)

// Open returns a broker with connections of its own that Close closes. It does not connect yet: use
// Ping to find out. No part of a URL but its host appears in an error.
func Open(settings Settings) (*Broker, error) {
	client, err := Connect(settings)
	if err != nil {
		return nil, err
	}
	b := New(client, settings)
	b.owned = true
	return b, nil
}

// Connect returns a client with the settings that a broker and a consumer of Redis should have: it
// repeats no command and no dial by itself, since processors and consumers do, with fewer duplicates;
// it keeps to the context of a call; and a server that is silent is given up after 10 s. It does not
// connect yet. Of the settings, the servers, TLSConfig and the replicas matter. The caller closes the
// client.
func Connect(servers Settings) (redis.UniversalClient, error) {
	settings, addresses, sentinel, err := servers.read()
	if err != nil {
		return nil, err
	}
	several := servers.Master != "" || servers.Cluster
	if several && settings.TLSConfig != nil {
		settings.TLSConfig.ServerName = "" // each server's own
	}
	if servers.TLSConfig != nil {
		if settings.TLSConfig == nil {
			return nil, errors.New("redisstreams: open: TLSConfig needs a URL that begins with rediss://")
		}
		name := settings.TLSConfig.ServerName
		settings.TLSConfig = servers.TLSConfig.Clone()
		settings.TLSConfig.ServerName = cmp.Or(settings.TLSConfig.ServerName, name)
	}
	settings.MaxRetries = -1
	settings.DialerRetries = 1
	settings.ContextTimeoutEnabled = true
	settings.DialTimeout = cmp.Or(settings.DialTimeout, dialTimeout)
	settings.ReadTimeout = cmp.Or(settings.ReadTimeout, readTimeout)
	settings.WriteTimeout = cmp.Or(settings.WriteTimeout, writeTimeout)
	if settings.ReadTimeout > 0 { // negative means none
		settings.ReadTimeout += servers.options().replicaTimeout // WAIT takes that long before it answers
	}
	// Hand-over of connections during maintenance moves calls to other connections behind our back;
	// a lost connection is handled anyway.
	settings.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if !several {
		return redis.NewClient(settings), nil
	}
	universal := many(settings, addresses)
	universal.MasterName, universal.IsClusterMode = servers.Master, servers.Cluster
	universal.SentinelUsername = sentinel.Get(sentinelUser)
	universal.SentinelPassword = sentinel.Get(sentinelPassword)
	return redis.NewUniversalClient(universal), nil
}

// Parameters of a URL that go-redis does not read by itself.
const (
	sentinelUser     = "sentinel_username"
	sentinelPassword = "sentinel_password"
)

// read reads the URLs: the settings of the first one, the addresses of all, and the parameters for
// Sentinels.
func (s *Settings) read() (settings *redis.Options, addresses []string, sentinel url.Values, err error) {
	urls := s.urls()
	switch {
	case len(urls) == 0:
		return nil, nil, nil, errors.New("redisstreams: open: no URL is given")
	case s.Master != "" && s.Cluster:
		return nil, nil, nil, errors.New("redisstreams: open: Master and Cluster are both given: Sentinels watch servers that are not in a cluster, remove one of them")
	case s.Master == "" && !s.Cluster && len(urls) > 1:
		return nil, nil, nil, fmt.Errorf("redisstreams: open: %d URLs are given: say Master for Sentinels, or Cluster", len(urls))
	}
	for n, text := range urls {
		parsed, parameters, err := readURL(text.Reveal(), s.Master != "")
		if err != nil {
			return nil, nil, nil, err
		}
		addresses = append(addresses, parsed.Addr)
		if n == 0 {
			settings, sentinel = parsed, parameters
		}
		if err := s.fits(settings, parsed, parameters); err != nil {
			return nil, nil, nil, err
		}
	}
	return settings, addresses, sentinel, nil
}

// fits says why what a URL says does not go with the first one, or with what the servers are.
func (s *Settings) fits(first, parsed *redis.Options, sentinel url.Values) error {
	var wrong string
	switch {
	case parsed.Network == "unix" && (s.Master != "" || s.Cluster):
		return errors.New("redisstreams: open: a unix socket is one server: leave Master and Cluster out")
	case parsed.DB != 0 && s.Cluster:
		wrong = fmt.Sprintf("database %d, and a cluster has 0 alone", parsed.DB)
	case len(sentinel) > 0 && s.Master == "":
		wrong = sentinelUser + " or " + sentinelPassword + ", which do nothing without Master"
	case !same(first, parsed):
		wrong = fmt.Sprintf("another user, password, database or TLS than that of %s: the first one's hold for all", first.Addr)
	default:
		return nil
	}
	return fmt.Errorf("redisstreams: open: the URL of %s has %s", parsed.Addr, wrong)
}

// same reports whether a URL has what the first one has, or leaves it out.
func same(first, other *redis.Options) bool {
	return (other.Username == "" && other.Password == "" || other.Username == first.Username && other.Password == first.Password) &&
		(other.DB == 0 || other.DB == first.DB) && (other.TLSConfig != nil) == (first.TLSConfig != nil)
}

// errURL says nothing about the URL it got: a parser's message would quote it, and with it the
// password. What fails to parse is often the password itself, unescaped.
var errURL = errors.New("redisstreams: open: the URL is not understood; write redis://user:password@host:port/database, " +
	"or rediss:// for TLS, and escape special characters in the password (@ is %40, / is %2F, # is %23)")

// readURL reads a URL, of a Sentinel or not, and the parameters in it that are for Sentinels.
func readURL(text string, ofSentinel bool) (settings *redis.Options, sentinel url.Values, err error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, nil, errURL
	}
	sentinel = url.Values{}
	parameters := u.Query()
	for _, name := range []string{sentinelUser, sentinelPassword} {
		if parameters.Has(name) {
			sentinel[name] = parameters[name]
			parameters.Del(name)
		}
	}
	if len(sentinel) > 0 {
		u.RawQuery = parameters.Encode()
		text = u.String()
	}
	if settings, err = redis.ParseURL(text); err != nil {
		return nil, nil, errURL
	}
	if ofSentinel && settings.Network == "tcp" && u.Port() == "" {
		settings.Addr = net.JoinHostPort(cmp.Or(u.Hostname(), "localhost"), "26379")
	}
	return settings, sentinel, nil
}

// many are the settings of a client of several servers: all that a URL can say.
func many(o *redis.Options, addresses []string) *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs: addresses, ClientName: o.ClientName, DB: o.DB, Protocol: o.Protocol, Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig,
		MaxRetries: o.MaxRetries, MinRetryBackoff: o.MinRetryBackoff, MaxRetryBackoff: o.MaxRetryBackoff, DialTimeout: o.DialTimeout,
		DialerRetries: o.DialerRetries, DialerRetryTimeout: o.DialerRetryTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		ContextTimeoutEnabled: o.ContextTimeoutEnabled, PoolFIFO: o.PoolFIFO, PoolSize: o.PoolSize, MaxConcurrentDials: o.MaxConcurrentDials,
		PoolTimeout: o.PoolTimeout, MinIdleConns: o.MinIdleConns, MaxIdleConns: o.MaxIdleConns, MaxActiveConns: o.MaxActiveConns,
		ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime, ConnMaxLifetimeJitter: o.ConnMaxLifetimeJitter,
		MaintNotificationsConfig: o.MaintNotificationsConfig,
	}
}
