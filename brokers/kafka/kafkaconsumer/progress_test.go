package kafkaconsumer

import (
	"container/list"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The group goes on behind the last message before which all are done, whatever the order in which
// they are, also where offsets have gaps, or begin anew after an unclean election. Nothing but what
// is not done is kept, and a mark between two of these.
func TestProgress(t *testing.T) {
	t.Parallel()
	type delivery struct {
		claim *claim
		mark  *list.Element
		done  bool
	}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		var p progress
		var all []*delivery
		offset, epoch, next := int64(0), int32(0), kgo.EpochOffset{}
		if random.IntN(2) == 0 {
			offset = random.Int64N(100)
			next = kgo.EpochOffset{Epoch: -1, Offset: offset}
			p.begin(offset)
		}
		for range 300 {
			var open []*delivery
			for _, d := range all {
				if !d.done {
					open = append(open, d)
				}
			}
			switch {
			case len(open) == 0 || random.IntN(5) < 2:
				d := &delivery{claim: &claim{record: &kgo.Record{Offset: offset, LeaderEpoch: epoch}}}
				d.mark = p.add(d.claim)
				all, open = append(all, d), append(open, d)
				offset += 1 + random.Int64N(3)
				if random.IntN(50) == 0 {
					epoch++
					offset = random.Int64N(offset)
				}
			default:
				d := open[random.IntN(min(len(open), 1+random.IntN(20)))] // the first ones more often
				d.done = true
				open = slices.DeleteFunc(open, func(other *delivery) bool { return other == d })
				p.done(d.mark)
				for len(all) > 0 && all[0].done {
					next = kgo.EpochOffset{Epoch: all[0].claim.record.LeaderEpoch, Offset: all[0].claim.record.Offset + 1}
					all = all[1:]
				}
			}
			require.Equal(t, next, p.next, "seed %d", seed)
			require.Len(t, open, p.open, "seed %d", seed)
			require.Equal(t, len(all)-len(open), p.uncommitted, "seed %d", seed)
			require.LessOrEqual(t, p.marks.Len(), 2*p.open, "seed %d", seed)
			if len(all) == 0 {
				require.Nil(t, p.head(), "seed %d", seed)
			} else {
				require.Same(t, all[0].claim, p.head(), "seed %d", seed)
			}
			for at := p.marks.Front(); at != nil; at = at.Next() {
				require.False(t, doneAt(at) != nil && (at.Prev() == nil || doneAt(at.Next()) != nil), "seed %d", seed)
			}
		}
		for _, d := range all {
			if !d.done {
				p.done(d.mark)
			}
		}
		assert.Zero(t, p.marks.Len()+p.open+p.uncommitted, "seed %d", seed)
	}
}

// The age is that of the message, whatever its producer says, and at least that of its claim.
func TestAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		claimed := time.Now()
		time.Sleep(time.Minute)
		for stamp, want := range map[time.Time]time.Duration{
			claimed.Add(-time.Hour):       time.Hour + time.Minute,
			time.Now().Add(time.Hour):     time.Minute,
			time.UnixMilli(-1):            time.Minute, // none
			claimed.Add(time.Second):      time.Minute,
			claimed.Add(-2 * time.Second): time.Minute + 2*time.Second,
		} {
			c := &claim{record: &kgo.Record{Timestamp: stamp}, since: claimed}
			assert.Equal(t, want, c.age(), "stamp %v", stamp)
		}
	})
}
