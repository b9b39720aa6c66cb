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
	writers  map[string]*seaWriter // in progress
	numbers  int64
	session  int64
	long     bool           // some writers are open for long
	open     map[int64]bool // visible rows
	finished map[int64]bool
	version  int64
	operated int         // how often of these it was an operator
	believed int         // how often a claim went by a mark after that
	beside   int         // how often one went by a mark beside writers that are open for long
	replaced int         // how often the server was
	after    int         // how often a claim went by a mark after that
	claims   []*seaClaim // in progress
	lifts    []func()    // that the database has made and this process has not noted yet
}

// seaWriter is a transaction: the ids that it has taken, and its number, which it has from about the first
// of them on.
type seaWriter struct {
	ids    []int64
	number int64
}

// seaClaim is a claim in progress. Its steps are those of the real one; steps of several claims may
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

// ends says whether a writer is through: some, such as the first, are open for long.
func (s *sea) ends(name string) bool {
	return !s.long || name != slices.Min(slices.Collect(maps.Keys(s.writers))) || s.random.IntN(15) == 0
}

// steps of everybody but the claims.
var seaSteps = []func(s *sea){
	func(s *sea) { // a writer begins
		if len(s.writers) < 3 {
			s.writers[s.name("3/")] = &seaWriter{}
		}
	},
	func(s *sea) { // a writer takes an id
		if name, ok := pick(s, s.writers); ok {
			s.next++
			w := s.writers[name]
			if w.number == 0 && (len(w.ids) > 0 || s.random.IntN(2) == 0) {
				s.numbers++
				w.number = s.numbers
			}
			w.ids = append(w.ids, s.next)
		}
	},
	func(s *sea) { // a writer commits
		if name, ok := pick(s, s.writers); ok && s.ends(name) {
			for _, id := range s.writers[name].ids {
				s.open[id] = true
			}
			delete(s.writers, name)
		}
	},
	func(s *sea) { // a writer rolls back, or prepares its transaction
		if name, ok := pick(s, s.writers); ok && s.ends(name) {
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
		if id, ok := pick(s, s.finished); ok && s.random.IntN(20) == 0 {
			delete(s.finished, id)
			s.open[id] = true
			s.version++
			s.operated++
		}
	},
	func(s *sea) { // this process brings a row back, or defers some
		if s.random.IntN(20) > 0 { // as seldom as operators
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
	func(s *sea) { // a server takes over that has not all of what was committed, and no transaction
		if s.random.IntN(100) > 0 || s.next == 0 {
			return
		}
		s.next -= s.random.Int64N(min(s.next, 5)) + 1
		for _, rows := range []map[int64]bool{s.open, s.finished} {
			maps.DeleteFunc(rows, func(id int64, _ bool) bool { return id > s.next })
		}
		clear(s.writers)
		s.session++
		s.replaced++
	},
	func(s *sea) { // and notes one of these, in any order
		if len(s.lifts) > 0 {
			n := s.random.IntN(len(s.lifts))
			s.lifts[n]()
			s.lifts = slices.Delete(s.lifts, n, n+1)
		}
	},
}

// claim begins a claim, or takes one of those in progress a step further.
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
			c.sighting.listed, c.sighting.writers = true, map[string]int64{}
			if c.sighting.session != s.session { // the answer never came
				s.claims = slices.Delete(s.claims, n, n+1)
				return
			}
			for name, w := range s.writers {
				c.sighting.writers[name] = w.number
			}
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
	if c.baseline.version == s.version && slices.Contains(c.baseline.sessions, s.session) {
		floor = c.baseline.floor
		if len(c.baseline.writers) > 0 && s.run(c.baseline.writers) {
			floor = c.baseline.above
			if floor > max(c.baseline.floor, 0) {
				s.beside++
			}
		}
		if s.operated > 0 && floor > 0 {
			s.believed++
		}
		if s.replaced > 0 && floor > 0 {
			s.after++
		}
	}
	c.sighting.told, c.sighting.version, c.sighting.session = true, s.version, s.session
	for _, id := range slices.Sorted(maps.Keys(s.open)) {
		require.GreaterOrEqual(s, id, floor, "a row is open below the mark")
		if c.sighting.first == nil {
			c.sighting.first = &id
		}
		c.sighting.last = id
	}
}

// run reports whether all of these transactions are in progress.
func (s *sea) run(numbers []int64) bool {
	return !slices.ContainsFunc(numbers, func(number int64) bool {
		for _, w := range s.writers {
			if w.number == number {
				return false
			}
		}
		return true
	})
}

// No claim misses a row, whatever writers, operators and other claims do in between.
func TestLowWaterNeverPassesARow(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(uint64(testenv.Seed(t)), 0))
	runs := 2000
	if testenv.Long() {
		runs = 20_000
	}
	raised, believed, beside, after := 0, 0, 0, 0
	for range runs {
		s := &sea{T: t, random: random, writers: map[string]*seaWriter{}, open: map[int64]bool{}, finished: map[int64]bool{}}
		s.water.every, s.long = 1+random.IntN(2), random.IntN(2) == 0
		likely := make([]int, 0, 30) // some steps are more likely than others, in each run others
		for step := range seaSteps {
			likely = append(likely, slices.Repeat([]int{step}, random.IntN(5))...)
		}
		for range 600 {
			if random.IntN(2) == 0 || len(likely) == 0 {
				s.claim()
			} else {
				seaSteps[likely[random.IntN(len(likely))]](s)
			}
		}
		if s.water.line("b", 1).class[0].floor > 0 {
			raised++
		}
		believed, beside, after = believed+min(s.believed, 1), beside+min(s.beside, 1), after+min(s.after, 1)
	}
	t.Logf("%d of %d runs ended with a mark, in %d one was of use after an operator had brought rows back, in %d beside an open transaction, in %d on another server",
		raised, runs, believed, beside, after)
	assert.Greater(t, raised, runs/20, "else the test tests little")
	assert.Greater(t, believed, runs/50, "a mark that no claim goes by is of no use")
	assert.Greater(t, beside, runs/100)
	assert.Greater(t, after, runs/200)
}

const insertTide = `INSERT INTO tide (message_id, target_broker, stream, type, ordering_key, payload)
	SELECT gen_random_uuid(), 'b', 's', 't', 'key', '' FROM generate_series(1, $1::int)`
