package gormplugin

import "gorm.io/gorm"

// change wraps GORM's UPDATE and DELETE. Of a slice that reads its rows back it finds out which
// elements they are of: they come in an order of the database's, and only those that were changed.
func (p *Plugin) change(original func(*gorm.DB)) func(*gorm.DB) {
	return func(db *gorm.DB) {
		var r *readback
		if db.Error == nil && p.concerns(db) && !skipped(db) {
			if p.deleteChildren(db, original) {
				return
			}
			p.noteBystanders(db)
			if isSlice(db) && changeIsReadApart(db) {
				var err error
				r, err = p.newReadback(db, original)
				_ = db.AddError(err)
			}
		}
		if r == nil || !r.hasKeys() {
			original(db) // which does nothing after an error
			return
		}
		r.change()
	}
}

// changeIsReadApart reports whether GORM would confuse the elements of a slice.
func changeIsReadApart(db *gorm.DB) bool {
	columns, told := returned(db.Statement)
	return told && (readsAll(columns) || db.Statement.ReflectValue.Len() > 1)
}

// hasKeys reports whether there are aggregates whose rows can be told.
func (r *readback) hasKeys() bool {
	for _, e := range r.elements {
		if _, ok := r.key(e.value, canonical); ok && e.aggregate {
			return true
		}
	}
	return false
}

func (r *readback) change() {
	r.readKeys(false)
	rows, read := r.run(r.db.Statement.ReflectValue, func() bool { return true })
	if r.db.Error != nil || !read {
		return
	}
	r.settleChanged(rows)
	r.finish(rows)
}
