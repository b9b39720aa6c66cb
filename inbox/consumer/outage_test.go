package consumer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// An outage is logged when it begins, when another cause stands, and when it is over, however often
// it is met.
func TestOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		count := func(text string) int { return strings.Count(log.String(), text) }
		o := Outage{Log: slog.New(slog.NewTextHandler(&log, nil)), Steady: time.Second}
		o.Over(t.Context())
		for range 100 {
			time.Sleep(o.Failed(t.Context(), fmt.Errorf("fetch: %w", io.EOF)))
		}
		assert.Equal(t, 1, count("broker unavailable"))
		began := time.Now()
		for range 100 {
			time.Sleep(o.Failed(t.Context(), errors.New("user and password are refused")))
		}
		assert.Greater(t, time.Since(began), time.Minute, "it goes on waiting longer and longer")
		assert.Equal(t, 2, count("broker unavailable"))
		assert.Equal(t, 1, count("password"))
		o.Failed(t.Context(), io.EOF)
		o.Over(t.Context())
		assert.Zero(t, count("broker available again"), "another connection is still out")
		time.Sleep(time.Second)
		o.Over(t.Context())
		o.Over(t.Context())
		assert.Equal(t, 1, count("broker available again"))
		o.Failed(t.Context(), io.EOF)
		assert.Equal(t, 2, count("EOF")-1, "the next one begins anew: %s", log.String())
	})
}

// Parts of a broker are out each for itself. A failure that may be none is reported when it is met again, and what
// was begun before does not end it.
func TestOutagesOfParts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		count := func(text string) int { return strings.Count(log.String(), text) }
		o := Outages{Log: slog.New(slog.NewTextHandler(&log, nil))}
		begun := time.Now()
		o.Over(t.Context(), begun, "a", "b")
		time.Sleep(time.Second)
		o.Failed(t.Context(), "a", false, io.EOF, "stream", "a")
		assert.Zero(t, count("broker unavailable"))
		o.Over(t.Context(), time.Now(), "a")
		o.Failed(t.Context(), "a", false, io.EOF, "stream", "a")
		assert.Empty(t, log.String(), "there was none")
		o.Failed(t.Context(), "a", false, io.EOF)
		o.Failed(t.Context(), "b", true, errors.New("no right"), "stream", "b")
		assert.Equal(t, []int{1, 1}, []int{count("stream=a"), count("stream=b")})
		o.Over(t.Context(), begun, "a", "b")
		assert.Zero(t, count("broker available again"))
		o.Over(t.Context(), time.Now(), "b")
		o.Over(t.Context(), time.Now(), "b")
		assert.Equal(t, 1, count("broker available again"))
		assert.Equal(t, 1, count("stream=a"), "the other is still out")
	})
}
