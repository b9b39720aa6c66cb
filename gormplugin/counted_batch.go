package gormplugin

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// countedBatch is an INSERT of several elements whose keys GORM counts. It becomes several statements where one tells
// too little; to the application it is one, which is done or not.
type countedBatch struct {
	*readback

	conflict clause.Clause // as the application has given it: GORM adds the columns of UpdateAll each time
	tracking any           // a setting that GORM takes out
	ran      bool          // a statement has run
	begun    time.Time
	affected int64
	marks    []string // savepoints
}

// insert inserts those that have keys, and those whose keys the database makes.
func (b *countedBatch) insert(groups [][]*element) {
	s := b.db.Statement
	b.conflict = s.Clauses["ON CONFLICT"]
	b.tracking, _ = s.Settings.Load(keyTracking)
	if len(groups) > 1 {
		b.mark("fanout_batch")
	}
	for _, group := range groups {
		if group[0].unset && len(group) > 1 && updatesRows(s) {
			b.upsert(group)
		} else {
			b.statement(group)
		}
	}
	if b.db.Error != nil {
		b.back("fanout_batch")
		b.db.RowsAffected = 0
		return
	}
	b.db.RowsAffected = b.affected
	if s.Result != nil {
		s.Result.RowsAffected = b.affected
	}
	b.finish(nil)
}

// statement inserts elements together and finds out what has become of them.
func (b *countedBatch) statement(group []*element) {
	b.exec(group)
	if b.db.Error != nil {
		return
	}
	s := b.db.Statement
	whole := s.ReflectValue
	s.ReflectValue = b.slice(group)
	affected, known, err := b.plugin.changedRows(b.db, true)
	s.ReflectValue = whole
	b.add(err)
	b.affected += b.db.RowsAffected
	switch n := int64(len(group)); {
	case b.db.Error != nil:
	case !known:
		b.doubt(group, affected)
	default:
		b.settleByCount(group, affected)
		if group[0].unset && affected >= n {
			b.count(group)
		}
	}
}

// upsert inserts elements of which some may have rows that only the database finds. Where it has found none, GORM has
// counted well. Else each gets a statement of its own, if there are events whose row matters.
func (b *countedBatch) upsert(group []*element) {
	matters := b.mayRaise(group)
	if matters {
		b.mark("fanout_rows")
	}
	var zero int64
	b.add(b.db.Statement.ConnPool.QueryRowContext(b.db.Statement.Context, "SELECT LAST_INSERT_ID(0)").Scan(&zero)) // which an upsert that makes none leaves there
	b.exec(group)
	if b.db.Error != nil {
		b.back("fanout_rows")
		return
	}
	affected := b.db.RowsAffected
	found, err := b.foundRows(group, affected)
	b.add(err)
	switch {
	case b.db.Error != nil:
	case !found:
		b.affected += affected
		b.settleByCount(group, int64(len(group)))
	case !matters:
		b.affected += affected
		b.doubt(group, int64(len(group)))
	default:
		b.back("fanout_rows")
		for _, e := range group { // a key behind a pointer is not there, rather than 0
			b.db.Statement.Schema.PrioritizedPrimaryField.ReflectValueOf(b.db.Statement.Context, e.value).SetZero()
		}
		for i := range group {
			if b.db.Error == nil {
				b.statement(group[i : i+1])
			}
		}
		if b.db.Error != nil {
			b.back("fanout_rows")
		}
	}
}

// mayRaise reports whether elements have events, or hooks that may raise some.
func (b *countedBatch) mayRaise(group []*element) bool {
	s := b.db.Statement
	if !s.SkipHooks && (s.Schema.AfterCreate || s.Schema.AfterSave) {
		return true
	}
	return slices.ContainsFunc(group, func(e *element) bool { return e.aggregate && e.found.recorder.Len() > 0 })
}

// foundRows reports whether an upsert of elements without keys has found rows for some. If not, it gives them the keys
// that the server has made. The server reserves the keys of a statement before it runs, for it alone.
func (b *countedBatch) foundRows(group []*element, affected int64) (bool, error) {
	s, n := b.db.Statement, len(group)
	key := s.Schema.PrioritizedPrimaryField
	first, ok := asInt64(key.ReflectValueOf(s.Context, group[0].value))
	if affected != int64(n) || !ok {
		return true, nil
	}
	var made, step, there int64
	column, table := s.Quote(key.DBName), s.Quote(s.Table)
	err := s.ConnPool.QueryRowContext(s.Context, "SELECT LAST_INSERT_ID(), @@auto_increment_increment, (SELECT COUNT(*) FROM "+table+
		" WHERE "+column+" BETWEEN ? AND ? + ? * @@auto_increment_increment AND "+column+" % @@auto_increment_increment = ? % @@auto_increment_increment)",
		first, first, n-1, first).Scan(&made, &step, &there)
	if err != nil {
		return false, fmt.Errorf("gormplugin: ask for the keys of the rows that were inserted: %w", err)
	}
	if made != first || there != int64(n) {
		return true, nil
	}
	return false, b.countOn(group, step)
}

// count gives new rows the keys that the server has given them, where it does not count as GORM does.
func (b *countedBatch) count(group []*element) {
	if len(group) == 1 {
		return
	}
	s := b.db.Statement
	var step int64
	if err := s.ConnPool.QueryRowContext(s.Context, "SELECT @@auto_increment_increment").Scan(&step); err != nil {
		b.add(fmt.Errorf("gormplugin: ask in which steps the server makes keys: %w", err))
		return
	}
	b.add(b.countOn(group, step))
}

func (b *countedBatch) countOn(group []*element, step int64) error {
	s := b.db.Statement
	key := s.Schema.PrioritizedPrimaryField
	next, ok := asInt64(key.ReflectValueOf(s.Context, group[0].value))
	if step == key.AutoIncrementIncrement || !ok {
		return nil
	}
	for _, e := range group {
		if err := key.Set(s.Context, e.value, next); err != nil {
			return err //nolint:wrapcheck // GORM's own words
		}
		next += step
	}
	return nil
}

// exec runs a statement on elements, after others of the batch.
func (b *countedBatch) exec(group []*element) {
	if b.db.Error != nil {
		return
	}
	s := b.db.Statement
	if b.ran {
		b.trace(b.begun)
		s.SQL.Reset()
		s.Vars = nil
		if b.tracking != nil {
			s.Settings.Store(keyTracking, b.tracking)
		}
		if b.conflict.Expression != nil {
			s.Clauses["ON CONFLICT"] = b.conflict
		}
	}
	b.ran, b.begun = true, time.Now()
	b.run(b.slice(group), func() bool { return true })
}

// add notes an error, once.
func (b *countedBatch) add(err error) {
	if b.db.Error == nil {
		_ = b.db.AddError(err)
	}
}

// mark sets a savepoint behind the journal's back: the application's events are not concerned.
func (b *countedBatch) mark(name string) {
	if conn := b.transaction(); conn != nil && b.db.Error == nil {
		if _, err := conn.ExecContext(b.db.Statement.Context, "SAVEPOINT "+name); err != nil {
			b.add(err)
			return
		}
		b.marks = append(b.marks, name)
	}
}

// back goes back to a savepoint, if it was set. Where that fails, the transaction must not commit.
func (b *countedBatch) back(name string) {
	conn := b.transaction()
	if conn == nil || !slices.Contains(b.marks, name) {
		return
	}
	if _, err := conn.ExecContext(b.db.Statement.Context, "ROLLBACK TO SAVEPOINT "+name); err != nil {
		b.add(fmt.Errorf("gormplugin: take back a part of a batch: %w", err))
		b.failed()
	}
}

func (b *countedBatch) transaction() gorm.ConnPool {
	ours, foreign := transactionOf(b.db.Statement.ConnPool)
	switch {
	case ours != nil:
		return ours.Tx
	case foreign != nil:
		return foreign
	default:
		return nil
	}
}

func asInt64(v reflect.Value) (int64, bool) {
	v = reflect.Indirect(v)
	switch {
	case v.CanInt():
		return v.Int(), true
	case v.CanUint():
		return int64(v.Uint()), true //nolint:gosec // a key of MySQL's that GORM has read as one
	default:
		return 0, false
	}
}
