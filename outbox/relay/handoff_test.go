package relay_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// What has nothing in its way is delivered without a claim.
func TestHandOffWithoutAClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := memory.New()
		h := newHandRig(t, path, broker, outbox.Policy{})
		assert.Nil(t, h.engine.Reserve("d", outbox.SQLite, []outbox.Row{handed("k", "0")}), "it does not run yet")
		h.begin()
		row := handed("k", "1")
		row.Headers, row.CorrelationID = `{"h":"v"}`, "c"
		require.True(t, h.commit(row))
		require.True(t, h.commit(handed("k", "2"), handed("k", "3"), handed("", "4")))
		synctest.Wait()
		assert.Equal(t, "0", h.open())
		assert.Equal(t, "published 1", h.status("1"))
		assert.Zero(t, h.watched.claims.Load())
		assert.Equal(t, relay.HandOffStats{Sent: 4, Unfit: 1}, h.stats())
		messages := broker.Messages("s")
		require.Len(t, messages, 4)
		assert.Equal(t, row.MessageID.String(), messages[0].ID)
		assert.Equal(t, "T", messages[0].Type)
		assert.Equal(t, "s", messages[0].Destination)
		assert.Equal(t, "k", messages[0].OrderingKey)
		assert.Equal(t, "c", messages[0].CorrelationID)
		assert.Equal(t, "application/json", messages[0].ContentType)
		assert.Equal(t, []brokers.Attribute{{Name: "h", Value: "v"}}, messages[0].Attributes)
		for i, m := range messages {
			assert.Equal(t, string(rune('1'+i)), string(m.Payload))
		}
		h.stop()
		assert.Nil(t, h.engine.Reserve("d", outbox.SQLite, []outbox.Row{handed("k", "0")}), "it has stopped")
	})
}

// Only a row that may go at once, to a broker that takes it, has room.
func TestHandOffRefuses(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		h := newHandRig(t, path, memory.New(), outbox.Policy{BatchSize: 3, Rate: 20})
		h.begin()
		for name, change := range map[string]func(*outbox.Row){
			"not before": func(r *outbox.Row) { r.AvailableAt = time.Now().Add(time.Minute) },
			"expired":    func(r *outbox.Row) { r.ExpiresAt = time.Now() },
			"urgent":     func(r *outbox.Row) { r.Priority = 1 },
			"backfill":   func(r *outbox.Row) { r.Priority = -1 },
		} {
			row := handed("", name)
			change(&row)
			assert.Nil(t, h.engine.Reserve("d", outbox.SQLite, []outbox.Row{handed("", "1"), row}), name)
		}
		assert.Nil(t, h.engine.Reserve("e", outbox.SQLite, []outbox.Row{handed("", "1")}), "another database")
		assert.Nil(t, h.engine.Reserve("d", outbox.Postgres, []outbox.Row{handed("", "1")}), "another kind of database")
		assert.Equal(t, relay.HandOffStats{Unfit: 9}, h.stats())
		other := handed("", "2")
		other.TargetBroker = "c"
		assert.Nil(t, h.engine.Reserve("d", outbox.SQLite, []outbox.Row{other}))
		one := h.engine.Reserve("d", outbox.SQLite, []outbox.Row{handed("", "1"), other})
		assert.True(t, one.Has("b"))
		assert.False(t, one.Has("c"))
		assert.Nil(t, h.engine.Reserve("d", outbox.SQLite, []outbox.Row{handed("", "3"), handed("", "4")}), "beyond the rate's burst of 2")
		one.Cancel()
		one.Cancel()
		one.Commit()
		two := h.engine.Reserve("d", outbox.SQLite, []outbox.Row{handed("", "3"), handed("", "4")})
		assert.NotNil(t, two, "there is room again")
		two.Cancel()
		h.stop()
	})
}

// More than there is room for goes by the database.
func TestHandOffOverflow(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		release := make(chan struct{})
		broker := &fake{publish: func(context.Context, brokers.Message) error { <-release; return nil }}
		h := newHandRig(t, path, broker, outbox.Policy{BatchSize: 2})
		h.begin()
		assert.True(t, h.commit(handed("k", "1"), handed("k", "2")))
		assert.False(t, h.commit(handed("k", "3")))
		assert.EqualValues(t, 1, h.stats().Full)
		synctest.Wait()
		assert.Positive(t, h.watched.claims.Load())
		assert.Equal(t, "pending 0", h.status("3"), "the key is claimed")
		close(release)
		synctest.Wait()
		assert.Equal(t, []string{"1", "2", "3"}, broker.delivered(), "and follows without a poll")
		h.stop()
	})
}

// What was rolled back is not published, whether the plugin knows of it or not, and takes no room.
func TestHandOffOfWhatIsNotThere(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := memory.New()
		h := newHandRig(t, path, broker, outbox.Policy{BatchSize: 2})
		h.begin()
		for range 5 {
			rows := []outbox.Row{handed("k", "1"), handed("k", "2")}
			h.engine.Reserve("d", outbox.SQLite, rows).Cancel()
			h.engine.Reserve("d", outbox.SQLite, rows).Commit() // but the rows went with a savepoint
			synctest.Wait()
		}
		assert.Empty(t, broker.Messages("s"))
		assert.Equal(t, relay.HandOffStats{Gone: 10}, h.stats())
		h.stop()
	})
}
