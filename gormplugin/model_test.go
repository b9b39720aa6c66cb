package gormplugin_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gorm-fanout/fanout/outbox"
)

// The model says what a program has to do, from the rules alone: whatever a rollback takes back is
// copied when the savepoint is set, and put back. It knows nothing of journals, clocks and pools.

// happening is an event in the model.
type happening struct {
	n    int
	kind string
	at   int // when it was raised
	id   int // of its message: its own number, or that of the event in whose place it was raised again

	first, last int // when the work was rolled back in which it was raised, for the first and the last time
	replaces    bool
	left        bool // by a transaction that was rolled back
	itself      bool // which was given the value that raised it
}

func (h *happening) refused() bool { return h.kind == "choked" || h.kind == "stray" }

// stored is a row of the outbox. A message is there once for each broker.
type stored struct {
	id     int
	broker string
	n      int
}

func (r stored) String() string {
	if r.id == r.n {
		return fmt.Sprintf("%d %s", r.n, r.broker)
	}
	return fmt.Sprintf("%d as %d %s", r.n, r.id, r.broker)
}

// rows are those that it gets in the outbox.
func (h *happening) rows() []stored {
	rows := []stored{{h.id, "default", h.n}}
	if h.kind == "rung" {
		rows = append(rows, stored{h.id, "partner", h.n})
	}
	return rows
}

// world is what a rollback, of all or to a savepoint, puts back as it was.
type world struct {
	rows   map[string]string
	outbox []stored
	doubt  bool // a deferred constraint is violated
	torn   bool // a batch was written in part: nobody knows whose events happened, and the transaction cannot commit

	// What the transaction knows: the aggregates that it wrote and those that it failed to write,
	// and when; those of a batch without events that was written in part, so that nobody knows
	// which they are; events without an aggregate; and what is to run after the commit.
	written, missed map[int]int
	wroteItself     map[int]int  // when it wrote the value that raises
	unknown         map[int]bool // it is not known which value it wrote last
	unsure          map[int]bool
	published       []*happening
	after           []int
}

func (w *world) clone() world {
	return world{
		rows: maps.Clone(w.rows), outbox: slices.Clone(w.outbox), doubt: w.doubt, torn: w.torn,
		written: maps.Clone(w.written), missed: maps.Clone(w.missed), unsure: maps.Clone(w.unsure),
		wroteItself: maps.Clone(w.wroteItself), unknown: maps.Clone(w.unknown),
		published: slices.Clone(w.published), after: slices.Clone(w.after),
	}
}

type mark struct {
	name   string
	before world
	at     int
}

// transaction in progress. In a foreign one rows are written at the statement, and nobody sees the
// commit.
type transaction struct {
	world
	marks   []mark
	aborted bool // PostgreSQL: after an error only a rollback is listened to
	foreign bool
	sent    []*happening // in a foreign one

	// What no rollback to a savepoint takes back.
	begun   int
	starts  []int        // when the transaction and its savepoints began
	undone  [][2]int     // from a savepoint to its rollback
	known   map[int]bool // aggregates of statements, and those that were loaded and raised something
	uses    map[int]*use // by what statements were given, whatever became of them
	loaded  map[int]bool
	bearing map[int]bool // loaded, and raised something since

	vague    bool // it would write events that may be those of copies
	ofCopies int  // events that it does not write, since they are
}

// use is with which values of an aggregate a transaction works.
type use struct {
	itself bool // the one that raises
	copy   bool // a copy, when there were events
	last   bool // when there were events, itself was used after all copies
	seen   bool // when there were events, itself was used
	now    bool // by the statement that runs: a copy
}

type model struct {
	dialect outbox.Dialect
	strict  bool

	now       int
	committed world
	tx        *transaction
	session   *op                  // the outermost op, for its session
	unknown   bool                 // where the value of the statement stands
	pending   map[int][]*happening // by aggregate
	raises    int
	ran       []int // functions after commits
	left      int   // events that commits have warned of
	log       []string
}

func newModel(dialect outbox.Dialect, strict bool) *model {
	return &model{dialect: dialect, strict: strict, committed: world{rows: map[string]string{}}, pending: map[int][]*happening{}}
}

func (m *model) tick() int {
	m.now++
	return m.now
}

func (m *model) happens(kind string) *happening {
	m.raises++
	return &happening{n: m.raises, kind: kind, at: m.tick(), id: m.raises}
}

func (m *model) raise(agg int, kind string) {
	m.pending[agg] = append(m.pending[agg], m.happens(kind))
	if m.tx != nil && m.tx.loaded[agg] {
		m.tx.bearing[agg], m.tx.known[agg] = true, true
	}
}

func (m *model) begin(foreign bool) {
	t := &transaction{world: m.committed.clone(), foreign: foreign, begun: m.tick(), known: map[int]bool{}, uses: map[int]*use{}, loaded: map[int]bool{}, bearing: map[int]bool{}}
	t.starts = []int{t.begun}
	t.written, t.missed, t.unsure = map[int]int{}, map[int]int{}, map[int]bool{}
	t.wroteItself, t.unknown = map[int]int{}, map[int]bool{}
	m.tx = t
}

func (m *model) rollback() {
	t, now := m.tx, m.tick()
	m.tx = nil
	if t.foreign {
		return
	}
	for agg := range t.known {
		m.settle(t, agg)
		for _, h := range m.pending[agg] {
			if h.at > t.begun {
				h.undo(now)
				h.replaces = false
			}
			m.abandon(t, agg, h)
		}
		m.part(t, agg)
	}
}

// part: where a transaction was given the value that raised the events, copies that are made from then on share
// them with it alone, so that it is the same which of them is saved.
func (m *model) part(t *transaction, agg int) {
	if u := t.uses[agg]; u != nil && u.last {
		m.partItself(agg)
	}
}

func (m *model) partItself(agg int) bool {
	if slices.ContainsFunc(m.pending[agg], func(h *happening) bool { return !h.left || !h.itself }) {
		return false
	}
	for _, h := range m.pending[agg] {
		h.left = false
	}
	return true
}

// abandon marks what a transaction leaves: it goes with a save of the value that raised it.
func (m *model) abandon(t *transaction, agg int, h *happening) {
	u := t.uses[agg]
	if u == nil {
		u = &use{}
	}
	if h.at > t.begun || u.copy || u.itself {
		h.left, h.itself = true, u.itself
	}
}

// uses says that a statement was given an aggregate, or a copy of it.
func (m *model) use(agg int, copied bool) {
	u := m.tx.uses[agg]
	if u == nil || m.tx.foreign { // where each statement is by itself
		u = &use{}
		m.tx.uses[agg] = u
	}
	u.now = copied
	u.itself = u.itself || !copied
	if len(m.pending[agg]) > 0 {
		u.copy = u.copy || copied
		if copied || !u.seen { // the first use counts
			u.last = !copied
		}
		u.seen = u.seen || !copied
	}
}

// useAgain is after a statement, whose hooks may have raised events.
func (m *model) useAgain(agg int) {
	if u := m.tx.uses[agg]; u != nil && !m.tx.foreign && !m.unknown {
		m.use(agg, u.now)
	}
}

// elsewhere reports whether an event is that of another value than those of a transaction, and whether
// it cannot be told.
func (m *model) elsewhere(t *transaction, agg int, h *happening) (elsewhere, vague bool) {
	if u := t.uses[agg]; !h.left || u != nil && u.itself {
		return false, false
	}
	return h.itself, !h.itself
}

func (h *happening) undo(at int) {
	if h.last == 0 {
		h.first = at
	}
	h.last = max(h.last, at)
}

// settle marks the events that rollbacks to savepoints have undone, and takes out those that were
// raised again: of the same kind, in work that began after the rollback.
func (m *model) settle(t *transaction, agg int) {
	for _, h := range m.pending[agg] {
		for _, span := range t.undone {
			if span[0] < h.at && h.at < span[1] {
				h.undo(span[1])
			}
		}
	}
	for _, h := range slices.Clone(m.pending[agg]) {
		if h.last > 0 && m.raisedAgain(t, agg, h) {
			m.pending[agg] = slices.DeleteFunc(m.pending[agg], func(other *happening) bool { return other == h })
		}
	}
}

func (m *model) raisedAgain(t *transaction, agg int, undone *happening) bool {
	for _, h := range m.pending[agg] {
		between := func(start int) bool { return undone.first < start && start < h.at }
		if h.kind == undone.kind && !h.replaces && slices.ContainsFunc(t.starts, between) {
			h.replaces, h.id = true, undone.id
			return true
		}
	}
	return false
}

// flush is what a commit is to write: what the aggregates that were written have pending, in the
// order of raising. What was rolled back with no write of its aggregate since, or was raised before
// a statement on it that changed no row, is not.
func (m *model) flush(t *transaction) []*happening {
	flush := slices.Clone(t.published)
	t.vague, t.ofCopies = false, 0
	for agg, written := range t.written {
		m.settle(t, agg)
		for _, h := range m.pending[agg] {
			inVain := written < h.at && h.at < t.missed[agg]
			if h.last >= written || inVain {
				continue
			}
			elsewhere, vague := m.elsewhere(t, agg, h)
			// Of this transaction's part that went back to a savepoint, and written again with a copy.
			vague = vague || !elsewhere && h.left && h.last > 0 && !t.unknown[agg] && t.wroteItself[agg] < h.last
			if t.vague = t.vague || vague; elsewhere {
				t.ofCopies++
			} else {
				flush = append(flush, h)
			}
		}
	}
	return inOrder(flush)
}

func inOrder(events []*happening) []*happening {
	slices.SortFunc(events, func(a, b *happening) int { return cmp.Compare(a.at, b.at) })
	return events
}

func (m *model) commit() result {
	t := m.tx
	if t.foreign {
		m.tx = nil
		if t.aborted || t.doubt || t.torn {
			return failed
		}
		m.committed = world{rows: t.rows, outbox: t.outbox}
		m.confirm(t.sent)
		return done
	}
	flush := m.flush(t)
	left := m.leaves(t, flush)
	if t.aborted || t.doubt || t.torn || t.vague || slices.ContainsFunc(flush, (*happening).refused) || m.strict && left > 0 || m.unsure(t, flush) {
		m.rollback()
		return failed
	}
	m.tx = nil
	t.emit(flush)
	for agg := range m.pending {
		m.pending[agg] = slices.DeleteFunc(m.pending[agg], func(h *happening) bool { return slices.Contains(flush, h) })
	}
	for agg := range t.known {
		m.settle(t, agg)
	}
	m.left += left
	m.ran = append(m.ran, t.after...)
	m.committed = world{rows: t.rows, outbox: t.outbox}
	return done
}

// keeps are the events of an aggregate that a flush leaves pending.
func (m *model) keeps(agg int, flush []*happening) []*happening {
	return slices.DeleteFunc(slices.Clone(m.pending[agg]), func(h *happening) bool { return slices.Contains(flush, h) })
}

// leaves counts the events that a flush leaves pending on aggregates that were to be written, or
// that were loaded before they raised them in the transaction.
func (m *model) leaves(t *transaction, flush []*happening) int {
	left := t.ofCopies
	for agg := range t.missed {
		if !t.unsure[agg] {
			left += len(m.keeps(agg, flush))
		}
	}
	for agg := range t.bearing {
		m.settle(t, agg)
		keeps := m.keeps(agg, flush)
		if _, missed := t.missed[agg]; missed || len(keeps) < len(m.pending[agg]) {
			continue
		}
		for _, h := range keeps {
			if h.at > t.begun && h.last == 0 {
				left++
			}
		}
	}
	return left
}

// unsure reports whether a flush leaves events on an aggregate of which nobody knows whether it was
// written.
func (m *model) unsure(t *transaction, flush []*happening) bool {
	for agg := range t.unsure {
		if len(m.keeps(agg, flush)) > 0 {
			return true
		}
	}
	return false
}

// emit writes the rows that are not there yet: those of a foreign transaction may be.
func (w *world) emit(events []*happening) {
	for _, h := range events {
		for _, r := range h.rows() {
			if !slices.ContainsFunc(w.outbox, func(there stored) bool { return there.id == r.id && there.broker == r.broker }) {
				w.outbox = append(w.outbox, r)
			}
		}
	}
}

// wrote says that a statement has written aggregates.
func (m *model) wrote(aggs ...int) result {
	if m.tx.foreign {
		var events []*happening
		for _, agg := range aggs {
			for _, h := range m.pending[agg] {
				elsewhere, vague := m.elsewhere(m.tx, agg, h)
				if vague {
					return failed
				}
				if !elsewhere {
					events = append(events, h)
				}
			}
		}
		return m.writeNow(inOrder(events))
	}
	for _, agg := range aggs {
		m.useAgain(agg)
		m.tx.known[agg] = true
		m.tx.written[agg] = m.tick()
		m.tx.unknown[agg] = m.unknown
		if u := m.tx.uses[agg]; u != nil && !u.now && !m.unknown {
			m.tx.wroteItself[agg] = m.tx.written[agg]
		}
		delete(m.tx.missed, agg)
		delete(m.tx.unsure, agg)
	}
	return done
}

func (m *model) writeNow(events []*happening) result {
	if slices.ContainsFunc(events, (*happening).refused) || m.tx.aborted && len(events) > 0 {
		return failed
	}
	m.tx.sent = append(m.tx.sent, events...)
	m.tx.emit(events)
	return done
}

// confirm takes events from their aggregates whose rows have become visible.
func (m *model) confirm(events []*happening) {
	for agg := range m.pending {
		m.pending[agg] = slices.DeleteFunc(m.pending[agg], func(h *happening) bool {
			there := func(r stored) bool { return r.id == h.id }
			return slices.Contains(events, h) && slices.ContainsFunc(m.committed.outbox, there)
		})
	}
}

// missed says that a statement has changed no row of aggregates.
func (m *model) missed(aggs ...int) result {
	for _, agg := range aggs {
		m.useAgain(agg)
		m.tx.known[agg] = true
		if !m.tx.unsure[agg] { // a doubt stays until it is written
			m.tx.missed[agg] = m.tick()
		}
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
	at := m.tick()
	m.tx.starts = append(m.tx.starts, at)
	if m.dialect == outbox.MySQL { // the new one takes the place of the old one
		m.tx.marks = slices.DeleteFunc(slices.Clone(m.tx.marks), func(old mark) bool { return old.name == m.fold(name) })
	}
	m.tx.marks = append(m.tx.marks, mark{m.fold(name), m.tx.clone(), at})
	return done
}

// fold makes names alike that the database takes for the same.
func (m *model) fold(name string) string {
	bare := strings.Trim(name, `"`)
	if m.dialect == outbox.SQLite || m.dialect == outbox.MySQL || m.dialect == outbox.Postgres && bare == name {
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
	written := m.tx.written
	m.tx.world = back.before.clone()
	m.tx.undone = append(m.tx.undone, [2]int{back.at, m.tick()})
	if m.tx.foreign {
		return done
	}
	for agg, at := range written {
		if at > back.at {
			m.goneBack(agg)
		}
	}
	return done
}

// goneBack is for an aggregate that was written since a savepoint to which the transaction has gone back.
func (m *model) goneBack(agg int) {
	m.settle(m.tx, agg)
	u := m.tx.uses[agg]
	if u == nil || !u.itself {
		return
	}
	_, written := m.tx.written[agg]
	for _, h := range m.pending[agg] {
		if h.last > 0 || !written {
			h.left, h.itself = true, true
		}
	}
	if !written && len(m.pending[agg]) > 0 && m.partItself(agg) {
		u.last, u.seen = true, true
	}
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

func describe(rows map[string]string, outbox []stored, pending [][]int, ran []int, left int) string {
	return fmt.Sprintf("rows %v, outbox %v, pending %v, ran after commits %v, left pending %d", rows, outbox, pending, ran, left)
}
