package monitor_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// What only delivered rows could tell is said to be not kept, and a replay of them is refused.
func TestNotKept(t *testing.T) {
	t.Parallel()
	asked := false
	db, console := open(t, monitor.WithNotKept("partner"), monitor.WithConsumers(map[string]monitor.Consumer{
		"billing": {Broker: "partner", Progress: func(context.Context, []uuid.UUID, []string) (map[uuid.UUID][]monitor.ConsumerProgress, error) {
			asked = true
			return map[uuid.UUID][]monitor.ConsumerProgress{}, nil
		}},
	}))
	delivered, before := insert(t, db, "default", outbox.StatusPublished, ""), insert(t, db, "partner", outbox.StatusPublished, "")

	trace, err := console.Trace(t.Context(), monitor.TraceQuery{Term: delivered})
	require.NoError(t, err)
	require.Len(t, trace.Messages, 1)
	assert.Len(t, trace.Messages[0].Rows, 1)
	assert.Equal(t, []string{"partner"}, trace.Messages[0].NotKept)
	trace, err = console.Trace(t.Context(), monitor.TraceQuery{Term: before})
	require.NoError(t, err)
	require.Len(t, trace.Messages, 1)
	assert.Empty(t, trace.Messages[0].NotKept, "its row is there")
	trace, err = console.Trace(t.Context(), monitor.TraceQuery{Term: uuid.NewString()})
	require.NoError(t, err)
	assert.Contains(t, trace.Nothing, ", or it was delivered and its rows not kept (keep: false, of broker partner)")

	me := monitor.Actor{Name: "ann", Via: "go"}
	replay := monitor.Action{Verb: monitor.VerbReplay, Filter: admin.Filter{Broker: "partner", Type: "Ordering.Placed"}}
	_, err = console.Do(t.Context(), me, replay)
	require.ErrorAs(t, err, new(*monitor.RefusedError))
	require.ErrorContains(t, err, `the rows of broker "partner" are not kept after their delivery (keep: false)`)
	replay.Filter = admin.Filter{Broker: "partner", MessageIDs: []string{before}}
	results, err := console.Do(t.Context(), me, replay)
	require.NoError(t, err)
	assert.EqualValues(t, 1, results[0].Changed, "what was published before is there, and can be named")

	brokers := console.Status(t.Context(), 10)["main"].Brokers
	require.Len(t, brokers, 2)
	assert.Equal(t, []bool{false, true}, []bool{brokers[0].NotKept, brokers[1].NotKept})
	asked = false
	consumers := console.Consumers(t.Context())
	assert.Equal(t, []monitor.ConsumerStatus{{Name: "billing", Broker: "partner", NotKept: true}}, consumers)
	assert.False(t, asked, "nothing that it has recorded would tell")
}
