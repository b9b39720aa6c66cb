package wakeup

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/internal/dbtable"
)

// What is read back is what was said, or that it is not known.
func TestNotification(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "1 default:3 partner:800 audit", Text([]WakeUp{{"default", SetOf(0, 1)}, {"partner", SetOf(11)}, {"audit", Unknown}}))
	assert.Equal(t, "1", Text(nil))
	rapid.Check(t, func(t *rapid.T) {
		wakeUps := rapid.SliceOf(rapid.Custom(func(t *rapid.T) WakeUp {
			return WakeUp{
				Broker: rapid.OneOf(rapid.StringMatching("[A-Za-z0-9][A-Za-z0-9_-]{0,62}"), rapid.String()).Draw(t, "broker"),
				Shards: Set(rapid.Uint32().Draw(t, "shards")),
			}
		})).Draw(t, "wakeUps")
		text := Text(wakeUps)
		require.LessOrEqual(t, len(text), longestNotification)
		_, probe := ParseProbe(text)
		require.False(t, probe)
		if read, ok := Parse(text); ok {
			require.Equal(t, wakeUps, read)
		} else {
			require.Equal(t, notificationVersion, text)
		}
	})
}

// What cannot be read stands for everything.
func TestParseOfOthers(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "1", "1 ", "2 default:3", "default:3", "1 default:", "1 default:x", "1 default:100000000", "1 a:1 :3", "1 a?:3", "hello"} {
		wakeUps, ok := Parse(text)
		assert.False(t, ok, text)
		assert.Empty(t, wakeUps, text)
	}
	rapid.Check(t, func(t *rapid.T) { _, _ = Parse(rapid.String().Draw(t, "text")) }) // no panic
}

// PostgreSQL cuts no name of a channel off: it refuses it.
func TestChannel(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "fanout:app.outbox_messages", Channel("app.outbox_messages"))
	long := strings.Repeat("s", 63) + "." + strings.Repeat("t", 48)
	require.NoError(t, dbtable.CheckName(long, "outbox_messages"))
	assert.Len(t, Channel(long), len("fanout:")+32)
	assert.NotEqual(t, Channel(long), Channel(long[1:]))
	assert.Len(t, Channel(long[:56]), 63)
}
