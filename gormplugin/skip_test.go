package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/gormplugin"
)

// What Skip returns is a session: each statement on it starts anew, and whatever is derived from it
// captures nothing either.
func TestSkip(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"many statements of all kinds": func(b *bench) {
			skip := gormplugin.Skip(b.db)
			first, second := order("1", "a"), order("2", "b")
			b.ok(skip.Create(first).Error)
			b.ok(skip.Create(second).Error)
			b.ok(skip.Where("id = ?", "1").First(&Order{}).Error)
			b.ok(skip.Model(first).Update("status", "x").Error)
			b.ok(skip.Save(second).Error)
			b.ok(skip.Create(&Plain{Name: "x"}).Error)
			b.ok(skip.Delete(second).Error)
			var left []Order
			b.ok(skip.Find(&left).Error)
			require.Len(b.t, left, 1)
			assert.Equal(b.t, "x", left[0].Status)
			assert.Equal(b.t, 1, b.count(&Plain{}))
			b.want()
			b.pending(first, "a")
			b.pending(second, "b")
		},
		"associations and hooks of its statements": func(b *bench) {
			o := order("1", "a")
			o.Lines = []Line{{SKU: "x"}}
			o.Lines[0].Raise(Happened{"line"})
			b.ok(gormplugin.Skip(b.db).Create(o).Error)
			inHook := order("2", "b")
			h := hooked("1", "AfterCreate", func(_ *Hooked, tx *gorm.DB) error { return tx.Create(inHook).Error })
			b.ok(gormplugin.Skip(b.db).Create(h).Error)
			b.want()
			b.pending(inHook, "b")
			assert.Equal(b.t, 1, b.count(&Line{}))
		},
	})
}

// What Wrap returns is a session, too.
func TestWrapReturnsASession(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		b.ok(b.db.Connection(func(conn *gorm.DB) error {
			wrapped, err := gormplugin.Wrap(conn)
			b.ok(err)
			b.ok(wrapped.Where("id = ?", "nobody").Find(&[]Order{}).Error)
			b.ok(wrapped.Create(order("1", "a")).Error)
			b.ok(wrapped.Create(order("2", "b")).Error)
			return wrapped.Transaction(func(tx *gorm.DB) error { return tx.Create(order("3", "c")).Error })
		}))
		b.want("1: a", "2: b", "3: c")
	})
}
