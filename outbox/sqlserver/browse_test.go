package sqlserver

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const messageID = "0197f0a2-7d1c-7c3b-a3a5-1c2d3e4f5a6b"

// A question of the dashboard ends in time, and its error names the time.
func TestBrowseInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, server := newFake(t, "outbox_messages", inTurn(reply{err: context.DeadlineExceeded}))
		answer := server.answer
		server.answer = func(r request) reply { time.Sleep(2 * browseTime); return answer(r) }
		_, err := store.Message(t.Context(), messageID)
		require.ErrorIs(t, err, errBrowseTime)
		require.ErrorContains(t, err, "the database did not answer within 5s")
		require.NoError(t, store.db.Close())
	})
}

// Lists and counts read no payloads, and what people read locks nothing: a read of a text that is
// being changed would fail with error 7886.
func TestBrowseTexts(t *testing.T) {
	t.Parallel()
	store, err := New(nil, "outbox_messages")
	require.NoError(t, err)
	for _, name := range []string{
		"list_published", "list_abandoned", "list_failed", "list_processing", "list_pending", "states", "key_heads", "key_blocks", "entries", "stranded",
		"errors_of", "deferred_followers", "failed_keys", "followers", "brokers", "overview", "beside", "audit",
	} {
		text := store.Text(name)
		require.NotEmpty(t, text, name)
		assert.NotContains(t, text, "UPDLOCK", name)
		assert.NotRegexp(t, `m\.(payload|headers)\b[^)]`, text, name)
		if strings.HasPrefix(name, "list_") {
			assert.Equal(t, 1, strings.Count(text, "m.last_error\n"), name)
			inOrder(t, text, "SELECT TOP (@scan + 1)", "SELECT TOP (@limit + 2)", "s.place >= @scan", "ORDER BY s.place")
		}
	}
}
