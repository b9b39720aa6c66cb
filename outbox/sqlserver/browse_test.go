package sqlserver

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
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

// A list touches an index by its name, backwards and within bounds, and then single rows. What
// people read takes no lock that outlasts the read, and texts of rows are not read dirty: error
// 7886 would be the answer where one is being changed.
func TestBrowseTexts(t *testing.T) {
	t.Parallel()
	store, err := New(nil, "outbox_messages")
	require.NoError(t, err)
	hinted := regexp.MustCompile(`(?:FROM|JOIN) outbox_messages(?:_key_blocks|_audit)?(?: AS \w+)? WITH \(((?:[^()]|\(\w+\))*)\)`)
	passing := "READCOMMITTEDLOCK, READPAST, ROWLOCK"
	index := func(name, rest string) string { return "INDEX(outbox_messages_" + name + "), FORCESEEK, " + rest }
	tested, finished, open := "FORCESEEK, "+passing, index("finished", passing), index("open", passing)
	texts := []string{}
	for name, want := range map[string][]string{
		"list_published":     {finished, finished, tested},
		"list_abandoned":     {finished, finished, tested},
		"list_failed":        {index("failing", passing), tested},
		"list_processing":    {open, tested},
		"list_pending":       {open, index("deferred", passing), tested},
		"states":             {tested, index("deferred_key", "NOLOCK"), tested, index("blocks_key", passing), "FORCESEEK, NOLOCK"},
		"key_heads":          {open},
		"message":            {index("once", "ROWLOCK")},
		"key_blocks":         {index("blocks_wake", "NOLOCK"), "FORCESEEK, NOLOCK"},
		"entries":            {index("blocks_wake", "NOLOCK"), index("blocks_wake", "NOLOCK")},
		"stranded":           {index("open", passing), index("deferred", passing), tested},
		"errors_of":          {tested},
		"deferred_followers": {index("deferred_key", "NOLOCK")},
		"failed_keys":        {index("failing", passing), tested},
		"followers":          {index("deferred_key", "NOLOCK"), index("open", "NOLOCK")},
		"brokers":            {"INDEX(outbox_messages_open), NOLOCK", "INDEX(outbox_messages_deferred_key), NOLOCK", "INDEX(outbox_messages_finished), NOLOCK"},
		"overview": {
			index("open", "NOLOCK"), index("deferred_key", "NOLOCK"), "FORCESEEK, NOLOCK", index("failing", "NOLOCK"), "FORCESEEK, NOLOCK", index("open", "NOLOCK"),
			index("finished", "NOLOCK"), index("finished", "NOLOCK"), index("finished", "NOLOCK"), index("failing", passing), finished, finished,
		},
		"beside": {index("open", "NOLOCK"), "FORCESEEK, NOLOCK", index("deferred", "NOLOCK"), "FORCESEEK, NOLOCK"},
		"audit":  {tested},
	} {
		text := store.Text(name)
		texts = append(texts, text)
		var found []string
		for _, match := range hinted.FindAllStringSubmatch(text, -1) {
			found = append(found, match[1])
		}
		assert.Equal(t, want, found, name)
		assert.NotContains(t, text, "UPDLOCK")
		assert.Equal(t, len(want), strings.Count(text, " outbox_messages ")+strings.Count(text, " outbox_messages_key_blocks ")+strings.Count(text, " outbox_messages_audit "), name)
		if name != "message" {
			assert.NotRegexp(t, `m\.(payload|headers)\b[^)]`, text, "payloads are read for one message only")
		}
		if strings.HasPrefix(name, "list_") {
			assert.Equal(t, 1, strings.Count(text, "m.last_error\n"))
			inOrder(t, text, "SELECT TOP (@scan + 1)", "SELECT TOP (@limit + 2)", "s.place >= @scan", "ORDER BY s.place")
		}
	}
	inOrder(t, store.Text("key_blocks"), "SELECT TOP (@limit)", "g.wake_at IS NOT NULL", "ORDER BY CASE WHEN w.wake_at = '9999-12-31'")
	inOrder(t, store.Text("followers"), "AS deferred_part", "AS behind")
	assert.Equal(t, 7, strings.Count(strings.Join(texts, ""), "(10), (11)) AS shards"))
	assert.Equal(t, 12, outbox.Classes*outbox.Shards)
	assert.Equal(t, 2, strings.Count(store.Text("followers"), ".shard = f.shard AND"))
	assert.Contains(t, store.Text("message"), "AS payload_bytes")
}
