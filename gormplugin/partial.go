package gormplugin

import (
	"reflect"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/journal"
)

// elements is the number of elements of the value that a statement was given.
func elements(db *gorm.DB) int {
	switch v := db.Statement.ReflectValue; v.Kind() {
	case reflect.Slice, reflect.Array:
		return v.Len()
	default:
		return 1
	}
}

// captureSome is for a statement that changed fewer rows than it has elements: some share a row, or
// have none, or it has passed over some rows.
func (p *Plugin) captureSome(db *gorm.DB, aggregates []found, creates bool, affected int64) error {
	if _, conflicts := conflictOf(db.Statement); creates && !conflicts {
		// Something in the database has passed over a row, such as a trigger. GORM may have given the keys
		// of rows to other elements already, so that these say nothing.
		return p.partial(db, aggregates, elements(db), affected)
	}
	rows, idle, err := p.rowsGiven(db, creates)
	if err != nil {
		return err
	}
	if affected < int64(rows) {
		return p.partial(db, aggregates, rows, affected)
	}
	p.untouched(db, idle)
	return p.track(db, without(aggregates, idle))
}

// rowsGiven is the number of rows that a slice stands for. idle are the aggregates that are not
// written when all rows are: of two with one key the one that an INSERT finds there, and those that
// an UPDATE or a DELETE cannot ask for, for they have no key.
func (p *Plugin) rowsGiven(db *gorm.DB, creates bool) (rows int, idle []found, err error) {
	seen := make(map[string]bool)
	var first []found
	for i := range elements(db) {
		value := reflect.Indirect(db.Statement.ReflectValue.Index(i))
		if !value.IsValid() || value.Kind() != reflect.Struct {
			continue
		}
		facts, err := p.sources.of(db, value.Type())
		if err != nil {
			return 0, nil, err
		}
		f := found{value: value, facts: facts}
		recorder, carrier, aggregate := journal.Find(value)
		f.recorder, f.carrier = recorder, carrier
		key := f.key(db)
		switch {
		case key == "" && !creates:
			if aggregate {
				idle = append(idle, f)
			}
			continue
		case !seen[key]:
			seen[key] = true
			rows++
		case creates && aggregate:
			idle = append(idle, f)
			continue
		}
		if aggregate {
			first = append(first, f)
		}
	}
	return rows, without(idle, first), nil
}

// partial is for a statement that wrote only some of its aggregates. When one of them has events,
// it is refused; else it stands, and the commit is refused should one have events by then.
func (p *Plugin) partial(db *gorm.DB, aggregates []found, given int, affected int64) error {
	err := &PartialBatchError{Aggregate: aggregates[0].facts.name, Given: given, Affected: affected}
	ours, _ := transactionOf(db.Statement.ConnPool)
	if !pending(aggregates) {
		for i := range aggregates {
			if ours != nil {
				ours.use(&aggregates[i])
				ours.journal.Doubt(aggregates[i].recorder, err)
			}
		}
		return nil
	}
	if ours != nil {
		ours.journal.Fail(err)
		ours.know(aggregates)
	}
	return err
}

func pending(aggregates []found) bool {
	for i := range aggregates {
		if aggregates[i].recorder.Len() > 0 {
			return true
		}
	}
	return false
}
