package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// hooked is an aggregate that does act at one hook.
func hooked(id, at string, act func(h *Hooked, tx *gorm.DB) error) *Hooked {
	h := &Hooked{ID: id}
	h.Act = func(stage string, tx *gorm.DB) error {
		if stage == at {
			return act(h, tx)
		}
		return nil
	}
	return h
}

// writes are the statements and the hooks that each of them runs.
var writes = map[string]struct {
	hooks []string
	write func(db *gorm.DB, h *Hooked) *gorm.DB
}{
	"create": {[]string{"BeforeSave", "BeforeCreate", "AfterCreate", "AfterSave"}, func(db *gorm.DB, h *Hooked) *gorm.DB {
		return db.Create(h)
	}},
	"update": {[]string{"BeforeSave", "BeforeUpdate", "AfterUpdate", "AfterSave"}, func(db *gorm.DB, h *Hooked) *gorm.DB {
		return db.Model(h).Update("note", "x")
	}},
	"delete": {[]string{"BeforeDelete", "AfterDelete"}, func(db *gorm.DB, h *Hooked) *gorm.DB { return db.Delete(h) }},
}

// There is a row to update or delete.
func (b *bench) prepare(write, id string) {
	b.t.Helper()
	if write != "create" {
		b.ok(b.db.Create(&Hooked{ID: id}).Error)
	}
}

// Whatever a hook of any statement does: raise, fail, panic, and with or without a transaction of
// GORM's.
func TestEveryHook(t *testing.T) {
	t.Parallel()
	cases := map[string]func(b *bench){}
	for write, w := range writes {
		for _, hook := range w.hooks {
			at := hook + " of a " + write
			for suffix, session := range map[string]*gorm.Session{"": {}, ", no default transaction": {SkipDefaultTransaction: true}} {
				cases[at+" raises"+suffix] = func(b *bench) {
					b.prepare(write, "1")
					h := hooked("1", hook, func(h *Hooked, _ *gorm.DB) error {
						raising(h, "hook")
						return nil
					})
					b.ok(w.write(b.db.Session(session), raising(h, "before")).Error)
					b.want("1: before", "1: hook")
					b.pending(h)
				}
				cases[at+" fails"+suffix] = func(b *bench) {
					b.prepare(write, "1")
					h := hooked("1", hook, func(h *Hooked, _ *gorm.DB) error {
						raising(h, "hook")
						return errRefused
					})
					before := b.count(&Hooked{})
					require.ErrorIs(b.t, w.write(b.db.Session(session), raising(h, "before")).Error, errRefused)
					b.want()
					b.pending(h, "before", "hook")
					assert.Equal(b.t, before, b.count(&Hooked{}))
				}
				cases[at+" panics"+suffix] = func(b *bench) {
					b.prepare(write, "1")
					h := raising(hooked("1", hook, func(*Hooked, *gorm.DB) error { panic("boom") }), "before")
					before := b.count(&Hooked{})
					assert.PanicsWithValue(b.t, "boom", func() {
						if session.SkipDefaultTransaction {
							w.write(b.db.Session(session), h)
							return
						}
						// In a transaction of GORM's own making such a panic leaks the connection,
						// with the plugin or without.
						_ = b.db.Transaction(func(tx *gorm.DB) error { return w.write(tx, h).Error })
					})
					b.settled() // first, for what follows would wait for the connection
					b.want()
					b.pending(h, "before")
					assert.Equal(b.t, before, b.count(&Hooked{}))
				}
			}
		}
	}
	runCases(t, cases)
}
