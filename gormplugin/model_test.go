package gormplugin_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gorm-fanout/fanout/outbox"
)

// The model says what a program has to do, from the rules alone: whatever a rollback takes back is copied when the
// savepoint is set, and put back. It knows nothing of journals, clocks and pools.

// happening is an event in the model.
type happening struct {
	n    int
	kind string
}

func (h happening) refused() bool { return h.kind == "choked" || h.kind == "stray" }

// rows are those that it gets in the outbox.
func (h happening) rows() []string {
	if h.kind == "rung" {
		return []string{fmt.Sprintf("%d default", h.n), fmt.Sprintf("%d partner", h.n)}
	}
	return []string{fmt.Sprintf("%d default", h.n)}
}

// world is what a rollback, of all or to a savepoint, puts back as it was.
type world struct {
	rows   map[string]string
	outbox []string
	doubt  bool // a deferred constraint is violated
	torn   bool // a batch was written in part: nobody knows whose events happened, and the transaction cannot commit

	// What the transaction knows: the aggregates that it wrote, those that it failed to write, and those of a batch without
	// events that was written in part, so that nobody knows which they are; events that were raised in a savepoint which
	// was rolled back, with no write of their aggregate since; events without an aggregate; and what is to run after the
	// commit.
	written, missed, unsure map[int]bool
	undone                  map[int]bool
	published               []happening
	after                   []int
}

func (w *world) clone() world {
	return world{
		rows: maps.Clone(w.rows), outbox: slices.Clone(w.outbox), doubt: w.doubt, torn: w.torn,
		written: maps.Clone(w.written), missed: maps.Clone(w.missed), unsure: maps.Clone(w.unsure), undone: maps.Clone(w.undone),
		published: slices.Clone(w.published), after: slices.Clone(w.after),
	}
}

type mark struct {
	name   string
	before world
	raises int // how many events there were
}

// transaction under way. In a foreign one rows are written at the statement, and nobody sees the commit.
type transaction struct {
	world
	marks   []mark
	aborted bool // PostgreSQL: after an error only a rollback is listened to
	foreign bool
}

type model struct {
	dialect outbox.Dialect
	strict  bool

	committed world
	tx        *transaction
	session   *op                 // the outermost op, for its session
	pending   map[int][]happening // by aggregate
	raises    int
	ran       []int // functions after commits
	left      int   // events that commits have warned of
	log       []string
}

func newModel(dialect outbox.Dialect, strict bool) *model {
	return &model{dialect: dialect, strict: strict, committed: world{rows: map[string]string{}}, pending: map[int][]happening{}}
}

func (m *model) raise(agg int, kind string) {
	m.raises++
	m.pending[agg] = append(m.pending[agg], happening{m.raises, kind})
}

func (m *model) begin(foreign bool) {
	m.tx = &transaction{world: m.committed.clone(), foreign: foreign}
	m.tx.written, m.tx.missed, m.tx.unsure, m.tx.undone = map[int]bool{}, map[int]bool{}, map[int]bool{}, map[int]bool{}
}

func (m *model) rollback() { m.tx = nil }

// flush is what a commit is to write: what the aggregates that were written have pending, in the order of raising.
func (m *model) flush(t *transaction) []happening {
	flush := slices.Clone(t.published)
	for agg := range t.written {
		for _, h := range m.pending[agg] {
			if !t.undone[h.n] {
				flush = append(flush, h)
			}
		}
	}
	return inOrder(flush)
}

func inOrder(events []happening) []happening {
	slices.SortFunc(events, func(a, b happening) int { return cmp.Compare(a.n, b.n) })
	return events
}

func (m *model) commit() result {
	t := m.tx
	m.tx = nil
	if t.aborted || t.doubt || t.torn {
		return failed
	}
	if !t.foreign {
		flush := m.flush(t)
		left := m.leaves(t.missed, flush)
		if slices.ContainsFunc(flush, happening.refused) || m.strict && left > 0 || m.leaves(t.unsure, flush) > 0 {
			return failed
		}
		t.emit(flush)
		for agg := range m.pending {
			m.pending[agg] = slices.DeleteFunc(m.pending[agg], func(h happening) bool { return slices.Contains(flush, h) })
		}
		m.left += left
		m.ran = append(m.ran, t.after...)
	}
	m.committed = world{rows: t.rows, outbox: t.outbox}
	return done
}

// leaves counts what a flush leaves pending on aggregates.
func (m *model) leaves(aggs map[int]bool, flush []happening) int {
	left := 0
	for agg, is := range aggs {
		if !is {
			continue
		}
		for _, h := range m.pending[agg] {
			if !slices.Contains(flush, h) {
				left++
			}
		}
	}
	return left
}

// emit writes the rows that are not there yet: those of a foreign transaction may be.
func (w *world) emit(events []happening) {
	for _, h := range events {
		for _, row := range h.rows() {
			if !slices.Contains(w.outbox, row) {
				w.outbox = append(w.outbox, row)
			}
		}
	}
}

// wrote says that a statement has written aggregates.
func (m *model) wrote(aggs ...int) result {
	if m.tx.foreign {
		var events []happening
		for _, agg := range aggs {
			events = append(events, m.pending[agg]...)
		}
		return m.writeNow(inOrder(events))
	}
	for _, agg := range aggs {
		m.tx.written[agg] = true
		delete(m.tx.missed, agg)
		delete(m.tx.unsure, agg)
		for _, h := range m.pending[agg] {
			delete(m.tx.undone, h.n)
		}
	}
	return done
}

func (m *model) writeNow(events []happening) result {
	if slices.ContainsFunc(events, happening.refused) || m.tx.aborted && len(events) > 0 {
		return failed
	}
	m.tx.emit(events)
	return done
}

// missed says that a statement has changed no row of aggregates.
func (m *model) missed(aggs ...int) result {
	for _, agg := range aggs {
		m.tx.missed[agg] = !m.tx.unsure[agg] // a doubt stays until it is written
	}
	return done
}

// refuse is an error of the database.
func (m *model) refuse() result {
	m.tx.aborted = m.tx.aborted || m.dialect == outbox.Postgres
	return failed
}

func (m *model) savepoint(name string) result {
	if m.tx.aborted {
		return failed
	}
	m.tx.marks = append(m.tx.marks, mark{m.fold(name), m.tx.clone(), m.raises})
	return done
}

// fold makes names alike that the database takes for the same.
func (m *model) fold(name string) string {
	bare := strings.Trim(name, `"`)
	if m.dialect == outbox.SQLite || m.dialect == outbox.Postgres && bare == name {
		return strings.ToLower(bare)
	}
	return bare
}

func (m *model) findMark(name string) int {
	name = m.fold(name)
	for i, mark := range slices.Backward(m.tx.marks) {
		if mark.name == name {
			return i
		}
	}
	return -1
}

func (m *model) rollbackTo(name string) result {
	i := m.findMark(name)
	if i < 0 {
		return m.refuse()
	}
	back := m.tx.marks[i]
	m.tx.marks = m.tx.marks[:i+1]
	m.tx.aborted = false
	m.tx.world = back.before.clone()
	for _, events := range m.pending {
		for _, h := range events {
			if h.n > back.raises {
				m.tx.undone[h.n] = true
			}
		}
	}
	return done
}

func (m *model) release(name string) result {
	i := m.findMark(name)
	if m.tx.aborted || i < 0 {
		return m.refuse()
	}
	m.tx.marks = m.tx.marks[:i]
	return done
}

// block runs a body in a transaction, or in a savepoint of the one around it.
func (m *model) block(id int, foreign bool, body func() result) result {
	if m.tx == nil {
		m.begin(foreign)
		got := body()
		if got == done {
			return m.commit()
		}
		m.rollback()
		return got
	}
	name := fmt.Sprintf("of %d", id)
	m.savepoint(name)
	got := body()
	if got != done {
		m.rollbackTo(name)
	}
	return got
}

// describe is what can be seen between transactions.
func (m *model) describe() string {
	pending := make([][]int, len(aggregateNames))
	for agg := range pending {
		for _, h := range m.pending[agg] {
			pending[agg] = append(pending[agg], h.n)
		}
	}
	return describe(m.committed.rows, m.committed.outbox, pending, m.ran, m.left)
}

func describe(rows map[string]string, outbox []string, pending [][]int, ran []int, left int) string {
	return fmt.Sprintf("rows %v, outbox %q, pending %v, ran after commits %v, left pending %d", rows, outbox, pending, ran, left)
}
