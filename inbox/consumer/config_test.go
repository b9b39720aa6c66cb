package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox"
)

var handler = inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) { return inbox.Handled, nil })

// The zero value of a configuration has the defaults, and what is wrong is said at once, by the names of the fields.
func TestComplete(t *testing.T) {
	t.Parallel()
	var c inbox.ConsumerConfig
	assert.NoError(t, Complete("x", &c, handler, "billing", "orders").Err())
	assert.Equal(t, "orders", c.Source("orders"))
	c.Source = nil
	assert.Equal(t, inbox.ConsumerConfig{
		Consumer: "billing", Workers: inbox.DefaultWorkers,
		MaxOutstandingMessages: inbox.DefaultMaxOutstandingMessages, MaxOutstandingBytes: inbox.DefaultMaxOutstandingBytes,
		Retry: inbox.DefaultRetry(), Timeout: inbox.DefaultTimeout, ShutdownTimeout: inbox.DefaultShutdownTimeout, Log: slog.Default(),
		Unreadable: inbox.UnreadableDeadLetter,
	}, c)
	c.ShutdownTimeout = -1
	assert.NoError(t, Complete("x", &c, handler, "billing", strings.Repeat("o", 300)).Err(), "a long name of the broker")
	assert.Zero(t, c.ShutdownTimeout, "none")

	wrong := Complete("x", &inbox.ConsumerConfig{
		Consumer: " ", Source: inbox.Always(""), Workers: -1, MaxOutstandingMessages: -1, MaxOutstandingBytes: -1,
		Retry: inbox.Retry{MaxAttempts: -1}, Timeout: -time.Second, Unreadable: "drop",
	}, nil, "billing", "orders")
	wrong.Sources("stream", []string{"a", "a", ""}, func(stream string) string { return map[string]string{"a": "a"}[stream] })
	for _, text := range []string{
		"x: the handler is nil", "x: Consumer: ", `x: Source: that of "orders": `, "x: Workers is -1: give a positive value, or 0 for 10", "x: MaxOutstandingMessages is -1: ",
		"x: MaxOutstandingBytes is -1: ", "x: Retry: retry.max_attempts is -1", `x: Unreadable is "drop": give "dead_letter" or "skip", or nothing for "dead_letter"`, "x: Timeout is -1s: give a positive value, or 0 for 30s",
		"x: a stream has no name", `x: the stream "a" is named twice`, `x: DeadLetters: those of "a" would go to "a", which is read itself`,
		`x: DeadLetters: the stream "" has no place for its dead letters`,
	} {
		assert.ErrorContains(t, wrong.Err(), text)
	}
}

// The functions of a configuration are called once for each name; what they would say later counts for nothing.
func TestNamesAreAskedForOnce(t *testing.T) {
	t.Parallel()
	calls := map[string]int{}
	answer := func(what string) func(string) string {
		return func(name string) string {
			calls[what+" "+name]++
			return fmt.Sprint(what, " of ", name, " ", calls[what+" "+name])
		}
	}
	c := inbox.ConsumerConfig{Source: answer("source"), DeadLetters: answer("dead")}
	wrong := Complete("x", &c, handler, "billing", "a", "b")
	wrong.Sources("topic", []string{"a", "b"}, c.DeadLetters)
	require.NoError(t, wrong.Err())
	for range 3 {
		assert.Equal(t, "source of a 1", c.Source("a"))
		assert.Equal(t, "dead of b 1", c.DeadLetters("b"))
	}
	assert.Equal(t, map[string]int{"source a": 1, "source b": 1, "dead a": 1, "dead b": 1}, calls)
}

// A function that panics is a problem like others, as is each of several sources that are wrong.
func TestFunctionsOfNamesThatAreWrong(t *testing.T) {
	t.Parallel()
	routes := map[string]func() string{}
	route := func(name string) string { return routes[name]() }
	err := Complete("x", &inbox.ConsumerConfig{Source: route, DeadLetters: route}, handler, "billing", "a").Err()
	assert.ErrorContains(t, err, `x: Source: the function panics for "a": runtime error: invalid memory address`)
	assert.ErrorContains(t, err, `x: DeadLetters: the function panics for "a": runtime error: invalid memory address`)
	err = Complete("x", &inbox.ConsumerConfig{Source: inbox.Always(" ")}, handler, "billing", "a", "b").Err()
	assert.ErrorContains(t, err, `x: Source: that of "a": `)
	assert.ErrorContains(t, err, `x: Source: that of "b": `)
}
