package wakeup

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSet(t *testing.T) {
	t.Parallel()
	set := SetOf(0, 5, 31)
	for shard := -1; shard < 40; shard++ {
		assert.Equal(t, shard == 0 || shard == 5 || shard == 31, set.Has(shard))
	}
	assert.Equal(t, Unknown, SetOf(1, 32), "what cannot be said exactly is not said")
	assert.Equal(t, Unknown, SetOf(-1))
	assert.True(t, SetOf(11).Within(12))
	assert.False(t, SetOf(3, 12).Within(12))
	assert.False(t, Unknown.Within(12))
}

func TestMerge(t *testing.T) {
	t.Parallel()
	merged := Merge([]WakeUp{{"a", SetOf(1)}, {"b", SetOf(2)}},
		WakeUp{"b", SetOf(3)}, WakeUp{"c", SetOf(4)}, WakeUp{"a", Unknown}, WakeUp{"a", SetOf(2)})
	assert.Equal(t, []WakeUp{{"a", Unknown}, {"b", SetOf(2, 3)}, {"c", SetOf(4)}}, merged)
}
