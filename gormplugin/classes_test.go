package gormplugin_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

type (
	classPlaced struct{ ID string }
	classNoted  struct{ ID string }
	classLoose  struct{ ID string }

	ClassOrder struct {
		ID string
		uow.Aggregate
	}
	ClassItem struct {
		ID string
		uow.Aggregate
	}
)

// An aggregate with events in two priority classes is warned of, once: order per key is kept within
// a class. Aggregates with one class, of whatever priorities, are not, nor are events without a key.
func TestPrioritiesOfTwoClasses(t *testing.T) {
	t.Parallel()
	events := envelope.NewCatalog("ordering")
	envelope.Register[classPlaced](events)
	envelope.Register[classNoted](events, envelope.Priority(envelope.PriorityLow))
	envelope.Register[classLoose](events, envelope.Priority(envelope.PriorityLow), envelope.Unordered())
	db, log, err := openShop(t, events, outbox.Routing{}, &ClassOrder{}, &ClassItem{})
	require.NoError(t, err)
	raise := func(ctx context.Context, aggregate raiser, raised ...any) {
		t.Helper()
		for _, event := range raised {
			aggregate.Raise(event)
		}
		require.NoError(t, db.WithContext(ctx).Save(aggregate).Error)
	}
	item, order := &ClassItem{ID: "1"}, &ClassOrder{ID: "2"}
	raise(t.Context(), item, classPlaced{"1"}, classLoose{"1"})
	raise(envelope.WithPriority(t.Context(), envelope.PriorityHigh), item, classPlaced{"1"})
	raise(t.Context(), order, classPlaced{"2"})
	require.Empty(t, log.String())
	raise(t.Context(), order, classNoted{"2"})
	const want = `msg="an aggregate's events have priorities of two classes" aggregate=ClassOrder type=Ordering.classNoted.v1 priority=-50 class=backfill`
	assert.Contains(t, log.String(), want)
	raise(t.Context(), order, classNoted{"2"}, classPlaced{"2"})
	assert.Equal(t, 1, strings.Count(log.String(), "two classes"))
	raise(envelope.WithPriority(t.Context(), envelope.PriorityBulk), item, classPlaced{"1"}) // a job's
	assert.Contains(t, log.String(), "aggregate=ClassItem type=Ordering.classPlaced.v1 priority=-100 class=backfill")
}
