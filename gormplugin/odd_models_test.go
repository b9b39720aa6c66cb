package gormplugin_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/uow"
)

// Parcel embeds a whole aggregate as a pointer.
type Parcel struct {
	*Order

	Weight int
}

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
		"an aggregate that embeds another as a pointer": func(b *bench) {
			b.tableOf(&Parcel{})
			p := &Parcel{Order: order("1", "a"), Weight: 1}
			b.ok(b.db.Create(p).Error)
			b.ok(b.db.Save(raising(p, "b")).Error)
			b.want("1: a", "1: b")
		},
		"an aggregate that embeds another as a pointer that is nil": func(b *bench) {
			b.tableOf(&Parcel{})
			b.ok(b.db.Create(&Parcel{Order: order("1")}).Error)
			b.ok(b.db.Model(&Parcel{}).Where("id = ?", "1").Updates(&Parcel{Weight: 2}).Error)
			b.ok(b.db.Model(&Parcel{}).Where("id = ?", "1").Updates(Parcel{Weight: 3}).Error)
			b.want()
		},
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
		"a version behind an embedded pointer": func(b *bench) {
			b.tableOf(&Draft{})
			d := raising(&Draft{ID: "1", Revision: &Revision{Version: 3}}, "a")
			b.ok(b.db.Create(d).Error)
			b.want("1: a")
			require.Equal(b.t, "3.1", part(internalOf(b.t, b.rows()[0]), "metadata", "domain")["sequence_id"])
		},
		"a version behind an embedded pointer that is nil": func(b *bench) {
			b.tableOf(&Draft{})
			d := raising(&Draft{ID: "1"}, "a")
			b.ok(b.db.Create(d).Error)
			b.ok(b.db.Delete(*raising(d, "b")).Error)
			b.want("1: a", "1: b")
			require.Nil(b.t, d.Revision, "what the application left out stays out")
		},
	})
}
