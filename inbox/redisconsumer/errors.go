package redisconsumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/inbox/internal/session"
	"github.com/gorm-fanout/fanout/internal/discreet"
	"github.com/gorm-fanout/fanout/internal/failure"
)

const needs = "the user needs XREADGROUP, XGROUP, XACK, XCLAIM, XPENDING, XRANGE, XINFO, EXISTS, TIME, EVALSHA and EVAL on the stream and its backfill " +
	"(or see WithoutBackfill), and XADD on that of the dead letters"

// A rule says what an error of the server means.
type rule struct {
	prefix string
	// settled errors do not pass by themselves: at the start they end [Consumer.Run].
	settled bool
	// narrow errors are about a stream or a command; others about the server.
	narrow bool
	advice string
}

// rules for errors by how they begin.
var rules = []rule{
	{"NOAUTH", true, false, "the client needs a user and a password"},
	{"WRONGPASS", true, false, "check user and password"},
	{"ERR AUTH", true, false, "check user and password"},
	{"ERR invalid password", true, false, "check user and password"},
	{"ERR DB index", true, false, "check the number of the database"},
	{"ERR unknown command", true, true, "use Redis 6.2 or later, and a proxy, if any, that knows streams and scripts"},
	{"ERR Unknown Redis command", true, true, "use Redis 6.2 or later"}, // within a script
	{"ERR unknown subcommand", true, true, "use Redis 6.2 or later"},
	{"NOPERM", true, true, needs},
	{"ERR The user executing the script", true, true, needs}, // Redis 7, within a script
	{"WRONGTYPE", true, true, "the key holds something else than a stream: rename the stream or the key"},
	{"CROSSSLOT", true, true, "the client does not know that this is a cluster: use a cluster client"},
	{"OOM", false, false, "raise maxmemory, or trim streams"},
	{"READONLY", false, false, "this is a replica; connect to the primary, by Sentinel where there is a failover"},
	{"LOADING", false, false, "the server is starting; this passes by itself"},
	{"MASTERDOWN", false, false, "the replica has lost its primary; connect to the primary"},
	{"CLUSTERDOWN", false, false, "check CLUSTER INFO"},
	{"TRYAGAIN", false, true, "slots are being moved; this passes by itself"},
	{"MISCONF", false, false, "the server cannot save to disk; see its log"},
	{"NOREPLICAS", false, false, "too few replicas are connected (min-replicas-to-write)"},
	{"BUSY", false, false, "another script runs too long; SCRIPT KILL ends it"},
	{"ERR max number of clients", false, false, "raise maxclients"},
	{"UNBLOCKED", false, true, "the stream was deleted, or moved to another node"},
	{"NOGROUP", false, true, "the stream or its group was deleted, by DEL, FLUSHALL or XGROUP DESTROY"},
	{"MOVED", false, true, "use a cluster client (which sees this only while slots move)"},
	{"ASK", false, true, "use a cluster client (which sees this only while slots move)"},
}

// wrapper is what servers put around an error inside a script.
var wrapper = regexp.MustCompile(`^(ERR Error running script \(call to f_[0-9a-f]+\): )?@user_script: ?\d+: -?`)

// said is the text of an error of the server, without what a script puts around it.
func said(err error) (text string, ok bool) {
	var answer redis.Error
	if !errors.As(err, &answer) || errors.Is(err, redis.Nil) {
		return "", false
	}
	return wrapper.ReplaceAllString(answer.Error(), ""), true
}

// ruleFor finds what is known of an error.
func ruleFor(err error) (rule, bool) {
	text, ok := said(err)
	if !ok {
		return rule{}, false
	}
	for _, r := range rules {
		if text == r.prefix || strings.HasPrefix(text, r.prefix+" ") {
			return r, true
		}
	}
	return rule{}, false
}

func isNoGroup(err error) bool {
	r, _ := ruleFor(err)
	return r.prefix == "NOGROUP" || r.prefix == "UNBLOCKED"
}

// explained says what was tried, on which stream, and what can be done.
func explained(what, stream string, err error) error {
	if plain := discreet.Text(err.Error()); plain != err.Error() {
		err = errors.New(plain) // it had repeated the password, which must not get into logs
	}
	if r, known := ruleFor(err); known {
		return failure.Advise(fmt.Errorf("redisconsumer: %s %q: %w", what, stream, err), r.advice)
	}
	switch {
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return failure.Advise(fmt.Errorf("redisconsumer: %s %q: %w", what, stream, err), "all connections are busy; raise PoolSize: each stream takes one for reading")
	case errors.Is(err, redis.ErrClosed):
		return failure.Advise(fmt.Errorf("redisconsumer: %s %q: %w", what, stream, err), "the client was closed before the consumer had stopped")
	}
	return fmt.Errorf("redisconsumer: %s %q: %w", what, stream, err)
}

// outages logs each outage when it begins, when the class of its cause changes, and when it is
// over. A connection that breaks, and a next one that does not, is none.
type outages struct {
	log     *slog.Logger
	sharded bool

	mu    sync.Mutex
	known map[string]*outage // by what it is about
}

type outage struct {
	session.Outage

	since    time.Time // of the first failure, which need not be reported
	failures int
}

// scopes are what an outage can be about: the server that holds a stream, or one thing that is done
// with it.
func (o *outages) scopes(st *stream, what string) (server, narrow string) {
	if o.sharded {
		server = st.name
	}
	return server, st.name + " " + what
}

// begin notes that something has failed.
func (o *outages) begin(ctx context.Context, st *stream, what string, err error) {
	server, scope := o.scopes(st, what)
	_, answered := said(err)
	if r, known := ruleFor(err); !answered || known && !r.narrow {
		scope = server
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	one := o.known[scope]
	if one == nil {
		one = &outage{Outage: session.Outage{Log: o.log.With("stream", st.name)}, since: time.Now()}
		if o.known == nil {
			o.known = map[string]*outage{}
		}
		o.known[scope] = one
	}
	if one.failures++; answered || one.failures > 1 {
		one.Failed(ctx, explained(what, st.name, err))
	}
}

// end notes that something has succeeded that was begun then. What was begun before an outage says
// nothing about its end.
func (o *outages) end(ctx context.Context, st *stream, what string, begun time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.known) == 0 {
		return
	}
	server, narrow := o.scopes(st, what)
	for _, scope := range []string{server, narrow} {
		if one := o.known[scope]; one != nil && !begun.Before(one.since) {
			delete(o.known, scope)
			one.Over(ctx)
		}
	}
}
