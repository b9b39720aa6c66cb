package dbtable_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/dbtable"
)

var three = []dbtable.Migration{{Version: 1, Name: "one"}, {Version: 2, Name: "two"}, {Version: 3, Name: "three"}}

func TestApply(t *testing.T) {
	t.Parallel()
	var applied, recorded []int
	apply := func(m dbtable.Migration) error { applied = append(applied, m.Version); return nil }
	record := func(m dbtable.Migration) error { recorded = append(recorded, m.Version); return nil }
	names, err := dbtable.Apply(three, []int{1}, []int{1, 2}, apply, record)
	require.NoError(t, err)
	assert.Equal(t, []string{"0002_two is already there, recorded", "0003_three"}, names)
	assert.Equal(t, []int{3}, applied)
	assert.Equal(t, []int{2, 3}, recorded)

	refused := errors.New("refused")
	fails := func(dbtable.Migration) error { return refused }
	for _, c := range []struct {
		apply, record func(dbtable.Migration) error
		wants         string
	}{
		{fails, record, "step 0001_one: refused"},
		{apply, fails, "record step 0001_one: refused"},
	} {
		names, err = dbtable.Apply(three, nil, nil, c.apply, c.record)
		require.ErrorIs(t, err, refused)
		require.EqualError(t, err, c.wants)
		assert.Empty(t, names)
	}
}

// What is there of three steps decides, whatever of them is recorded.
func TestThere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		done  []int
		live  int // how many steps the live schema has; -1: tables of others
		there []int
		asked int
		odd   bool
	}{
		{name: "all recorded", done: []int{1, 2, 3}, live: 3},
		{name: "empty", live: 0, asked: 1},
		{name: "all by another tool", live: 3, there: []int{1, 2, 3}, asked: 1},
		{name: "the first by another tool", live: 1, there: []int{1}, asked: 3},
		{name: "all, of which the first is recorded", done: []int{1}, live: 3, there: []int{1, 2, 3}, asked: 1},
		{name: "the first is recorded, the second by another tool", done: []int{1}, live: 2, there: []int{1, 2}, asked: 2},
		{name: "the first is recorded and there", done: []int{1}, live: 1, asked: 2},
		{name: "the first is recorded, and was changed", done: []int{1}, live: -1, asked: 2},
		{name: "tables of others", live: -1, asked: 3, odd: true},
	} {
		asked := 0
		there, strange, err := dbtable.There(three, c.done, func(first []dbtable.Migration) (dbtable.Comparison, error) {
			asked++
			found := dbtable.Comparison{Begun: c.live != 0}
			if len(first) > c.live {
				found.Differences = []string{first[len(first)-1].String() + ": missing"}
			}
			return found, nil
		})
		require.NoError(t, err, c.name)
		assert.Equal(t, c.there, there, c.name)
		assert.Equal(t, c.asked, asked, c.name)
		if c.odd {
			assert.Equal(t, []string{"0003_three: missing"}, strange, c.name)
		} else {
			assert.Empty(t, strange, c.name)
		}
	}
	lost := errors.New("lost")
	_, _, err := dbtable.There(slices.Clone(three), nil, func([]dbtable.Migration) (dbtable.Comparison, error) { return dbtable.Comparison{}, lost })
	require.ErrorIs(t, err, lost)
}
