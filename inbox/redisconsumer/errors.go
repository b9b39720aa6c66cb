package redisconsumer

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

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

// parts are what an outage can be about: the server that holds a stream, or one thing that is done
// with it.
func (c *Consumer) parts(st *stream, what string) (server, narrow string) {
	if c.sharded {
		server = st.name
	}
	return server, st.name + " " + what
}

// failed notes that something has failed at the server.
func (c *Consumer) failed(ctx context.Context, st *stream, what string, err error) {
	server, part := c.parts(st, what)
	_, answered := said(err)
	if r, known := ruleFor(err); !answered || known && !r.narrow {
		part = server
	}
	c.outages.Failed(ctx, part, answered, explained(what, st.name, err), "stream", st.name)
}

// succeeded notes that something has succeeded that was begun then.
func (c *Consumer) succeeded(ctx context.Context, st *stream, what string, begun time.Time) {
	server, narrow := c.parts(st, what)
	c.outages.Over(ctx, begun, server, narrow)
}
