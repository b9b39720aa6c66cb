package gormplugin

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"slices"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/journal"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// found is one aggregate in the hands of a statement.
type found struct {
	recorder *journal.Recorder
	carrier  *journal.Carrier // tells the values apart that share the recorder; nil where that is not known
	value    reflect.Value
	facts    *facts           // nil where they are not asked for
	expected *int64           // version that it was loaded with
	given    *envelope.Source // by hand, instead of what the facts say
}

func (f *found) source(ctx context.Context) envelope.Source {
	if f.given != nil {
		return *f.given
	}
	return f.facts.source(ctx, f.value, f.expected)
}

// capture runs after a statement and its hooks, before the commit: what the statement wrote belongs
// to the transaction.
func (p *Plugin) capture(creates bool) func(*gorm.DB) {
	return func(db *gorm.DB) {
		p.failed(db)
		switch {
		case !p.concerned(db):
			if !creates && !skipped(db) {
				p.warnOfAssociation(db, nil)
			}
		case skipped(db):
		case db.Error == nil:
			_ = db.AddError(p.captureStatement(db, creates))
		default:
			p.touch(db, creates)
		}
	}
}

// touch tells the transaction which aggregates a statement has failed on: when it rolls back, what
// they raised in it is undone.
func (p *Plugin) touch(db *gorm.DB, creates bool) {
	ours, _ := transactionOf(db.Statement.ConnPool)
	if ours == nil {
		return
	}
	written := targets(db, creates)
	aggregates, err := p.aggregates(db, written[:]...)
	if err != nil {
		return // there is an error to tell of already
	}
	ours.know(aggregates)
	if _, refused := db.Statement.Settings.LoadAndDelete(keyRefused{db.Statement}); !refused && db.Statement.SQL.Len() > 0 && db.RowsAffected > 0 {
		// It has written, and what came after it has failed: whoever goes on all the same commits the row without its events.
		for i := range aggregates {
			ours.journal.Untouched(aggregates[i].recorder, aggregates[i].facts.name)
		}
	}
}

// use tells the journal with which value of those that share its events the transaction works on an
// aggregate.
func (t *tx) use(f *found) { t.journal.Use(f.recorder, f.carrier) }

// useBefore does so before a statement on the values that it was given. It may wait for a row that another
// transaction has, with the same value.
func (t *tx) useBefore(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			t.useBefore(v.Elem())
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			t.useBefore(v.Index(i))
		}
	case reflect.Struct:
		if recorder, carrier, ok := journal.Find(v); ok {
			t.journal.Use(recorder, carrier)
		}
	default: // maps and the like are no aggregates
	}
}

// know tells the journal of aggregates that are not written, so that a rollback concerns them.
func (t *tx) know(aggregates []found) {
	for i := range aggregates {
		t.use(&aggregates[i])
		t.journal.Touch(aggregates[i].recorder)
	}
}

func (p *Plugin) captureStatement(db *gorm.DB, creates bool) error {
	written := targets(db, creates)
	aggregates, err := p.aggregates(db, written[:]...)
	if err != nil {
		return err
	}
	if !creates {
		p.warnOfAssociation(db, aggregates)
	}
	if others := bystanders(db); len(others) > 0 {
		p.untouched(db, others)
		aggregates = without(aggregates, others)
	}
	if err := p.passedOver(db, creates); err != nil {
		return err
	}
	if o, ok := db.Statement.Settings.LoadAndDelete(keyOutcome{db.Statement}); ok {
		return p.captureOutcome(db, o.(*outcome), aggregates) //nolint:forcetypeassert // nothing else has this key
	}
	if len(aggregates) == 0 {
		return nil
	}
	built := db.Statement.SQL.Len() > 0 // nothing is built when only associations are saved
	affected, known, err := p.changedRows(db, creates)
	switch {
	case err != nil:
		return err
	case !known:
		return p.partial(db, aggregates, elements(db), affected)
	case built && affected == 0:
		p.untouched(db, aggregates)
		return nil
	case built && affected < int64(elements(db)):
		return p.captureSome(db, aggregates, creates, affected)
	}
	return p.track(db, aggregates)
}

// captureOutcome is for a statement of which it is known, in part at least, what it wrote. Of the
// aggregates in its hands that it is not known of, such as a version of one in the slice that it
// took values from, it wrote all or none.
func (p *Plugin) captureOutcome(db *gorm.DB, o *outcome, aggregates []found) error {
	aggregates = without(aggregates, slices.Concat(o.written, o.unknown, o.missed))
	if len(o.unknown)+len(o.missed) == 0 {
		o.written = append(o.written, aggregates...)
	} else {
		o.missed = append(o.missed, aggregates...)
	}
	p.untouched(db, o.missed)
	err := p.track(db, o.written)
	if err == nil && len(o.unknown) > 0 {
		err = p.partial(db, o.unknown, len(o.unknown), o.affected)
	}
	return err
}

// targets are the values that a statement wrote: Dest, and Model where that is something else, or
// else nil. A create writes Dest alone.
func targets(db *gorm.DB, creates bool) [2]any {
	statement := db.Statement
	if creates || samePointer(statement.Model, statement.Dest) {
		return [2]any{statement.Dest, nil}
	}
	dest := statement.Dest
	if noted, ok := statement.Settings.Load(keyDest{statement}); ok {
		dest = noted
	}
	return [2]any{statement.Model, dest}
}

// noteDest keeps the values of an update of another model for the capture. The types of columns, and
// callbacks of others, may put something else in their place, such as a map of columns.
func (p *Plugin) noteDest(db *gorm.DB) {
	if s := db.Statement; p.mayHold(s.Dest) && !samePointer(s.Model, s.Dest) {
		s.Settings.Store(keyDest{s}, s.Dest)
	} else {
		s.Settings.Delete(keyDest{s}) // of another update by the same handle
	}
}

// concerned is concerns for a statement that has run.
func (p *Plugin) concerned(db *gorm.DB) bool {
	_, noted := db.Statement.Settings.Load(keyDest{db.Statement})
	return noted || p.concerns(db)
}

// samePointer compares without ==, which panics for slices.
func samePointer(a, b any) bool {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	return x.Kind() == reflect.Pointer && y.Kind() == reflect.Pointer && x.Pointer() == y.Pointer() && x.Type() == y.Type()
}

// aggregates finds the aggregates in values, each once.
func (p *Plugin) aggregates(db *gorm.DB, values ...any) ([]found, error) {
	c := collector{plugin: p, db: db}
	for _, value := range values {
		if value == nil {
			continue
		}
		if err := c.walk(reflect.ValueOf(value)); err != nil {
			return nil, err
		}
	}
	return c.found, nil
}

// unread is aggregates for a value of which it does not matter whether GORM can read it as a model:
// without facts.
func (p *Plugin) unread(value any) ([]found, error) {
	if value == nil {
		return nil, nil
	}
	c := collector{plugin: p}
	err := c.walk(reflect.ValueOf(value))
	return c.found, err
}

// collector walks the values of one statement.
type collector struct {
	plugin *Plugin
	db     *gorm.DB // nil where no facts are asked for
	found  []found
	seen   map[*journal.Recorder]bool // made for the second aggregate
}

func (c *collector) walk(v reflect.Value) error {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return c.walk(v.Elem())
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if err := c.walk(v.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Struct:
		return c.add(v)
	default: // maps and the like are no aggregates
	}
	return nil
}

func (c *collector) add(v reflect.Value) error {
	recorder, carrier, ok := journal.Find(v)
	if !ok {
		if err := journal.CheckAggregate(v.Type()); err != nil {
			return fmt.Errorf("gormplugin: %w", err)
		}
		return nil
	}
	if c.known(recorder) {
		return nil
	}
	a := found{recorder: recorder, carrier: carrier, value: v}
	if c.db != nil {
		var err error
		if a.facts, err = c.plugin.sources.of(c.db, v.Type()); err != nil {
			return err
		}
	}
	c.found = append(c.found, a)
	return nil
}

// known reports whether a recorder was there before. Most statements have one aggregate and need no
// map.
func (c *collector) known(recorder *journal.Recorder) bool {
	if len(c.found) == 0 {
		return false
	}
	if c.seen == nil {
		c.seen = map[*journal.Recorder]bool{c.found[0].recorder: true}
	}
	if c.seen[recorder] {
		return true
	}
	c.seen[recorder] = true
	return false
}

// track hands aggregates to the transaction's journal. In a transaction that is the caller's own
// there is no commit to wait for, and their events are written at once.
func (p *Plugin) track(db *gorm.DB, aggregates []found) error {
	ours, foreign := transactionOf(db.Statement.ConnPool)
	inherited := p.inherited(db)
	versions := versionsOf(db, aggregates)
	var now []journal.Flush
	for i := range aggregates {
		a := aggregates[i]
		a.expected = versions[a.recorder]
		// Taken now: the variable may hold another aggregate by the time of the commit, in a loop
		// say, or in FindInBatches.
		source := a.source(db.Statement.Context)
		if a.given == nil && a.facts != nil {
			a.facts.writtenVersion(db, a.recorder, &source)
		}
		switch {
		case ours != nil:
			ours.use(&a)
			if err := ours.journal.Track(a.recorder, a.carrier, source, inherited); err != nil {
				return err
			}
		case foreign != nil:
			events, err := a.recorder.EventsOf(a.carrier, &source)
			if err != nil {
				return err
			}
			written := source.Version
			source.Version = a.recorder.Ascending(written)
			for i, event := range events {
				source.Sequence = i + 1
				now = append(now, journal.Flush{Raised: event, Source: source, Context: inherited})
			}
			if len(events) > 0 && written > 0 {
				a.recorder.WroteVersion(written)
			}
		default:
			return uow.ErrNoTransaction
		}
	}
	if len(now) > 0 {
		journal.InOrder(now) // a batch has its aggregates in an order of its own
		return p.writeNow(db, foreign, now)
	}
	return nil
}

// untouched notes aggregates whose statement changed no row, for the warning at the commit.
func (p *Plugin) untouched(db *gorm.DB, aggregates []found) {
	ours, _ := transactionOf(db.Statement.ConnPool)
	if ours == nil {
		return
	}
	if firstHalfOfSave(db) {
		ours.know(aggregates)
		return
	}
	for i := range aggregates {
		ours.use(&aggregates[i])
		ours.journal.Untouched(aggregates[i].recorder, aggregates[i].facts.name)
	}
}

// firstHalfOfSave recognises the UPDATE of a Save outside a transaction. When it changes no row
// GORM goes on with an INSERT, in a transaction of its own, so that it is too early to speak of
// events left behind. A Select("*").Updates looks the same to a callback; the two are distinguished
// by who called, which only a statement that changed nothing has to ask.
func firstHalfOfSave(db *gorm.DB) bool {
	selects := db.Statement.Selects
	return (startedByGORM(db) || startedByUs(db)) && len(selects) == 1 && selects[0] == "*" && updates(db) && calledBySave()
}

// secondHalfOfSave recognises the INSERT of a Save, whose UPDATE has found no row.
func secondHalfOfSave(db *gorm.DB) bool {
	return db.Statement.ReflectValue.Kind() == reflect.Struct && calledBySave()
}

// updates reports whether a statement is an Update of GORM's: its soft Delete builds an UPDATE, too.
func updates(db *gorm.DB) bool {
	return len(db.Statement.BuildClauses) > 0 && db.Statement.BuildClauses[0] == "UPDATE"
}

func calledBySave() bool {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	for {
		frame, more := frames.Next()
		switch frame.Function {
		case "gorm.io/gorm.(*DB).Save":
			return true
		case "gorm.io/gorm.(*DB).Updates", "gorm.io/gorm.(*DB).UpdateColumns":
			return false
		}
		if !more {
			return false
		}
	}
}

// inserterFor returns the statements for the handle's database.
func (p *Plugin) inserterFor(db *gorm.DB) (*outbox.Inserter, error) {
	dialect, err := outbox.ParseDialect(db.Name())
	if err != nil {
		return nil, err
	}
	return p.inserter(dialect)
}
