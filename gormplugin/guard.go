package gormplugin

import (
	"errors"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// processor is the part of GORM's callback chains that guard needs.
type processor interface {
	Get(name string) func(*gorm.DB)
	Replace(name string, f func(*gorm.DB)) error
}

// guard makes a panic in one of the application's hooks roll back the transaction that was begun for the statement. GORM
// does so for db.Transaction only: the transaction of a single statement, and the one that the plugin begins under
// SkipDefaultTransaction, would keep their connection for good.
func (p *Plugin) guard(db *gorm.DB) error {
	before := db.Logger // GORM logs each replacement at level Info; thirteen lines at every start tell nobody anything
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
					original = wrap(original)
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

// guarded runs a callback and, should it panic, rolls back what was begun for its statement. The panic goes on.
func (p *Plugin) guarded(callback func(*gorm.DB)) func(*gorm.DB) {
	return func(db *gorm.DB) {
		done := false
		defer func() {
			if !done {
				if p.concerns(db) && !skipped(db) {
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
