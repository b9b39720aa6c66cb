package outbox

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestShardSet(t *testing.T) {
	t.Parallel()
	set := ShardSetOf(0, 5, 31)
	for shard := -1; shard < 40; shard++ {
		assert.Equal(t, shard == 0 || shard == 5 || shard == 31, set.Has(shard))
	}
	assert.Equal(t, UnknownShards, ShardSetOf(1, 32), "what cannot be said exactly is not said")
	assert.Equal(t, UnknownShards, ShardSetOf(-1))
	assert.True(t, ShardSetOf(11).Within(12))
	assert.False(t, ShardSetOf(3, 12).Within(12))
	assert.False(t, UnknownShards.Within(12))
}

func TestMergeWakeUps(t *testing.T) {
	t.Parallel()
	merged := MergeWakeUps([]WakeUp{{"a", ShardSetOf(1)}, {"b", ShardSetOf(2)}},
		WakeUp{"b", ShardSetOf(3)}, WakeUp{"c", ShardSetOf(4)}, WakeUp{"a", UnknownShards}, WakeUp{"a", ShardSetOf(2)})
	assert.Equal(t, []WakeUp{{"a", UnknownShards}, {"b", ShardSetOf(2, 3)}, {"c", ShardSetOf(4)}}, merged)
}

// It is part of every commit that wakes a relay.
func TestAppendWakeUpsAllocatesNothing(t *testing.T) {
	rows := []Row{
		{MessageID: uuid.New(), TargetBroker: "a", OrderingKey: strings.Repeat("k", 60)},
		{MessageID: uuid.New(), TargetBroker: "b", OrderingKey: "ü"},
		{MessageID: uuid.New(), TargetBroker: "a"},
	}
	room := make([]WakeUp, 0, 2)
	for _, dialect := range []Dialect{Postgres, SQLServer, SQLite, MySQL} {
		inserter, err := NewInserter(dialect, DefaultTable)
		require.NoError(t, err)
		assert.Zero(t, testing.AllocsPerRun(100, func() { _ = inserter.AppendWakeUps(room, rows) }), dialect)
	}
}
