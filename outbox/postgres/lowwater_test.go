package postgres

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

// sea is a shard as the database keeps it: ids in ascending order, transactions that show what they
// wrote when they end.
type sea struct {
	*testing.T

	random   *rand.Rand
	water    lowWater
	next     int64
	names    int
	writers  map[string][]int64 // under way: the ids that each has taken
	open     map[int64]bool     // visible rows
	finished map[int64]bool
	version  int64
	operated int         // how often of these it was an operator
	believed int         // how often a claim went by a mark after that
	claims   []*seaClaim // under way
	lifts    []func()    // that the database has made and this process has not noted yet
}

// seaClaim is a claim under way. Its steps are those of the real one; steps of several claims may
// alternate.
type seaClaim struct {
	step     int
	baseline baseline
	sighting sighting
}

// pick takes any of some things; ok is false when there are none.
func pick[T cmp.Ordered, V any](s *sea, from map[T]V) (one T, ok bool) {
	if len(from) == 0 {
		return one, false
	}
	return slices.Sorted(maps.Keys(from))[s.random.IntN(len(from))], true
}

func (s *sea) name(prefix string) string {
	s.names++
	return fmt.Sprint(prefix, s.names)
}

// steps of everybody but the claims.
var seaSteps = []func(s *sea){
	func(s *sea) { // a writer begins
		if len(s.writers) < 3 {
			s.writers[s.name("3/")] = nil
		}
	},
	func(s *sea) { // a writer takes an id
		if name, ok := pick(s, s.writers); ok {
			s.next++
			s.writers[name] = append(s.writers[name], s.next)
		}
	},
	func(s *sea) { // a writer commits
		if name, ok := pick(s, s.writers); ok {
			for _, id := range s.writers[name] {
				s.open[id] = true
			}
			delete(s.writers, name)
		}
	},
	func(s *sea) { // a writer rolls back, or prepares its transaction
		if name, ok := pick(s, s.writers); ok {
			if s.random.IntN(2) == 0 {
				s.writers[s.name("-1/")] = s.writers[name]
			}
			delete(s.writers, name)
		}
	},
	func(s *sea) { // an operator finishes a row
		if id, ok := pick(s, s.open); ok {
			delete(s.open, id)
			s.finished[id] = true
		}
	},
	func(s *sea) { // all rows are finished
		maps.Copy(s.finished, s.open)
		clear(s.open)
	},
	func(s *sea) { // an operator brings a row back
		if id, ok := pick(s, s.finished); ok && s.random.IntN(10) == 0 {
			delete(s.finished, id)
			s.open[id] = true
			s.version++
			s.operated++
		}
	},
	func(s *sea) { // this process brings a row back, or defers some
		if s.random.IntN(10) > 0 { // as seldom as operators
			return
		}
		before, lowest := s.version, (*int64)(nil)
		if id, ok := pick(s, s.finished); ok && s.random.IntN(2) == 0 {
			delete(s.finished, id)
			s.open[id] = true
			lowest = &id
		}
		s.version++
		s.lifts = append(s.lifts, func() { s.water.lifted("b", 1, before, lowest) })
	},
	func(s *sea) { // and notes one of these, in any order
		if len(s.lifts) > 0 {
			n := s.random.IntN(len(s.lifts))
			s.lifts[n]()
			s.lifts = slices.Delete(s.lifts, n, n+1)
		}
	},
}

// claim begins a claim, or takes one of those under way a step further.
func (s *sea) claim() {
	n := s.random.IntN(3)
	if n >= len(s.claims) {
		s.claims = append(s.claims, &seaClaim{baseline: s.water.take("b", 1, time.Now())})
		return
	}
	c := s.claims[n]
	switch c.step++; c.step {
	case 1:
		s.look(c)
	case 2:
		if c.baseline.list {
			c.sighting.listed, c.sighting.writers = true, slices.Sorted(maps.Keys(s.writers))
		}
	default:
		s.water.learn("b", 1, c.baseline, c.sighting, time.Now())
		s.claims = slices.Delete(s.claims, n, n+1)
	}
}

// look is the claim's snapshot, in which its mark must hold.
func (s *sea) look(c *seaClaim) {
	s.Helper()
	floor := int64(noFloor)
	if c.baseline.version == s.version {
		floor = c.baseline.floor
		if s.operated > 0 && floor > 0 {
			s.believed++
		}
	}
	c.sighting.told, c.sighting.version = true, s.version
	for _, id := range slices.Sorted(maps.Keys(s.open)) {
		require.GreaterOrEqual(s, id, floor, "a row is open below the mark")
		if c.sighting.first == nil {
			c.sighting.first = &id
		}
		c.sighting.last = id
	}
}

// No claim misses a row, whatever writers, operators and other claims do in between.
func TestLowWaterNeverPassesARow(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(uint64(testenv.Seed(t)), 0))
	const runs = 20000
	raised, believed := 0, 0
	for range runs {
		s := &sea{T: t, random: random, writers: map[string][]int64{}, open: map[int64]bool{}, finished: map[int64]bool{}}
		s.water.every = 1 + random.IntN(2)
		likely := make([]int, 0, 30) // some steps are more likely than others, in each run others
		for step := range seaSteps {
			likely = append(likely, slices.Repeat([]int{step}, random.IntN(5))...)
		}
		for range 200 {
			if random.IntN(2) == 0 || len(likely) == 0 {
				s.claim()
			} else {
				seaSteps[likely[random.IntN(len(likely))]](s)
			}
		}
		if s.water.line("b", 1).class[0].floor > 0 {
			raised++
		}
		if s.believed > 0 {
			believed++
		}
	}
	t.Logf("%d of %d runs ended with a mark, in %d one was of use after an operator had brought rows back", raised, runs, believed)
	assert.Greater(t, raised, runs/20, "else the test tests little")
	assert.Greater(t, believed, runs/50, "a mark that no claim goes by is of no use")
}

const insertTide = `INSERT INTO tide (message_id, target_broker, stream, type, ordering_key, payload)
	SELECT gen_random_uuid(), 'b', 's', 't', 'key', '' FROM generate_series(1, $1::int)`
