package session

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/inbox"
)

// The zero value of a configuration has the defaults, and what is wrong is said at once, by the names of the fields.
func TestComplete(t *testing.T) {
	t.Parallel()
	handler := inbox.HandlerFunc(nil)
	var c inbox.ConsumerConfig
	assert.NoError(t, Complete("x", &c, handler, "billing", "orders").Err())
	assert.Equal(t, "orders", c.Source("orders"))
	c.Source = nil
	assert.Equal(t, inbox.ConsumerConfig{
		Consumer: "billing", Workers: inbox.DefaultWorkers,
		MaxOutstandingMessages: inbox.DefaultMaxOutstandingMessages, MaxOutstandingBytes: inbox.DefaultMaxOutstandingBytes,
		Retry: inbox.DefaultRetry(), Timeout: inbox.DefaultTimeout, ShutdownTimeout: inbox.DefaultShutdownTimeout, Log: slog.Default(),
	}, c)
	c.ShutdownTimeout = -1
	assert.NoError(t, Complete("x", &c, handler, "billing", strings.Repeat("o", 300)).Err(), "a long name of the broker")
	assert.Zero(t, c.ShutdownTimeout, "none")

	wrong := Complete("x", &inbox.ConsumerConfig{
		Consumer: " ", Source: inbox.Always(""), Workers: -1, MaxOutstandingMessages: -1, MaxOutstandingBytes: -1,
		Retry: inbox.Retry{MaxAttempts: -1}, Timeout: -time.Second,
	}, nil, "billing", "orders")
	wrong.Sources("stream", []string{"a", "a", ""}, func(stream string) string { return map[string]string{"a": "a"}[stream] })
	for _, text := range []string{
		"x: the handler is nil", "x: Consumer: ", "x: Source: ", "x: Workers is -1: give a positive value, or 0 for 10", "x: MaxOutstandingMessages is -1: ",
		"x: MaxOutstandingBytes is -1: ", "x: Retry: retry.max_attempts is -1", "x: Timeout is -1s: give a positive value, or 0 for 30s",
		"x: a stream has no name", `x: the stream "a" is named twice`, `x: DeadLetters: those of "a" would go to "a", which is read itself`,
		`x: DeadLetters: the stream "" has no place for its dead letters`,
	} {
		assert.ErrorContains(t, wrong.Err(), text)
	}
}
