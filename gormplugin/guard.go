package gormplugin

import (
	"errors"
	"reflect"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// guard makes a panic in any callback of a chain, a hook of the application's or another plugin's,
// roll back the transaction that was begun for the statement. GORM does so for db.Transaction only:
// the transaction of a single statement, and the one that the plugin begins under
// SkipDefaultTransaction, would keep their connection forever.
//
// What it returns is given to GORM as the condition of one of the plugin's callbacks. GORM asks for
// conditions whenever a callback is registered, replaced or removed, before it puts the chain in
// order: then those that are new are wrapped. GORM exports no list of them. Should it keep them in
// another way some day, those of GORM's own are wrapped all the same.
func (p *Plugin) guard(chain any) (always func(*gorm.DB) bool) {
	wrapped := make(map[*func(*gorm.DB)]bool)
	return func(*gorm.DB) bool {
		for _, handler := range handlersOf(chain) {
			if *handler != nil && !wrapped[handler] {
				wrapped[handler] = true
				*handler = p.guarded(*handler)
			}
		}
		return true
	}
}

// handlersOf is where GORM keeps the functions of a chain's callbacks.
func handlersOf(chain any) []*func(*gorm.DB) {
	callbacks := reflect.Indirect(reflect.ValueOf(chain)).FieldByName("callbacks")
	if callbacks.Kind() != reflect.Slice {
		return nil
	}
	var handlers []*func(*gorm.DB)
	for i := range callbacks.Len() {
		callback := reflect.Indirect(callbacks.Index(i))
		if callback.Kind() != reflect.Struct {
			continue
		}
		handler := callback.FieldByName("handler")
		if handler.IsValid() && handler.CanAddr() && handler.Type() == reflect.TypeFor[func(*gorm.DB)]() {
			handlers = append(handlers, (*func(*gorm.DB))(handler.Addr().UnsafePointer()))
		}
	}
	return handlers
}

// processor is the part of GORM's callback chains that surround needs.
type processor interface {
	Get(name string) func(*gorm.DB)
	Replace(name string, f func(*gorm.DB)) error
}

// surround puts the plugin around callbacks of GORM's own, and guards them.
func (p *Plugin) surround(db *gorm.DB) error {
	before := db.Logger // GORM logs each replacement at level Info; thirteen lines at every start say nothing useful
	db.Logger = logger.Discard
	defer func() { db.Logger = before }()
	wraps := map[string]func(original func(*gorm.DB)) func(*gorm.DB){
		"create": p.insert, "update": p.change, "delete": p.change, "delete_before_associations": p.deleteAssociations,
	}
	replace := func(chain processor, names ...string) error {
		var problems []error
		for _, name := range names {
			if original := chain.Get("gorm:" + name); original != nil {
				if wrap := wraps[name]; wrap != nil {
					original = wrap(noteRefused(original))
				}
				problems = append(problems, chain.Replace("gorm:"+name, p.guarded(original)))
			}
		}
		return errors.Join(problems...)
	}
	return errors.Join(
		replace(db.Callback().Create(), "before_create", "save_before_associations", "create", "save_after_associations", "after_create"),
		replace(db.Callback().Update(), "setup_reflect_value", "before_update", "save_before_associations", "update", "save_after_associations", "after_update"),
		replace(db.Callback().Delete(), "before_delete", "delete_before_associations", "delete", "after_delete"),
	)
}

// noteRefused tells a statement that the database refuses from one that something else fails after. MariaDB returns rows
// of those that it refuses, too.
func noteRefused(original func(*gorm.DB)) func(*gorm.DB) {
	return func(db *gorm.DB) {
		before := db.Error
		original(db)
		if before == nil && db.Error != nil {
			db.Statement.Settings.Store(keyRefused{db.Statement}, true)
		}
	}
}

// guarded runs a callback and, should it panic, rolls back what was begun for its statement. The
// panic goes on.
func (p *Plugin) guarded(callback func(*gorm.DB)) func(*gorm.DB) {
	return func(db *gorm.DB) {
		done := false
		defer func() {
			if !done {
				if p.concerned(db) && !skipped(db) {
					p.touch(db, false)
				}
				abandon(db)
			}
		}()
		callback(db)
		done = true
	}
}

func abandon(db *gorm.DB) {
	if transaction, ok := db.Statement.ConnPool.(gorm.TxCommitter); ok && (startedByGORM(db) || startedByUs(db)) {
		_ = transaction.Rollback() // the panic is what there is to tell
	}
}
