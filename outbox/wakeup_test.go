package outbox

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// What is read back is what was said, or that it is not known.
func TestNotification(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "1 default:3 partner:800 audit", Notification([]WakeUp{{"default", ShardSetOf(0, 1)}, {"partner", ShardSetOf(11)}, {"audit", UnknownShards}}))
	assert.Equal(t, "1", Notification(nil))
	rapid.Check(t, func(t *rapid.T) {
		wakeUps := rapid.SliceOf(rapid.Custom(func(t *rapid.T) WakeUp {
			return WakeUp{
				Broker: rapid.OneOf(rapid.StringMatching("[A-Za-z0-9][A-Za-z0-9_-]{0,62}"), rapid.String()).Draw(t, "broker"),
				Shards: ShardSet(rapid.Uint32().Draw(t, "shards")),
			}
		})).Draw(t, "wakeUps")
		text := Notification(wakeUps)
		require.LessOrEqual(t, len(text), longestNotification)
		_, probe := ParseProbe(text)
		require.False(t, probe)
		if read, ok := ParseNotification(text); ok {
			require.Equal(t, wakeUps, read)
		} else {
			require.Equal(t, notificationVersion, text)
		}
	})
}

// What cannot be read stands for everything.
func TestParseNotificationOfOthers(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "1", "1 ", "2 default:3", "default:3", "1 default:", "1 default:x", "1 default:100000000", "1 a:1 :3", "1 a?:3", "hello"} {
		wakeUps, ok := ParseNotification(text)
		assert.False(t, ok, text)
		assert.Empty(t, wakeUps, text)
	}
	rapid.Check(t, func(t *rapid.T) { _, _ = ParseNotification(rapid.String().Draw(t, "text")) }) // no panic
}

// PostgreSQL cuts no name of a channel off: it refuses it.
func TestChannel(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "fanout:app.outbox_messages", Channel("app.outbox_messages"))
	long := strings.Repeat("s", 63) + "." + strings.Repeat("t", 48)
	require.NoError(t, ValidateTable(long))
	assert.Len(t, Channel(long), len("fanout:")+32)
	assert.NotEqual(t, Channel(long), Channel(long[1:]))
	assert.Len(t, Channel(long[:56]), 63)
}
