package gormplugin_test

import (
	"fmt"
	"slices"
	"strings"

	"gorm.io/gorm"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// The domain of the property test: two crates with items, a purse whose key is composite, and two
// seals whose keys the database would make.

// Crate fails, panics or raises in its hook when it is told to.
type Crate struct {
	ID   string `gorm:"primaryKey"`
	Note string
	uow.Aggregate

	Items  []Item
	inHook func(*Crate) error
}

// AfterSave is the hook.
func (b *Crate) AfterSave(*gorm.DB) error {
	if b.inHook == nil {
		return nil
	}
	return b.inHook(b)
}

type Item struct {
	ID      string `gorm:"primaryKey"`
	CrateID string
	Note    string
	uow.Aggregate
}

type Purse struct {
	Bank    string `gorm:"primaryKey"`
	Number  int    `gorm:"primaryKey;autoIncrement:false"`
	Note    string
	Version int
	uow.Aggregate
}

type Seal struct {
	ID   string `gorm:"primaryKey;size:64;default:(lower('made'))"`
	Note string
	uow.Aggregate
}

// The aggregates by number, and which are the items of a crate.
var (
	aggregateNames = []string{"crate 0", "crate 1", "purse", "item 0.0", "item 0.1", "item 1.0", "seal 1", "seal 2"}
	itemsOf        = map[int][]int{0: {3, 4}, 1: {5}}
)

const (
	purse     = 2
	firstItem = 3
	firstSeal = 6
)

// What a program raises. N numbers the events of a program in the order in which they were raised.
type (
	Rung   struct{ N int } // goes to both brokers
	Ticked struct{ N int } // is internal
	Choked struct {        // cannot be encoded
		N int
		C chan int
	}
	Stray struct{ N int } // is not registered
)

func eventOf(kind string, n int) any {
	switch kind {
	case "rung":
		return Rung{n}
	case "ticked":
		return Ticked{n}
	case "choked":
		return Choked{N: n, C: make(chan int)}
	default:
		return Stray{n}
	}
}

// result of an op, as the application sees it.
type result string

const (
	done     result = "ok"
	failed   result = "error"
	panicked result = "panic"
)

// An op is one step of a program.
type op struct {
	ID    int // its number in the program
	Kind  string
	Agg   int
	Event string
	Name  string // of a savepoint
	Hook  string // what the crate's hook does: nothing, or fails, panics, raises

	// Of blocks: what is done in them, how the function ends that was handed to GORM, whether it
	// ends with the first error too, and whether a panic goes on to the block around it.
	Body    []op
	End     result
	Stops   bool
	Through bool

	// Of a program's outermost ops: the session that they run on.
	Prepare, NoDefault, Conn bool
}

// GoString is how rapid shows a program.
func (o op) GoString() string {
	var s strings.Builder
	o.write(&s, "\n")
	return s.String()
}

func (o op) write(s *strings.Builder, indent string) {
	fmt.Fprintf(s, "%s%d %s", indent, o.ID, o.Kind)
	for _, word := range []string{o.Event, o.Name, o.Hook} {
		if word != "" {
			s.WriteString(" " + word)
		}
	}
	if o.Kind != "publish" && o.Body == nil && o.Name == "" {
		s.WriteString(" " + aggregateNames[o.Agg])
	}
	for word, on := range map[string]bool{"stops": o.Stops, "through": o.Through, "prepared": o.Prepare, "no default": o.NoDefault, "conn": o.Conn} {
		if on {
			s.WriteString(" [" + word + "]")
		}
	}
	for _, inner := range o.Body {
		inner.write(s, indent+"\t")
	}
	if o.End != "" {
		fmt.Fprintf(s, "%s\t=> %s", indent, o.End)
	}
}

// perform runs the steps of a body.
func perform(o *op, step func(*op) result) result {
	for i := range o.Body {
		inner := &o.Body[i]
		switch got := step(inner); {
		case got == panicked && inner.Through:
			return panicked
		case got != done && o.Stops:
			return failed
		}
	}
	return o.End
}

// Kinds repeat by weight.
var (
	statements = words("save*6 create*2 update*4 miss*2 column delete*2 delete_value delete_where raw creates saves*2 values batches ignores*2 broken " +
		"imports*3 returns returns_update returns_delete lends")
	others     = words("raise*16 load*4 publish*3 track*2 after*2")
	savepoints = words("savepoint*4 rollback_to*2 SAVEPOINT*4 ROLLBACK_TO*3 RELEASE*2")
	nested     = words("transaction*4 do*2")
	outermost  = words("transaction*5 do*3 begin*4 own*2")
	eventKinds = words("rung*16 ticked*16 choked stray")
)

// words reads a list such as "a*2 b": a, a and b.
func words(list string) []string {
	var all []string
	for word := range strings.FieldsSeq(list) {
		n := 1
		name, times, repeated := strings.Cut(word, "*")
		if repeated {
			_, _ = fmt.Sscan(times, &n)
		}
		for range n {
			all = append(all, name)
		}
	}
	return all
}

// names of savepoints, as databases take them: in quotes or not, for the same or for different
// ones.
var names = []string{"a", "a", "a", "b", "A", `"a"`, `"A"`}

// programs draws programs that a database understands: mysql is MySQL, and not MariaDB.
func programs(dialect outbox.Dialect, mysql bool) *rapid.Generator[[]op] {
	inside, nested := slices.Concat(statements, others, savepoints), nested
	if dialect == outbox.Postgres { // it can check constraints at the commit
		inside = append(inside, "doubt")
	}
	if dialect == outbox.SQLServer {
		inside = slices.DeleteFunc(inside, func(kind string) bool { return kind == "RELEASE" })
	}
	if dialect == outbox.MySQL { // its UPDATE returns nothing, and MariaDB's INSERT what was there, too
		inside = slices.DeleteFunc(inside, func(kind string) bool {
			return kind == "returns_update" || kind == "imports" || mysql && kind == "returns_delete"
		})
		// A transaction within one that has gone back beyond its savepoint cannot go back to it. GORM's
		// driver says so, and GORM has the outer commit say so, too, although that is done.
		nested = nil
	}
	top := slices.Concat(outermost, outermost, outermost, slices.DeleteFunc(slices.Clone(statements), func(kind string) bool { return !slices.Contains(inside, kind) }), others) // programs are about transactions
	draw := rapid.Custom(func(t *rapid.T) op {
		o := drawOp(t, top, inside, nested, 3)
		o.Prepare = oneIn(t, 4, "prepared")
		o.NoDefault = oneIn(t, 4, "no default transaction")
		o.Conn = oneIn(t, 8, "conn")
		return o
	})
	return rapid.Map(rapid.SliceOfN(draw, 2, 9), func(program []op) []op {
		n := 0
		number(program, &n)
		return program
	})
}

// number gives every op its number.
func number(ops []op, n *int) {
	for i := range ops {
		ops[i].ID = *n
		*n++
		number(ops[i].Body, n)
	}
}

// choose draws evenly, while rapid's own generators prefer what stands first. Shrinking leads
// there.
func choose[T any](t *rapid.T, label string, from ...T) T {
	i := 0
	for range 8 {
		i <<= 1
		if rapid.Bool().Draw(t, label) {
			i++
		}
	}
	return from[i%len(from)]
}

func oneIn(t *rapid.T, n int, label string) bool {
	yes := make([]bool, n)
	yes[n-1] = true
	return choose(t, label, yes...)
}

func drawOp(t *rapid.T, kinds, inside, nested []string, depth int) op {
	o := op{Kind: choose(t, "kind", kinds...)}
	switch o.Kind {
	case "transaction", "do", "begin", "own":
		kinds := inside
		if depth > 1 {
			kinds = slices.Concat(inside, nested)
		}
		o.Body = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) op { return drawOp(t, kinds, inside, nested, depth-1) }), 0, 16).Draw(t, "body")
		o.End = choose(t, "end", done, done, done, done, failed, panicked)
		o.Stops, o.Through = oneIn(t, 3, "stops"), oneIn(t, 3, "through")
	case "savepoint", "rollback_to", "SAVEPOINT", "ROLLBACK_TO", "RELEASE":
		o.Name = choose(t, "name", names...)
	case "raise", "publish":
		o.Event = choose(t, "event", eventKinds...)
		o.Agg = drawAggregate(t)
	case "creates", "saves", "values", "batches", "ignores", "raw", "imports", "returns", "returns_update", "returns_delete", "lends":
		o.Agg = choose(t, "which first", 0, 1)
	default:
		o.Agg = drawAggregate(t)
		o.Hook = choose(t, "hook", "", "", "", "", "", "", "", "fails", "panics", "raises", "raises", "raises")
	}
	return o
}

func drawAggregate(t *rapid.T) int {
	return choose(t, "aggregate", 0, 0, 0, 1, 1, purse, 3, 4, 5, firstSeal, firstSeal+1)
}
