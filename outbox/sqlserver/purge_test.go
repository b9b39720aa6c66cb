package sqlserver

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func granted(n int64) reply { return reply{sets: []set{count("fanout_granted", n)}} }

func TestExclusive(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for _, c := range []struct {
		name           string
		replies        []reply
		f              error
		ran, discarded bool
		err            error
		requests       int
	}{
		{name: "free", replies: []reply{granted(0), granted(0)}, ran: true, requests: 2},
		{name: "its error is the caller's", replies: []reply{granted(1), granted(0)}, f: boom, ran: true, err: boom, requests: 2},
		{name: "taken", replies: []reply{granted(-1)}, requests: 1},
		{name: "not known", replies: []reply{{err: boom}}, err: boom, discarded: true, requests: 1},
		{name: "no answer", replies: []reply{{}}, err: errIncomplete, discarded: true, requests: 1},
		{name: "cannot be given back", replies: []reply{granted(0), {err: boom}}, ran: true, discarded: true, requests: 2},
		{name: "is ours no more", replies: []reply{granted(0), granted(-999)}, ran: true, discarded: true, requests: 2},
	} {
		store, server := newFake(t, "outbox_messages", inTurn(c.replies...))
		called := false
		ran, err := store.Exclusive(t.Context(), "purge", func(context.Context) error { called = true; return c.f })
		assert.Equal(t, c.ran, ran, c.name)
		assert.Equal(t, c.ran, called, c.name)
		require.ErrorIs(t, err, c.err, c.name)
		assert.Equal(t, c.discarded, server.closed == 1, "%s: a connection that may hold the lock is closed", c.name)
		require.Len(t, server.requests, c.requests, c.name)
		for i, text := range []string{store.sql.exclusive, store.sql.release}[:c.requests] {
			assert.Equal(t, text, server.requests[i].text, c.name)
			assert.Equal(t, store.lockName("purge"), server.requests[i].args["lock"], c.name)
		}
	}
	store, _ := newFake(t, "outbox_messages", inTurn(granted(-999)))
	_, err := store.Exclusive(t.Context(), "purge", nil)
	require.ErrorContains(t, err, "sp_getapplock returned -999")
}

// The lock is given back whatever becomes of the caller.
func TestExclusiveLetsGo(t *testing.T) {
	t.Parallel()
	store, server := newFake(t, "outbox_messages", inTurn(granted(0), granted(0), granted(0), granted(0)))
	ctx, cancel := context.WithCancel(t.Context())
	ran, err := store.Exclusive(ctx, "purge", func(ctx context.Context) error { cancel(); return ctx.Err() })
	assert.True(t, ran)
	require.ErrorIs(t, err, context.Canceled)
	assert.Panics(t, func() {
		_, _ = store.Exclusive(t.Context(), "purge", func(context.Context) error { panic("boom") })
	})
	assert.Equal(t, []string{store.sql.exclusive, store.sql.release, store.sql.exclusive, store.sql.release}, server.texts())
	assert.Zero(t, server.closed)
	assert.Equal(t, 1, server.opened)
}

// The session that holds the lock is one connection, what runs under it needs another: a pool of
// one would wait for itself.
func TestExclusiveWithOneConnection(t *testing.T) {
	t.Parallel()
	store, server := newFake(t, "outbox_messages", inTurn())
	store.db.SetMaxOpenConns(1)
	_, err := store.Exclusive(t.Context(), "cleanup", nil)
	require.ErrorContains(t, err, "SetMaxOpenConns")
	require.ErrorContains(t, store.Check(t.Context()), "SetMaxOpenConns", "a relay asks when it starts")
	assert.Empty(t, server.requests)
}
