package gormplugin_test

import (
	"reflect"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/uow"
)

// Revision is embedded as a pointer by what counts its versions with it.
type Revision struct{ Version int }

type Draft struct {
	ID   string `gorm:"primaryKey;size:64"`
	Text string
	*Revision
	uow.Aggregate
}

// Token has a key that is a pointer to what can print itself.
type Token struct {
	ID   *uuid.UUID `gorm:"primaryKey;size:64"`
	Note string
	uow.Aggregate
}

// Wallet has a Raise of its own, for the events of its kind alone.
type Wallet struct {
	ID string `gorm:"primaryKey;size:64"`
	uow.Aggregate
}

func (w *Wallet) Raise(event Happened) { w.Aggregate.Raise(event) }

// Hidden keeps its aggregate to itself.
type Hidden struct {
	ID     string `gorm:"primaryKey;size:64"`
	events uow.Aggregate
}

func (h *Hidden) Hide() { h.events.Raise(Happened{"hidden"}) }

// HiddenPointer does so by pointer.
type HiddenPointer struct {
	ID     string `gorm:"primaryKey;size:64"`
	events *uow.Aggregate
}

// Named has it in a field that is no column.
type Named struct {
	ID     string        `gorm:"primaryKey;size:64"`
	Events uow.Aggregate `gorm:"-"`
}

// Core is what others embed under a name; its columns are theirs.
type Core struct {
	Title string
	uow.Aggregate
}

// Shell is embedded, and embeds.
type Shell struct {
	Color string
	Core  Core `gorm:"embedded;embeddedPrefix:core_"`
}

type Nested struct {
	ID    string `gorm:"primaryKey;size:64"`
	Shell *Shell `gorm:"embedded;embeddedPrefix:shell_"`
}

// Keyed has its key and its version in what it embeds.
type Keyed struct {
	Base    Base `gorm:"embedded;embeddedPrefix:base_"`
	Version int
}

// Twice has an aggregate of its own and that of what it embeds.
type Twice struct {
	ID   string `gorm:"primaryKey;size:64"`
	Core Core   `gorm:"embedded"`
	uow.Aggregate
}

// Lost raises where nothing is written.
type Lost struct {
	ID    string `gorm:"primaryKey;size:64"`
	state map[string][]struct{ Core }
}

// tableOf makes the table of a model for this case.
func (b *bench) tableOf(model any) {
	b.t.Helper()
	b.at.changed.Store(true)
	b.ok(b.db.Migrator().CreateTable(model))
	b.t.Cleanup(func() { _ = b.db.Migrator().DropTable(model) })
}

func TestOddModels(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"a key that is a nil pointer": func(b *bench) {
			b.tableOf(&Token{})
			id := uuid.New()
			b.ok(b.db.Create(raising(&Token{ID: &id}, "a")).Error)
			// The aggregate is what is written, its key stands in the condition.
			keyless := raising(&Token{Note: "x"}, "b")
			require.ErrorContains(b.t, b.db.Model(&Token{}).Where("id = ?", id).Updates(keyless).Error, "the Token that raised it has no id")
			b.want(id.String() + ": a")
			b.pending(keyless, "b")
		},
		"a version behind an embedded pointer that is nil": func(b *bench) {
			b.tableOf(&Draft{})
			d := raising(&Draft{ID: "1"}, "a")
			b.ok(b.db.Create(d).Error)
			b.ok(b.db.Delete(*raising(d, "b")).Error)
			b.want("1: a", "1: b")
			require.Nil(b.t, d.Revision, "what the application left out stays out")
		},
		"an aggregate in a field of any name": func(b *bench) {
			b.tableOf(&Hidden{})
			b.tableOf(&HiddenPointer{})
			b.tableOf(&Named{})
			h := &Hidden{ID: "1"}
			h.Hide()
			b.ok(b.db.Create(h).Error)
			p := &HiddenPointer{ID: "2", events: new(uow.Aggregate)}
			raising(p.events, "b")
			b.ok(b.db.Create(p).Error)
			b.ok(b.db.Create(&HiddenPointer{ID: "nil"}).Error)
			n := &Named{ID: "3"}
			raising(&n.Events, "c")
			b.ok(b.db.Create([]*Named{n}).Error)
			b.want("1: hidden", "2: b", "3: c")
			b.pending(h)
			b.pending(p)
			b.pending(&n.Events)
			b.columns(h, "id")
			b.columns(p, "id")
			b.columns(n, "id")
		},
		"an aggregate in what an embedded pointer embeds": func(b *bench) {
			b.tableOf(&Nested{})
			n := &Nested{ID: "1", Shell: &Shell{Color: "red"}}
			raising(&n.Shell.Core, "a")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(n).Error)
				raising(&n.Shell.Core, "b")
				return nil
			}))
			b.ok(b.db.Create(&Nested{ID: "nil"}).Error)
			b.want("1: a", "1: b")
			b.columns(n, "id", "shell_color", "shell_core_title")
		},
		"a key in an embedded field": func(b *bench) {
			b.tableOf(&Keyed{})
			k := &Keyed{Base: Base{ID: "1"}, Version: 2}
			raising(&k.Base, "a")
			b.ok(b.db.Create(k).Error)
			b.want("1: a")
			require.Equal(b.t, "2.1", part(internalOf(b.t, b.rows()[0]), "metadata", "domain")["sequence_id"])
		},
		"a struct with two aggregates": func(b *bench) {
			b.tableOf(&Twice{})
			o := &Twice{ID: "1"}
			raising(o, "a")
			raising(&o.Core, "b")
			const problem = "gormplugin: uow: find the aggregate of gormplugin_test.Twice: it has 2, Core.Aggregate and Aggregate"
			refused := func(err error) {
				b.t.Helper()
				require.ErrorContains(b.t, err, problem)
				var typed *uow.AggregateError
				require.ErrorAs(b.t, err, &typed)
				require.Equal(b.t, reflect.TypeFor[Twice](), typed.Type)
			}
			refused(b.db.Create([]*Twice{o}).Error)
			refused(b.db.Session(&gorm.Session{SkipDefaultTransaction: true}).Create(o).Error)
			refused(b.db.Delete(&Twice{}, "id = ?", "1").Error)
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				refused(tx.Model(&Plain{}).Where("id = 1").Updates(Twice{ID: "1"}).Error)
				refused(uow.Track(tx, []any{o}))
				return nil
			}))
			refused(gormplugin.Notify(b.db, o))
			b.want()
			require.Zero(b.t, b.count(&Twice{}), "the statements did not run")
			b.ok(gormplugin.Skip(b.db).Create(o).Error)
			var read []Twice
			b.ok(b.db.Find(&read).Error)
			require.Len(b.t, read, 1, "such a type can be read")
		},
		"a struct with an aggregate out of reach": func(b *bench) {
			b.tableOf(&Lost{})
			o := &Lost{ID: "1", state: map[string][]struct{ Core }{"x": {{}}}}
			raising(&o.state["x"][0], "a")
			err := b.db.Create(o).Error
			require.ErrorContains(b.t, err, "gormplugin_test.Lost: nothing writes a row for state[][].Core.Aggregate, so its events would be lost: raise them on")
			b.want()
			require.Zero(b.t, b.count(&Lost{}))
		},
		"odd aggregates in a transaction of the caller's own": func(b *bench) {
			b.tableOf(&Wallet{})
			b.tableOf(&Keyed{})
			w, e, h := &Wallet{ID: "1"}, &Keyed{Base: Base{ID: "2"}}, &Hidden{ID: "3"}
			w.Raise(Happened{"a"})
			raising(&e.Base, "b")
			h.Hide()
			own, commit := foreign(b.t, b.db)
			b.ok(own.Create(w).Error)
			b.ok(own.Create(e).Error)
			commit()
			b.ok(gormplugin.Notify(b.db, w, []any{*e, h}, &HiddenPointer{}))
			b.ok(gormplugin.Notify(b.db, []any{}, []*Wallet{}))
			require.EqualError(b.t, gormplugin.Notify(b.db, nil, &Plain{}), "gormplugin: notify of <nil>: give a pointer to a struct that has a uow.Aggregate\n"+
				"gormplugin: notify of *gormplugin_test.Plain: give a pointer to a struct that has a uow.Aggregate")
			b.want("1: a", "2: b")
			b.pending(w)
			b.pending(e)
			b.pending(h, "hidden")
		},
	})
}

// columns wants a model's table to have these columns, which its migration, done again, leaves as
// they are.
func (b *bench) columns(model any, names ...string) {
	b.t.Helper()
	b.ok(b.db.AutoMigrate(model))
	types, err := b.db.Migrator().ColumnTypes(model)
	b.ok(err)
	columns := []string{}
	for _, column := range types {
		columns = append(columns, column.Name())
	}
	require.ElementsMatch(b.t, names, columns)
}
