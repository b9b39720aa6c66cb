package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox"
)

// Of a broker whose rows are not kept, the commands say so in place of nothing: no operator takes a delivered message
// for one that was lost.
func TestNotKept(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		s.consumers()
		file, err := os.ReadFile(s.config)
		require.NoError(t, err)
		kept := strings.Replace(string(file), `default: {type: redis,`, `default: {type: redis, keep: false,`, 1)
		require.NotEqual(t, string(file), kept)
		s.write(1, "Ordering.OrderPlaced.v1", "order-1", "default", "partner")
		s.complete("default", func(string) *outbox.LastError { return nil })
		require.NoError(t, os.WriteFile(s.config, []byte(kept), 0o600))

		before := s.does("messages", "replay", "--broker", "default", "--id", messageID(1), "--dry-run", "--json")
		assert.Contains(t, before, `"matched":1`, "what was published before is there, and can be named")
		s.exec("DELETE FROM outbox_messages WHERE status = 'published'")
		out := s.does("trace", messageID(1))
		assert.Contains(t, out, "default: no row")
		assert.Contains(t, out, "after which its row is not kept (keep: false)")
		code, _, stderr := s.run("trace", messageID(2))
		assert.Equal(t, 1, code)
		assert.Contains(t, stderr, "or it was delivered and its rows not kept (keep: false, of broker default)")
		for args, said := range map[string]bool{
			"messages show " + messageID(2):                           true,
			"messages list --id " + messageID(2):                      true,
			"messages list --id " + messageID(2) + "," + messageID(3): true,
			"messages list --key order-2":                             true,
			"messages list --type Ordering.OrderPaid.v1":              true,
			"messages list --key order-2 --broker partner":            false,
			"messages replay --broker default --id " + messageID(2):   true,
			"messages replay --broker partner --id " + messageID(2):   false,
		} {
			code, _, stderr = s.run(strings.Fields(args)...)
			assert.Equal(t, exitFailed, code, args)
			assert.Equal(t, said, strings.Contains(stderr, "or it was delivered and its rows not kept (keep: false, of broker default)"), "%s: %s", args, stderr)
		}
		code, _, stderr = s.run("messages", "replay", "--broker", "default", "--since", "2h", "--yes")
		assert.Equal(t, 2, code)
		assert.Contains(t, stderr, `the rows of broker "default" are not kept after their delivery`)

		out = s.does("status")
		assert.Contains(t, out, "not kept")
		assert.Contains(t, out, "consumer billing: whether it is behind is not known, as the rows of broker default are not kept")
		var status map[string]api.Database[api.Broker]
		require.NoError(t, json.Unmarshal([]byte(s.does("status", "--json")), &status))
		assert.True(t, status["main"].Brokers["default"].NotKept)
		assert.False(t, status["main"].Brokers["partner"].NotKept)
	})
}
