package consumer

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/inbox"
)

// What is done is not in memory any more, also where something behind it in its key, or another
// key, is claimed for long.
func TestWhatIsDoneIsNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const messages = 50
		let := make(chan struct{})
		set := settings(func(_ context.Context, m *inbox.Message) error {
			<-let
			if m.ID == "hot last" {
				return inbox.Unavailable(errors.New("out"))
			}
			return nil
		})
		s := New(t.Context(), &set)
		var broker told
		var done []weak.Pointer[inbox.Message]
		take := func(key, id string) *inbox.Message {
			e := entry(key, id)
			s.Take(e, &broker)
			return e.Message
		}
		for n := range messages {
			id := strconv.Itoa(n)
			done = append(done, weak.Make(take("hot", "hot "+id)), weak.Make(take("cold "+id, "cold "+id)))
		}
		take("hot", "hot last")
		close(let)
		synctest.Wait()
		assert.Equal(t, int64(2*messages), broker.acks.Load())
		runtime.GC()
		done = slices.DeleteFunc(done, func(m weak.Pointer[inbox.Message]) bool { return m.Value() == nil })
		assert.Empty(t, done)
		s.Stop(func() {})
	})
}

// The age of what is claimed is that of the message that is claimed for longest.
func TestOldest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set := settings(func(_ context.Context, m *inbox.Message) error {
			if m.OrderingKey == "held" {
				return inbox.Unavailable(errors.New("out"))
			}
			return nil
		})
		s := New(t.Context(), &set)
		oldest := func() time.Duration { return set.Counts.Stats(s).Oldest }
		var broker told
		assert.Zero(t, oldest())
		s.Take(entry("held", "1"), &broker)
		time.Sleep(10 * time.Minute)
		s.Take(entry("held", "2"), &broker)
		s.Take(entry("", "3"), &broker)
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		assert.Equal(t, 14*time.Minute, oldest())
		s.Stop(func() {})
		synctest.Wait()
		assert.Zero(t, oldest())
	})
}
