package eventid_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/internal/eventid"
)

// The messages of an event are found by each of their ids, as long as its own is there, and none of another event is.
func TestOf(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := func(name string) (id uuid.UUID) {
			copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, name))
			return id
		}
		event, other := id("event"), id("other")
		copy(other[:9], event[:9]) // of the same microsecond
		if event == other {
			t.Skip("the same event")
		}
		types := rapid.SliceOfNDistinct(rapid.StringN(1, 8, -1), 1, 4, rapid.ID).Draw(t, "types")
		of := []eventid.Message{{ID: event, Type: "own"}}
		for _, wireType := range types {
			of = append(of, eventid.Message{ID: eventid.Derive(event, wireType), Type: wireType})
		}
		all := append([]eventid.Message{{ID: other, Type: "own"}, {ID: eventid.Derive(other, types[0]), Type: types[0]}}, of...)
		all = rapid.Permutation(all).Draw(t, "rows")
		first, last := eventid.Bounds(rapid.SampledFrom(of).Draw(t, "any").ID)
		for _, asked := range of {
			for i, same := range eventid.Of(asked.ID, all) {
				assert.Equal(t, slices.ContainsFunc(of, func(m eventid.Message) bool { return m.ID == all[i].ID }), same)
				assert.True(t, bytes.Compare(first[:], all[i].ID[:]) <= 0 && bytes.Compare(all[i].ID[:], last[:]) <= 0)
			}
		}
		// Without the event's own row, one with a derived id is known by that alone.
		for i, same := range eventid.Of(of[1].ID, of[1:]) {
			assert.Equal(t, i == 0, same)
		}
	})
}
