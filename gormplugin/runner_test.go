package gormplugin_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/gorm-fanout/fanout/internal/journal"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// runner does for real what the model says of a program.
type runner struct {
	site       *site
	crates     [2]*Crate
	purse      *Purse
	seals      [2]*Seal
	roots      []raiser
	raises     int
	ids        map[string]int // the event that had a message id first
	ran        []int
	leftBefore int64
	log        []string
}

func newRunner(s *site) *runner {
	r := &runner{site: s, ids: map[string]int{}, leftBefore: s.plugin.EventsLeftPending()}
	r.crates[0] = &Crate{ID: "0", Items: []Item{{ID: "0.0"}, {ID: "0.1"}}}
	r.crates[1] = &Crate{ID: "1", Items: []Item{{ID: "1.0"}}}
	r.purse = &Purse{Bank: "b", Number: 7}
	r.seals = [2]*Seal{{ID: "1"}, {ID: "2"}}
	r.roots = []raiser{r.crates[0], r.crates[1], r.purse, &r.crates[0].Items[0], &r.crates[0].Items[1], &r.crates[1].Items[0], r.seals[0], r.seals[1]}
	for _, root := range r.roots {
		recorderOf(root) // a copy made before the first event would be on its own, as its documentation says
	}
	return r
}

func recorderOf(root any) *journal.Recorder {
	recorder, _ := journal.RecorderOf(reflect.ValueOf(root).Elem())
	return recorder
}

func (r *runner) pending() [][]int {
	pending := make([][]int, len(r.roots))
	for agg, root := range r.roots {
		for _, event := range uow.Pending(root) {
			pending[agg] = append(pending[agg], int(reflect.ValueOf(event).FieldByName("N").Int()))
		}
	}
	return pending
}

func (r *runner) raise(agg int, kind string) {
	r.raises++
	r.roots[agg].Raise(eventOf(kind, r.raises))
	events := recorderOf(r.roots[agg]).Events()
	r.ids[events[len(events)-1].ID.String()] = r.raises
}

// scope is where an op runs: the handle, and the unit where there is one.
type scope struct {
	db   *gorm.DB
	unit *uow.Unit
}

func (r *runner) run(t require.TestingT, program []op) []string {
	for i := range program {
		o := &program[i]
		prepares := o.Prepare && (!r.site.mysql || !r.site.strict) // GORM's own savepoints are prepared where handle and session prepare
		session := r.site.db.Session(&gorm.Session{PrepareStmt: prepares, SkipDefaultTransaction: o.NoDefault})
		if o.Conn {
			require.NoError(t, session.Connection(func(db *gorm.DB) error {
				r.step(scope{db: db}, o)
				return nil
			}))
		} else {
			r.step(scope{db: session}, o)
		}
		r.site.plugin.LookNow(context.Background()) // the next transaction would do so
		r.log = append(r.log, r.describe(t))
	}
	return r.log
}

const boom = "boom"

func (r *runner) step(at scope, o *op) (got result) {
	defer func() {
		if p := recover(); p != nil {
			if p != boom {
				panic(p)
			}
			got = panicked
		}
		r.log = append(r.log, fmt.Sprintf("%d %s: %s", o.ID, o.Kind, got))
	}()
	if err := r.do(at, o); err != nil {
		return failed
	}
	return done
}

// body is the function that a block hands to GORM.
func (r *runner) body(at scope, o *op) error {
	switch perform(o, func(inner *op) result { return r.step(at, inner) }) {
	case panicked:
		panic(boom)
	case failed:
		return errRefused
	default:
		return nil
	}
}

func (r *runner) do(at scope, o *op) error {
	switch o.Kind {
	case "transaction":
		return at.db.Transaction(func(tx *gorm.DB) error { return r.body(scope{db: tx}, o) })
	case "do":
		return uow.Do(context.Background(), at.db, func(u *uow.Unit) error { return r.body(scope{u.DB, u}, o) })
	case "begin":
		tx := at.db.Begin()
		return r.byHand(scope{db: tx}, o, func() error { return tx.Commit().Error }, func() error { return tx.Rollback().Error })
	case "own":
		own, err := r.site.sqlDB.BeginTx(context.Background(), nil)
		if err != nil {
			return err
		}
		db := at.db.Session(&gorm.Session{NewDB: true, Context: context.Background()})
		db.Statement.ConnPool = own
		return r.byHand(scope{db: db}, o, own.Commit, own.Rollback)
	case "raise":
		r.raise(o.Agg, o.Event)
		return nil
	case "publish", "track", "after":
		return r.unit(at, o)
	case "savepoint":
		return r.marking(at).SavePoint(r.site.quoted(o.Name)).Error
	case "rollback_to":
		return r.marking(at).RollbackTo(r.site.quoted(o.Name)).Error
	case "load":
		return at.db.First(r.roots[o.Agg]).Error
	case "SAVEPOINT", "ROLLBACK_TO", "RELEASE":
		return r.plain(at.db).Exec(r.site.savepointSQL(o)).Error
	default:
		return r.write(at.db, o)
	}
}

// marking is a handle for GORM's savepoints. MySQL's driver says what fails, and GORM would have it
// fail the commit of the handle, too, although that is done.
func (r *runner) marking(at scope) *gorm.DB {
	if r.site.dialect == outbox.MySQL {
		return at.db.Session(&gorm.Session{})
	}
	return at.db
}

// plain is a handle that does not prepare, where the server refuses to prepare savepoints.
func (r *runner) plain(db *gorm.DB) *gorm.DB {
	if prepared, ok := db.Statement.ConnPool.(*gorm.PreparedStmtTX); ok && r.site.mysql {
		db = db.Session(&gorm.Session{Context: db.Statement.Context}) // another statement
		db.Statement.ConnPool = prepared.Tx
	}
	return db
}

// quoted writes a name's quotes as the database does.
func (s *site) quoted(name string) string {
	if s.dialect == outbox.MySQL {
		return strings.ReplaceAll(name, `"`, "`")
	}
	return name
}

// savepointSQL writes the keywords in one of the ways that databases understand.
func (s *site) savepointSQL(o *op) string {
	ways := map[string][]string{
		"SAVEPOINT":   {"SAVEPOINT %s", "savepoint %s;", "/* here */ SAVEPOINT %s"},
		"ROLLBACK_TO": {"ROLLBACK TO SAVEPOINT %s", "rollback to %s;", "ROLLBACK TO %s -- there"},
		"RELEASE":     {"RELEASE SAVEPOINT %s", "release %s;", "RELEASE/**/%s"},
	}
	if s.dialect == outbox.SQLServer {
		ways = map[string][]string{
			"SAVEPOINT":   {"SAVE TRANSACTION %s", "save tran %s;"},
			"ROLLBACK_TO": {"ROLLBACK TRANSACTION %s", "rollback tran %s;"},
		}
	}
	if s.dialect == outbox.SQLite { // PostgreSQL prepares no text with several statements
		ways["SAVEPOINT"] = append(ways["SAVEPOINT"], "SELECT 1; SAVEPOINT %s", "savepoint %s; SELECT ';'")
	}
	if s.dialect == outbox.MySQL {
		ways["RELEASE"] = []string{"RELEASE SAVEPOINT %s", "release savepoint %s # now"}
	}
	texts := ways[o.Kind]
	return fmt.Sprintf(texts[o.ID%len(texts)], s.quoted(o.Name))
}

func (r *runner) byHand(at scope, o *op, commit, rollback func() error) error {
	over := false
	defer func() {
		if !over {
			_ = rollback()
		}
	}()
	if err := r.body(at, o); err != nil {
		return err
	}
	over = true
	return commit()
}

func (r *runner) unit(at scope, o *op) error {
	switch o.Kind {
	case "publish":
		r.raises++
		event := eventOf(o.Event, r.raises)
		if at.unit != nil {
			return at.unit.Publish(event)
		}
		return uow.Publish(at.db, event)
	case "track":
		if at.unit != nil {
			return at.unit.Track(r.roots[o.Agg])
		}
		return uow.Track(at.db, r.roots[o.Agg])
	default:
		f := func() { r.ran = append(r.ran, o.ID) }
		if at.unit != nil {
			return at.unit.AfterCommit(f)
		}
		return r.site.plugin.AfterCommit(at.db, f)
	}
}

// write runs one statement, as the application would.
func (r *runner) write(db *gorm.DB, o *op) error {
	note := noteOf(o)
	root := r.roots[o.Agg]
	both := []*Crate{r.crates[o.Agg%2], r.crates[1-o.Agg%2]}
	switch o.Kind {
	case "create", "save", "update", "miss", "column":
		if o.Agg < purse {
			crate := r.crates[o.Agg]
			crate.inHook = r.hook(o)
			defer func() { crate.inHook = nil }()
		}
	}
	switch o.Kind {
	case "create", "save":
		reflect.ValueOf(root).Elem().FieldByName("Note").SetString(note)
	case "creates", "saves", "values", "batches", "ignores":
		both[0].Note, both[1].Note = note, note
	}
	switch o.Kind {
	case "create":
		return db.Create(root).Error
	case "save":
		return db.Save(root).Error
	case "update":
		return db.Model(root).Updates(map[string]any{"note": note}).Error
	case "miss":
		return db.Model(root).Where("note = ?", "nobody's").Updates(map[string]any{"note": note}).Error
	case "column":
		return db.Model(root).UpdateColumn("note", note).Error
	case "delete":
		return db.Delete(root).Error
	case "delete_value":
		return db.Delete(reflect.ValueOf(root).Elem().Interface()).Error
	case "delete_where":
		return r.deleteWhere(db, o.Agg)
	case "raw":
		return db.Exec("UPDATE "+r.site.prefix+"crates SET note = ? WHERE id = ?", note, r.crates[o.Agg].ID).Error
	case "creates":
		return db.Create(both).Error
	case "saves":
		return db.Save(&both).Error
	case "values":
		return db.Save(&[]Crate{*both[0], *both[1]}).Error
	case "batches":
		return db.CreateInBatches(both, 1).Error
	case "ignores":
		return db.Clauses(clause.OnConflict{DoNothing: true}).Create(&both).Error
	case "imports", "returns", "returns_update", "returns_delete", "lends":
		return r.writeSeals(db, o)
	case "doubt":
		return db.Exec("INSERT INTO " + r.site.prefix + "doubts VALUES (1), (1)").Error
	default:
		return db.Exec("UPDATE nowhere SET n = 1").Error
	}
}

func (r *runner) deleteWhere(db *gorm.DB, agg int) error {
	switch {
	case agg < purse:
		return db.Delete(&Crate{}, "id = ?", r.crates[agg].ID).Error
	case agg == purse:
		return db.Where("number = ?", 7).Delete(&Purse{}).Error
	case agg >= firstSeal:
		return db.Delete(&Seal{}, "id = ?", strings.TrimPrefix(aggregateNames[agg], "seal ")).Error
	default:
		return db.Delete(&Item{}, "id = ?", strings.TrimPrefix(aggregateNames[agg], "item ")).Error
	}
}

// writeSeals gives both to a statement, as pointers or as values.
func (r *runner) writeSeals(db *gorm.DB, o *op) error {
	first, second := r.seals[o.Agg], r.seals[1-o.Agg]
	var slice any = &[]*Seal{first, second}
	if o.ID%2 == 0 {
		slice = &[]Seal{*first, *second}
	}
	set := map[string]any{"note": noteOf(o)}
	switch o.Kind {
	case "imports":
		return db.Clauses(clause.OnConflict{DoNothing: true}).Create(slice).Error
	case "returns":
		return db.Clauses(clause.Returning{}).Create(slice).Error
	case "returns_update":
		return db.Model(slice).Clauses(clause.Returning{}).Updates(set).Error
	case "returns_delete":
		return db.Clauses(clause.Returning{}).Delete(slice).Error
	default:
		return db.Model(first).Select("Note").Updates(second).Error
	}
}

func (r *runner) hook(o *op) func(*Crate) error {
	switch o.Hook {
	case "fails":
		return func(*Crate) error { return errRefused }
	case "panics":
		return func(*Crate) error { panic(boom) }
	case "raises":
		return func(*Crate) error {
			r.raise(o.Agg, "ticked")
			return nil
		}
	default:
		return nil
	}
}
