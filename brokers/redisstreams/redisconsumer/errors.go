package redisconsumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/internal/discreet"
	"github.com/gorm-fanout/fanout/internal/redisreply"
)

const needs = "the user needs XREADGROUP, XGROUP, XACK, XCLAIM, XPENDING, XRANGE, XINFO, EXISTS, TIME, EVALSHA and EVAL on the stream and its backfill " +
	"(or see WithoutBackfill), and XADD on that of the dead letters"

func isNoGroup(err error) bool {
	m, _ := redisreply.Of(err)
	return m.Prefix == "NOGROUP" || m.Prefix == "UNBLOCKED"
}

// explained says what was tried, on which stream, and what can be done.
func explained(what, stream string, err error) error {
	if plain := discreet.Text(err.Error()); plain != err.Error() {
		err = errors.New(plain) // it had repeated the password, which must not get into logs
	}
	if m, known := redisreply.Of(err); known {
		return adapter.Advise(fmt.Errorf("redisconsumer: %s %q: %w", what, stream, err), cmp.Or(m.Advice, needs))
	}
	switch {
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return adapter.Advise(fmt.Errorf("redisconsumer: %s %q: %w", what, stream, err), "all connections are busy; raise PoolSize: each stream takes one for reading")
	case errors.Is(err, redis.ErrClosed):
		return adapter.Advise(fmt.Errorf("redisconsumer: %s %q: %w", what, stream, err), "the client was closed before the consumer had stopped")
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
	_, answered := redisreply.Text(err)
	if m, known := redisreply.Of(err); !answered || known && m.About == redisreply.Server {
		part = server
	}
	c.outages.Failed(ctx, part, answered, explained(what, st.name, err), "stream", st.name)
}

// succeeded notes that something has succeeded that was begun then.
func (c *Consumer) succeeded(ctx context.Context, st *stream, what string, begun time.Time) {
	server, narrow := c.parts(st, what)
	c.outages.Over(ctx, begun, server, narrow)
}
