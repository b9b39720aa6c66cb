package outbox_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/outbox"
)

// Errors end with what can be done about them, which a long one keeps.
func TestLastErrorKeepsTheRemedy(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		fill := rapid.SampledFrom([]string{"x", "ü", "\xff", "☃"}).Draw(t, "fill")
		n := rapid.IntRange(0, 5000).Draw(t, "times")
		text := outbox.LastError{Class: "permanent", Message: "the broker says " + strings.Repeat(fill, n) + ": create the topic"}.Encode()
		var back outbox.LastError
		require.NoError(t, json.Unmarshal([]byte(text), &back))
		assert.True(t, strings.HasPrefix(back.Message, "the broker says "))
		assert.True(t, strings.HasSuffix(back.Message, ": create the topic"), "%s", back.Message)
		assert.LessOrEqual(t, len(back.Message), 2000)
		assert.True(t, utf8.ValidString(back.Message))
	})
}
