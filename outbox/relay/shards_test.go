package relay

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/outbox"
)

// longestWait is after how many turns of others a shard of the class gets its own, at the latest:
// those that are ahead of it by their head start, and one of each other shard.
func longestWait(class outbox.Class, shards int) int {
	return headStart*shards*classRank[class] + outbox.Classes*shards
}

// Each class has its share where others have endless work, and every shard of it comes up.
func TestShardBoardShares(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shards int
		full   []outbox.Class
		shares [outbox.Classes]int // turns of 1,000
	}{
		{4, []outbox.Class{outbox.ClassUrgent, outbox.ClassNormal, outbox.ClassBackfill}, [outbox.Classes]int{outbox.ClassUrgent: 658, outbox.ClassNormal: 214, outbox.ClassBackfill: 128}},
		{4, []outbox.Class{outbox.ClassUrgent, outbox.ClassNormal}, [outbox.Classes]int{outbox.ClassUrgent: 780, outbox.ClassNormal: 220}},
		{4, []outbox.Class{outbox.ClassNormal, outbox.ClassBackfill}, [outbox.Classes]int{outbox.ClassNormal: 780, outbox.ClassBackfill: 220}},
		{4, []outbox.Class{outbox.ClassUrgent, outbox.ClassBackfill}, [outbox.Classes]int{outbox.ClassUrgent: 865, outbox.ClassBackfill: 135}},
		{4, []outbox.Class{outbox.ClassBackfill}, [outbox.Classes]int{outbox.ClassBackfill: 1000}},
		{1, []outbox.Class{outbox.ClassUrgent, outbox.ClassNormal, outbox.ClassBackfill}, [outbox.Classes]int{outbox.ClassUrgent: 693, outbox.ClassNormal: 192, outbox.ClassBackfill: 115}},
		{1, []outbox.Class{outbox.ClassNormal, outbox.ClassBackfill}, [outbox.Classes]int{outbox.ClassNormal: 800, outbox.ClassBackfill: 200}},
	} {
		t.Run(fmt.Sprintf("%d shards, classes %v", c.shards, c.full), func(t *testing.T) {
			t.Parallel()
			b := newShardBoard(c.shards)
			last := map[int]int{}
			for _, class := range c.full {
				for n := range c.shards {
					b.mark(int(class)*c.shards + n)
					last[int(class)*c.shards+n] = -1
				}
			}
			var shares [outbox.Classes]int
			for turn := range 1000 {
				shard, ok := b.take(t.Context())
				require.True(t, ok)
				require.Contains(t, last, shard)
				b.put(shard, true)
				shares[shard/c.shards]++
				last[shard] = turn
				for other, at := range last {
					require.LessOrEqual(t, turn-at, longestWait(outbox.Class(other/c.shards), c.shards), "turn %d: shard %d waits", turn, other)
				}
			}
			assert.Equal(t, c.shares, shares)
		})
	}
}

// Whoever takes and returns shards, and whatever becomes dirty meanwhile: a shard that could be had
// is passed over a bounded number of times.
func TestShardBoardStarvesNobody(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		shards := rapid.IntRange(1, 4).Draw(t, "shards")
		b := newShardBoard(shards)
		endless := rapid.SliceOfN(rapid.IntRange(0, outbox.Classes*shards-1), 1, outbox.Classes*shards).Draw(t, "endless")
		b.mark(endless...)
		var hands []int
		passed := make([]int, outbox.Classes*shards)
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "what") == 0 {
				b.mark(rapid.IntRange(0, outbox.Classes*shards-1).Draw(t, "shard"))
			}
			if _, ok := b.next(); !ok || len(hands) > 0 && rapid.Bool().Draw(t, "put") {
				if len(hands) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(hands)-1).Draw(t, "hand")
				more, polled := rapid.Bool().Draw(t, "more"), rapid.Bool().Draw(t, "polled")
				if polled {
					busy := b.busy()
					for shard, dirty := range b.dirty {
						require.Equal(t, dirty || slices.Contains(hands, shard), busy.Has(shard), "shard %d", shard)
					}
				}
				b.put(hands[i], more)
				require.True(t, b.dirty[hands[i]] || !more && !polled, "what a poll has left out is claimed from again")
				b.mark(endless...)
				hands = append(hands[:i], hands[i+1:]...)
				continue
			}
			free := make([]bool, outbox.Classes*shards)
			for shard := range free {
				free[shard] = b.dirty[shard] && b.taken[shard%shards] == none
			}
			shard, ok := b.take(context.Background())
			require.True(t, ok)
			require.True(t, free[shard], "shard %d is not to be had", shard)
			hands = append(hands, shard)
			free[shard], passed[shard] = false, 0
			for other := range free {
				if free[other] {
					passed[other]++
				}
				require.Less(t, passed[other], longestWait(outbox.Class(other/shards), shards), "shard %d is passed over", other)
			}
		}
	})
}

// Work that is urgent now and then goes first whenever it comes, in the heartbeat of endless work
// of all other classes.
func TestShardBoardUrgentGoesFirst(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const shards = 4
		b := newShardBoard(shards)
		for shard := range int(outbox.ClassUrgent) * shards {
			b.mark(shard)
		}
		for range 50 {
			for range rapid.IntRange(1, 20).Draw(t, "others") {
				shard, _ := b.take(context.Background())
				require.Less(t, shard, int(outbox.ClassUrgent)*shards)
				b.put(shard, true)
			}
			urgent := int(outbox.ClassUrgent)*shards + rapid.IntRange(0, shards-1).Draw(t, "urgent")
			b.mark(urgent)
			shard, _ := b.take(context.Background())
			require.Equal(t, urgent, shard)
			b.put(shard, false)
		}
	})
}

// A worker leaves its shard early for a higher class, but not in a turn that its own class has
// waited for.
func TestShardBoardOutranked(t *testing.T) {
	t.Parallel()
	b := newShardBoard(2) // shards 0 and 1 are normal, 2 and 3 backfill, 4 and 5 urgent
	take := func(want int) {
		t.Helper()
		shard, ok := b.take(t.Context())
		require.True(t, ok)
		require.Equal(t, want, shard)
	}
	b.mark(0)
	take(0)
	assert.False(t, b.outranked(0))
	b.mark(1, 2)
	assert.False(t, b.outranked(0), "its own class and a lower one wait")
	b.mark(4)
	assert.True(t, b.outranked(0), "by a shard that nobody can have before this one is back")
	b.put(0, false)
	take(4)
	take(1)
	b.mark(4)
	assert.False(t, b.outranked(1), "that shard is claimed")
	b.mark(5)
	assert.True(t, b.outranked(1))
	b.put(4, false)
	b.put(1, true)

	for range longestWait(outbox.ClassNormal, 2) { // endless urgent work, until the normal shard is next
		b.mark(4, 5)
		shard, ok := b.take(t.Context())
		require.True(t, ok)
		if shard == 1 {
			b.mark(4, 5)
			b.mark(1) // as whoever looks for work does
			assert.False(t, b.outranked(1), "it has waited for this turn")
			return
		}
		b.put(shard, true)
	}
	t.Error("the normal shard was starved")
}
