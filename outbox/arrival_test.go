package outbox

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLaneSet(t *testing.T) {
	t.Parallel()
	set := LaneSetOf(0, 5, 31)
	for lane := -1; lane < 40; lane++ {
		assert.Equal(t, lane == 0 || lane == 5 || lane == 31, set.Has(lane))
	}
	assert.Equal(t, UnknownLanes, LaneSetOf(1, 32), "what cannot be said exactly is not said")
	assert.Equal(t, UnknownLanes, LaneSetOf(-1))
	assert.True(t, LaneSetOf(11).within(12))
	assert.False(t, LaneSetOf(3, 12).within(12))
	assert.False(t, UnknownLanes.within(12))
}

func TestMergeArrivals(t *testing.T) {
	t.Parallel()
	merged := MergeArrivals([]Arrival{{"a", LaneSetOf(1)}, {"b", LaneSetOf(2)}},
		Arrival{"b", LaneSetOf(3)}, Arrival{"c", LaneSetOf(4)}, Arrival{"a", UnknownLanes}, Arrival{"a", LaneSetOf(2)})
	assert.Equal(t, []Arrival{{"a", UnknownLanes}, {"b", LaneSetOf(2, 3)}, {"c", LaneSetOf(4)}}, merged)
}

// It is part of every commit that somebody is told of.
func TestAppendArrivalsAllocatesNothing(t *testing.T) {
	rows := []Row{
		{MessageID: uuid.New(), TargetBroker: "a", OrderingKey: strings.Repeat("k", 60)},
		{MessageID: uuid.New(), TargetBroker: "b", OrderingKey: "ü"},
		{MessageID: uuid.New(), TargetBroker: "a"},
	}
	room := make([]Arrival, 0, 2)
	for _, dialect := range []Dialect{Postgres, SQLServer, SQLite} {
		inserter, err := NewInserter(dialect, DefaultTable)
		require.NoError(t, err)
		assert.Zero(t, testing.AllocsPerRun(100, func() { _ = inserter.AppendArrivals(room, rows) }), dialect)
	}
}
