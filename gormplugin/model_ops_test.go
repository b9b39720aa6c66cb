package gormplugin_test

import (
	"slices"
	"strconv"

	"github.com/gorm-fanout/fanout/outbox"
)

// run is what the model makes of a program.
func (m *model) run(program []op) []string {
	for i := range program {
		m.session = &program[i]
		m.step(m.session)
		m.log = append(m.log, m.describe())
	}
	return m.log
}

func (m *model) step(o *op) result {
	got := m.do(o)
	m.log = append(m.log, strconv.Itoa(o.ID)+" "+o.Kind+": "+string(got))
	return got
}

func (m *model) do(o *op) result {
	body := func() result { return perform(o, m.step) }
	m.unknown = o.Kind == "delete_value"
	switch o.Kind {
	case "transaction":
		return m.block(o.ID, o.Conn, body)
	case "begin":
		return m.block(o.ID, o.Conn, body)
	case "do":
		return m.block(o.ID, false, body)
	case "own":
		return m.block(o.ID, true, body)
	case "raise":
		m.raise(o.Agg, o.Event)
		return done
	case "publish":
		return m.publish(o.Event)
	case "track":
		if m.tx == nil {
			return failed
		}
		m.use(o.Agg, false)
		return m.wrote(o.Agg)
	case "after":
		if m.tx == nil || m.tx.foreign {
			return failed
		}
		m.tx.after = append(m.tx.after, o.ID)
		return done
	case "savepoint", "rollback_to": // GORM keeps what the database says to itself, but for MySQL's driver
		if got := m.mark(o); m.dialect == outbox.MySQL {
			return got
		}
		return done
	case "SAVEPOINT", "ROLLBACK_TO", "RELEASE":
		return m.mark(o)
	case "save":
		return m.save(o)
	case "batches":
		return m.batches(o)
	case "load":
		return m.load(o)
	default:
		return m.statement(o, func() result { return m.write(o) })
	}
}

// load reads an aggregate into the variable that holds it: what was undone is not true of it any
// longer.
func (m *model) load(o *op) result {
	w := &m.committed
	if m.tx != nil {
		w = &m.tx.world
		if m.tx.aborted {
			return failed
		}
	}
	if _, ok := w.rows[aggregateNames[o.Agg]]; !ok {
		return failed
	}
	if t := m.tx; t != nil && !t.foreign {
		m.settle(t, o.Agg)
		t.loaded[o.Agg] = true
	}
	m.pending[o.Agg] = slices.DeleteFunc(m.pending[o.Agg], func(h *happening) bool {
		owed := m.tx != nil && !m.tx.foreign && m.tx.written[o.Agg] > h.last // by the transaction that has written it again
		return h.last > 0 && !owed
	})
	return done
}

// touches are the aggregates of a statement: should it fail, the transaction knows them all the
// same.
func (m *model) touches(o *op) {
	touch := func(copied bool, aggs ...int) {
		for _, agg := range aggs {
			m.tx.known[agg] = true
			m.use(agg, copied)
		}
	}
	switch o.Kind {
	case "create", "update", "miss", "column", "delete", "save":
		touch(false, o.Agg)
	case "delete_value":
		m.tx.known[o.Agg] = true
		if m.tx.foreign { // where each statement is by itself
			delete(m.tx.uses, o.Agg)
		}
	case "creates", "saves", "ignores":
		touch(false, 0, 1)
	case "values":
		touch(true, 0, 1)
	case "imports", "returns", "returns_update", "returns_delete":
		touch(o.ID%2 == 0, firstSeal, firstSeal+1)
	case "lends":
		touch(false, firstSeal, firstSeal+1)
	}
}

func (m *model) mark(o *op) result {
	switch o.Kind {
	case "savepoint", "SAVEPOINT":
		return m.savepoint(o.Name)
	case "rollback_to", "ROLLBACK_TO":
		return m.rollbackTo(o.Name)
	default:
		return m.release(o.Name)
	}
}

func (m *model) publish(kind string) result {
	h := m.happens(kind)
	switch {
	case kind == "stray" || m.tx == nil:
		return failed
	case m.tx.foreign:
		return m.writeNow([]*happening{h})
	}
	m.tx.published = append(m.tx.published, h)
	return done
}

// statement runs in the transaction around it, or in one of its own.
func (m *model) statement(o *op, write func() result) result {
	if m.tx != nil {
		m.touches(o)
		if m.tx.aborted {
			return failed
		}
		return write()
	}
	m.begin(false)
	m.touches(o)
	if got := write(); got != done {
		m.rollback()
		return got
	}
	return m.commit()
}

func (m *model) exists(agg int) bool {
	_, ok := m.tx.rows[aggregateNames[agg]]
	return ok
}

// set changes a row, or makes it. Of items only the existence is compared.
func (m *model) set(o *op, aggs ...int) {
	for _, agg := range aggs {
		note := ""
		if agg < firstItem {
			note = noteOf(o)
		}
		m.tx.rows[aggregateNames[agg]] = note
	}
}

func noteOf(o *op) string { return "note " + strconv.Itoa(o.ID) }

// items are saved with their crates, in one statement, whatever became of the crates' own.
func (m *model) items(o *op, crates ...int) result {
	var items []int
	for _, crate := range crates {
		items = append(items, itemsOf[crate]...)
	}
	if len(items) == 0 {
		return done
	}
	for _, item := range items {
		m.use(item, false)
	}
	m.set(o, items...)
	return m.wrote(items...)
}

func (m *model) hook(o *op) result {
	if o.Agg >= purse {
		return done
	}
	switch o.Hook {
	case "fails":
		return failed
	case "panics":
		return panicked
	case "raises":
		m.raise(o.Agg, "ticked")
	}
	return done
}

// insert makes a row, with the items and the hook.
func (m *model) insert(o *op, hook bool) result {
	m.set(o, o.Agg)
	got := m.items(o, o.Agg)
	if got == done && hook {
		got = m.hook(o)
	}
	if got == done {
		return m.wrote(o.Agg)
	}
	m.spoiled(o.Agg)
	return got
}

// spoiled says that an aggregate was written, and that what came after it has failed: whoever goes on all
// the same leaves its events pending, and is warned.
func (m *model) spoiled(agg int) {
	if !m.tx.foreign {
		m.missed(agg)
	}
}

// update changes a row where it hits one. warns: an aggregate that was missed is warned of.
func (m *model) update(o *op, hits, hook, warns bool) result {
	if hits {
		m.set(o, o.Agg)
	}
	got := m.items(o, o.Agg)
	if got == done && hook {
		got = m.hook(o)
	}
	switch {
	case got != done:
		if hits {
			m.spoiled(o.Agg)
		}
		return got
	case hits:
		return m.wrote(o.Agg)
	case warns:
		return m.missed(o.Agg)
	default:
		return done
	}
}

// save is an UPDATE and, where that hits nothing, an upsert without hooks; outside a transaction
// each has its own.
func (m *model) save(o *op) result {
	hits, alone := false, m.tx == nil
	got := m.statement(o, func() result {
		hits = m.exists(o.Agg)
		return m.update(o, hits, true, !alone)
	})
	if got != done || hits {
		return got
	}
	return m.statement(o, func() result { return m.insert(o, false) })
}

// batches are of one crate each, in a transaction around all of them unless there is to be none.
func (m *model) batches(o *op) result {
	all := func() result {
		for _, crate := range []int{o.Agg, 1 - o.Agg} {
			one := op{ID: o.ID, Kind: "create", Agg: crate}
			if got := m.statement(&one, func() result { return m.write(&one) }); got != done {
				return got
			}
		}
		return done
	}
	if m.session.NoDefault {
		return all()
	}
	if m.tx != nil && m.tx.aborted {
		return failed // GORM sees here that its savepoint was refused, and calls no statement
	}
	return m.block(o.ID, m.session.Conn, all)
}

// write is a statement inside its transaction.
func (m *model) write(o *op) result {
	both := []int{o.Agg, 1 - o.Agg}
	switch o.Kind {
	case "create":
		if m.exists(o.Agg) {
			return m.refuse()
		}
		return m.insert(o, true)
	case "update":
		return m.update(o, m.exists(o.Agg), true, true)
	case "miss":
		return m.update(o, false, true, true)
	case "column":
		return m.update(o, m.exists(o.Agg), false, true)
	case "delete", "delete_value":
		if !m.exists(o.Agg) {
			return m.missed(o.Agg)
		}
		delete(m.tx.rows, aggregateNames[o.Agg])
		return m.wrote(o.Agg)
	case "delete_where":
		delete(m.tx.rows, aggregateNames[o.Agg])
		return done
	case "raw":
		if m.exists(o.Agg) {
			m.set(o, o.Agg)
		}
		return done
	case "creates":
		if m.exists(0) || m.exists(1) {
			return m.refuse()
		}
		return m.upsert(o, both)
	case "saves", "values":
		return m.upsert(o, both)
	case "ignores":
		return m.ignores(o, both)
	case "imports", "returns", "returns_update", "returns_delete", "lends":
		return m.seals(o, firstSeal+o.Agg, firstSeal+1-o.Agg)
	case "doubt":
		m.tx.doubt = true
		return done
	default: // broken
		return m.refuse()
	}
}

func (m *model) upsert(o *op, both []int) result {
	m.set(o, both...)
	if got := m.items(o, both...); got != done {
		return got
	}
	return m.wrote(both...)
}

// ignores is a batch whose conflicts do nothing.
func (m *model) ignores(o *op, both []int) result {
	var there []int
	for _, crate := range both {
		if m.exists(crate) {
			there = append(there, crate)
		} else {
			m.set(o, crate)
		}
	}
	if got := m.items(o, both...); got != done {
		return got
	}
	if m.dialect != outbox.MySQL { // where it is known which ones are there
		m.missed(there...)
		return m.wrote(slices.DeleteFunc(slices.Clone(both), func(crate int) bool { return slices.Contains(there, crate) })...)
	}
	switch {
	case len(there) == 2:
		return m.missed(both...)
	case len(there) == 1 && len(m.pending[0])+len(m.pending[1]) > 0:
		m.tx.torn = !m.tx.foreign // there the caller has been told, and nobody sees the commit
		return failed
	case len(there) == 1:
		for crate := range both {
			m.tx.unsure[crate], m.tx.missed[crate] = true, m.tick()
		}
		return done
	default:
		return m.wrote(both...)
	}
}

// seals are written by batches of which it is known what became of each.
func (m *model) seals(o *op, first, second int) result {
	var there, others []int
	for _, seal := range []int{first, second} {
		if m.exists(seal) {
			there = append(there, seal)
		} else {
			others = append(others, seal)
		}
	}
	switch o.Kind {
	case "imports": // whose conflicts do nothing
		m.set(o, others...)
		there, others = others, there
	case "returns":
		if len(there) > 0 {
			return m.refuse()
		}
		m.set(o, others...)
		there, others = others, nil
	case "returns_delete":
		for _, seal := range there {
			delete(m.tx.rows, aggregateNames[seal])
		}
	case "lends": // the second only gives its values
		if others = []int{second}; m.exists(first) {
			there = []int{first}
		} else {
			there, others = nil, []int{first, second}
		}
	}
	m.missed(others...)
	return m.wrote(there...)
}
