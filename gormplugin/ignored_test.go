package gormplugin_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// Badge has a key that the application sets or the database makes, and another unique column.
type Badge struct {
	ID   uuid.UUID `gorm:"primaryKey;type:uuid;default:gen_random_uuid()"`
	Name string    `gorm:"size:64;uniqueIndex"`
	uow.Aggregate
}

// Parchment has badges and tickets by join tables, and belongs to a badge.
type Parchment struct {
	ID      string    `gorm:"primaryKey;size:64"`
	Badges  []*Badge  `gorm:"many2many:parchment_badges"`
	Tickets []Ticket  `gorm:"many2many:parchment_tickets"`
	BadgeID uuid.UUID `gorm:"type:uuid"`
	Badge   *Badge
	uow.Aggregate
}

// Stamp has a key of the application's, and a default that the database makes.
type Stamp struct {
	ID   string `gorm:"primaryKey;size:64"`
	Code string `gorm:"size:64;default:random()"`
	uow.Aggregate
}

// Marker has nothing that an upsert could update.
type Marker struct {
	ID uint `gorm:"primaryKey"`
	uow.Aggregate
}

// generated makes the tables of models whose keys and defaults the database makes.
func (b *bench) generated() {
	b.t.Helper()
	b.not(outbox.SQLServer, "its driver drops OnConflict unless the primary key is inserted, and makes keys of its own")
	b.not(outbox.MySQL, "it does not tell which rows were there: see mysql_test.go")
	b.tableOf(&Marker{})
	defaultID, defaultCode := "uuid DEFAULT gen_random_uuid()", "random()::text"
	if b.dialect == outbox.SQLite {
		defaultID, defaultCode = "text DEFAULT (lower(hex(randomblob(16))))", "(hex(randomblob(4)))"
	}
	for model, columns := range map[any]string{
		&Badge{}: "id " + defaultID + " PRIMARY KEY, name text UNIQUE",
		&Stamp{}: "id text PRIMARY KEY, code text DEFAULT " + defaultCode,
	} {
		b.ok(b.db.Exec("CREATE TABLE " + b.table(model) + " (" + columns + ")").Error)
		b.t.Cleanup(func() { _ = b.db.Migrator().DropTable(model) })
	}
	b.tableOf(&Parchment{})
	for _, join := range []string{"parchment_badges (parchment_id, badge_id)", "parchment_tickets (parchment_id, ticket_id)"} {
		name, columns, _ := strings.Cut(join, " ")
		first, second, _ := strings.Cut(strings.Trim(columns, "()"), ", ")
		kind := map[string]string{"badge_id": "uuid", "ticket_id": "bigint"}[second]
		b.ok(b.db.Exec("CREATE TABLE " + b.at.prefix + name + " (" + first + " text, " + second + " " + kind + ", PRIMARY KEY " + columns + ")").Error)
		b.t.Cleanup(func() { _ = b.db.Migrator().DropTable(b.at.prefix + name) })
	}
}

var ignoring = clause.OnConflict{DoNothing: true}

// uuidOf makes the same key for a number each time.
func uuidOf(n int) uuid.UUID { return uuid.MustParse(fmt.Sprintf("00000000-0000-4000-8000-%012d", n)) }

// badge is a new one with a key of the application's, which has raised its name.
func badge(n int) *Badge {
	name := fmt.Sprintf("b%d", n)
	return raising(&Badge{ID: uuidOf(n), Name: name}, name)
}

func ticket(id uint, name string) *Ticket { return raising(&Ticket{ID: id, Name: name}, name) }

// A batch whose conflicts do nothing, of models whose keys the database makes unless the
// application does: what is emitted is what was inserted, whatever count GORM comes to.
func TestBatchesThatIgnoreConflicts(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"an idempotent import": func(b *bench) {
			b.generated()
			var all []*Badge
			want := []string{}
			for n := range 100 {
				if n%3 == 0 {
					b.ok(b.db.Create(&Badge{ID: uuidOf(n), Name: fmt.Sprintf("b%d", n)}).Error)
				} else {
					want = append(want, fmt.Sprintf("%s: b%d", uuidOf(n), n))
				}
				all = append(all, badge(n))
			}
			result := b.db.Clauses(ignoring).Create(&all)
			b.ok(result.Error)
			b.want(want...)
			assert.EqualValues(b.t, 66, result.RowsAffected)
			assert.Equal(b.t, 100, b.count(&Badge{}))
			for n, one := range all {
				assert.Equal(b.t, uuidOf(n), one.ID)
				if n%3 == 0 {
					b.pending(one, one.Name)
				} else {
					b.pending(one)
				}
			}
			assert.EqualValues(b.t, 34, b.plugin.EventsLeftPending())
		},
		"an idempotent import once more": func(b *bench) {
			b.generated()
			b.ok(b.db.Create([]*Badge{{ID: uuidOf(1), Name: "b1"}, {ID: uuidOf(2), Name: "b2"}}).Error)
			b.ok(b.db.Clauses(ignoring).Create([]*Badge{badge(1), badge(2)}).Error)
			b.want()
			assert.EqualValues(b.t, 2, b.plugin.EventsLeftPending())
		},
		"an import in batches of values": func(b *bench) {
			b.generated()
			b.ok(b.db.Create(&Badge{ID: uuidOf(2), Name: "b2"}).Error)
			all := []Badge{*badge(1), *badge(2), *badge(3), *badge(4), *badge(5)}
			b.ok(b.db.Clauses(ignoring).CreateInBatches(all, 2).Error)
			b.want(uuidOf(1).String()+": b1", uuidOf(3).String()+": b3", uuidOf(4).String()+": b4", uuidOf(5).String()+": b5")
			b.pending(&all[1], "b2")
		},
		"serial keys, of values": func(b *bench) {
			b.generated()
			b.ok(b.db.Create(&Ticket{ID: 5, Name: "there"}).Error)
			tickets := []Ticket{*ticket(5, "there"), *ticket(7, "new"), *ticket(9, "newer")}
			b.ok(b.db.Clauses(ignoring).Create(&tickets).Error)
			b.want("7: new", "9: newer")
			b.pending(&tickets[0], "there")
		},
		"serial keys, set and not set": func(b *bench) {
			b.generated()
			b.ok(b.db.Create(&Ticket{ID: 500, Name: "there"}).Error)
			tickets := []*Ticket{ticket(0, "x"), ticket(500, "there"), ticket(700, "new"), ticket(0, "y")}
			b.ok(b.db.Clauses(ignoring).Create(tickets).Error)
			for _, one := range tickets {
				var found Ticket
				b.ok(b.db.First(&found, "name = ?", one.Name).Error)
				assert.Equal(b.t, found.ID, one.ID)
			}
			b.want(fmt.Sprintf("%d: x", tickets[0].ID), "700: new", fmt.Sprintf("%d: y", tickets[3].ID))
			b.pending(tickets[1], "there")
		},
		"keys that are set, and a conflict on another column": func(b *bench) {
			b.generated()
			b.ok(b.db.Create(&Badge{ID: uuidOf(9), Name: "b1"}).Error)
			badges := []*Badge{badge(1), badge(2)}
			b.ok(b.db.Clauses(ignoring).Create(badges).Error)
			b.want(uuidOf(2).String() + ": b2")
			b.pending(badges[0], "b1")
		},
		"keys that are not set, and a conflict on another column": func(b *bench) {
			b.generated()
			b.ok(b.db.Create(&Ticket{Name: "x"}).Error)
			tickets := []*Ticket{ticket(0, "x"), ticket(0, "y"), ticket(0, "z")}
			var partial *gormplugin.PartialBatchError
			require.ErrorAs(b.t, b.db.Clauses(ignoring).Create(tickets).Error, &partial)
			assert.Equal(b.t, gormplugin.PartialBatchError{Aggregate: "Ticket", Given: 3, Affected: 2}, *partial)
			b.want()
			for _, one := range tickets {
				assert.Zero(b.t, one.ID, "no key may be another one's")
			}
		},
		"keys that are not set, and a conflict, without events until later": func(b *bench) {
			b.generated()
			b.ok(b.db.Create(&Ticket{Name: "x"}).Error)
			tickets := []*Ticket{{Name: "x"}, {Name: "y"}}
			require.ErrorAs(b.t, b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Clauses(ignoring).Create(tickets).Error)
				assert.Zero(b.t, tickets[0].ID, "no key may be another one's")
				raising(tickets[0], "late")
				return nil
			}), new(*gormplugin.PartialBatchError))
			b.want()
		},
		"keys that are not set, all of which conflict": func(b *bench) {
			b.generated()
			b.ok(b.db.Create([]*Ticket{{Name: "x"}, {Name: "y"}}).Error)
			tickets := []*Ticket{ticket(0, "x"), ticket(0, "y")}
			b.ok(b.db.Clauses(ignoring).Create(tickets).Error)
			b.want()
			b.pending(tickets[0], "x")
		},
		"raised later in the transaction": func(b *bench) {
			b.generated()
			b.ok(b.db.Create(&Badge{ID: uuidOf(1), Name: "b1"}).Error)
			badges := []*Badge{{ID: uuidOf(1), Name: "b1"}, {ID: uuidOf(2), Name: "b2"}}
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Clauses(ignoring).Create(badges).Error)
				raising(badges[0], "a")
				raising(badges[1], "b")
				return nil
			}))
			b.want(uuidOf(2).String() + ": b")
			b.pending(badges[0], "a")
		},
		"the same key twice": func(b *bench) {
			b.generated()
			badges := []*Badge{badge(1), badge(1), badge(2)}
			raising(badges[1], "twin")
			b.ok(b.db.Clauses(ignoring).Create(badges).Error)
			b.want(uuidOf(1).String()+": b1", uuidOf(2).String()+": b2")
			b.pending(badges[1], "b1", "twin")
		},
		"the same pointer twice": func(b *bench) {
			b.generated()
			one := badge(1)
			b.ok(b.db.Clauses(ignoring).Create([]*Badge{one, one}).Error)
			b.want(uuidOf(1).String() + ": b1")
			b.pending(one)
		},
		"a key that stands otherwise in the database": func(b *bench) {
			b.generated()
			b.only(outbox.Postgres, "its uuid is a type")
			type Badge struct {
				ID   string `gorm:"primaryKey;type:uuid;default:gen_random_uuid()"`
				Name string
				uow.Aggregate
			}
			b.ok(b.db.Create(&Badge{ID: "aaaaaaaa-0000-4000-8000-000000000001", Name: "x"}).Error)
			badges := []*Badge{{ID: "AAAAAAAA-0000-4000-8000-000000000001", Name: "x"}, {ID: "AAAAAAAA-0000-4000-8000-000000000002", Name: "y"}}
			raising(badges[0], "x")
			raising(badges[1], "y")
			b.ok(b.db.Clauses(ignoring).Create(badges).Error)
			b.want(badges[1].ID + ": y")
			b.pending(badges[0], "x")
		},
		"a default beside a key of the application's": func(b *bench) {
			b.generated()
			b.ok(b.db.Create(&Stamp{ID: "1"}).Error)
			for _, codes := range [][2]string{{"x", "y"}, {"", ""}} {
				stamps := []*Stamp{{ID: "1", Code: codes[0]}, {ID: "2" + codes[1], Code: codes[1]}}
				raising(stamps[0], "stamped")
				raising(stamps[1], "stamped")
				b.ok(b.db.Clauses(ignoring).Create(stamps).Error)
				b.pending(stamps[0], "stamped")
				b.pending(stamps[1])
				assert.NotEmpty(b.t, stamps[1].Code, "filled in by the database")
			}
			b.want("2y: stamped", "2: stamped")
		},
		"an upsert that has nothing to update": func(b *bench) {
			b.generated()
			b.ok(b.db.Create(&Marker{ID: 1}).Error)
			markers := []*Marker{raising(&Marker{ID: 1}, "a"), raising(&Marker{ID: 2}, "b")}
			b.ok(b.db.Save(&markers).Error)
			b.want("2: b")
			b.pending(markers[0], "a")
		},
		"an upsert with a condition": func(b *bench) {
			b.generated()
			b.ok(b.db.Create([]*Ticket{{ID: 1, Name: "x", State: "closed"}, {ID: 2, Name: "y"}}).Error)
			tickets := []*Ticket{ticket(1, "x"), ticket(2, "y"), ticket(3, "z")}
			b.ok(b.db.Clauses(clause.OnConflict{
				Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.AssignmentColumns([]string{"state"}),
				Where: clause.Where{Exprs: []clause.Expression{clause.Neq{Column: clause.Column{Table: clause.CurrentTable, Name: "state"}, Value: "closed"}}},
			}).Create(tickets).Error)
			b.want("2: y", "3: z")
			b.pending(tickets[0], "x")
			assert.EqualValues(b.t, 2, tickets[1].ID)
		},
		"columns that the caller wants back": func(b *bench) {
			b.generated()
			b.ok(b.db.Create(&Ticket{ID: 1, Name: "x"}).Error)
			tickets := []*Ticket{ticket(1, "x"), ticket(2, "y")}
			b.ok(b.db.Clauses(ignoring, clause.Returning{Columns: []clause.Column{{Name: "name"}}}).Create(tickets).Error)
			b.want("2: y")
			b.pending(tickets[0], "x")
		},
		"with prepared statements": func(b *bench) {
			b.generated()
			b.ok(b.db.Create(&Badge{ID: uuidOf(1), Name: "b1"}).Error)
			b.ok(b.db.Session(&gorm.Session{PrepareStmt: true}).Clauses(ignoring).Create([]*Badge{badge(1), badge(2)}).Error)
			b.want(uuidOf(2).String() + ": b2")
		},
		"without a default transaction": func(b *bench) {
			b.generated()
			b.ok(b.db.Create(&Badge{ID: uuidOf(1), Name: "b1"}).Error)
			b.ok(b.db.Session(&gorm.Session{SkipDefaultTransaction: true}).Clauses(ignoring).Create([]*Badge{badge(1), badge(2)}).Error)
			b.want(uuidOf(2).String() + ": b2")
		},
		"a result": func(b *bench) {
			b.generated()
			b.ok(b.db.Create(&Badge{ID: uuidOf(1), Name: "b1"}).Error)
			result := gorm.WithResult()
			b.ok(b.db.Clauses(ignoring, result).Create([]*Badge{badge(1), badge(2), {Name: "b3"}}).Error)
			assert.EqualValues(b.t, 2, result.RowsAffected)
		},
		"an element that is nil": func(b *bench) {
			b.generated()
			require.ErrorIs(b.t, b.db.Clauses(ignoring).Create([]*Badge{badge(1), nil}).Error, gorm.ErrInvalidData)
			b.want()
		},
		"a modifier that ignores conflicts": func(b *bench) {
			b.generated()
			b.only(outbox.SQLite, "it says OR IGNORE")
			ignoring := b.db.Clauses(clause.Insert{Modifier: "or ignore"}).Session(&gorm.Session{})
			b.ok(b.db.Create([]*Badge{{ID: uuidOf(1), Name: "b1"}, {ID: uuidOf(9), Name: "b3"}}).Error)
			badges := []*Badge{badge(1), badge(2), badge(3)}
			b.ok(ignoring.Create(badges).Error)
			b.want(uuidOf(2).String() + ": b2")
			b.pending(badges[0], "b1")
			b.pending(badges[2], "b3")
			b.ok(b.db.Create(&Ticket{ID: 5, Name: "there"}).Error)
			tickets := []Ticket{*ticket(5, "there"), *ticket(7, "new")}
			b.ok(ignoring.Create(&tickets).Error)
			b.want(uuidOf(2).String()+": b2", "7: new")
			b.pending(&tickets[0], "there")
			require.ErrorAs(b.t, ignoring.Create([]*Ticket{ticket(0, "there"), ticket(0, "y")}).Error, new(*gormplugin.PartialBatchError))
			b.ok(ignoring.Create(ticket(0, "there")).Error)
			b.want(uuidOf(2).String()+": b2", "7: new")
		},
		"a trigger that passes over a row": func(b *bench) {
			b.generated()
			table := b.table(&Badge{})
			create := "CREATE TRIGGER skip_badges BEFORE INSERT ON " + table + " WHEN NEW.name = 'b1' BEGIN SELECT RAISE(IGNORE); END"
			if b.dialect == outbox.Postgres {
				b.ok(b.db.Exec("CREATE FUNCTION skip_badges() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN CASE WHEN NEW.name <> ''b1'' THEN NEW END; END'").Error)
				b.t.Cleanup(func() { b.ok(b.db.Exec("DROP FUNCTION skip_badges CASCADE").Error) })
				create = "CREATE TRIGGER skip_badges BEFORE INSERT ON " + table + " FOR EACH ROW EXECUTE FUNCTION skip_badges()"
			}
			b.ok(b.db.Exec(create).Error)
			var partial *gormplugin.PartialBatchError
			require.ErrorAs(b.t, b.db.Create([]*Badge{badge(1), badge(2)}).Error, &partial)
			assert.Equal(b.t, gormplugin.PartialBatchError{Aggregate: "Badge", Given: 2, Affected: 1}, *partial)
			b.want()
			b.ok(b.db.Create(badge(1)).Error)
			b.ok(b.db.Create([]*Badge{badge(2), badge(3)}).Error)
			b.want(uuidOf(2).String()+": b2", uuidOf(3).String()+": b3")
		},
		"a statement that fails": func(b *bench) {
			b.generated()
			b.ok(b.db.Create(&Ticket{ID: 500, Name: "x"}).Error)
			onID := clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, DoNothing: true}
			tickets := []*Ticket{ticket(0, "x"), ticket(7, "y")}
			require.Error(b.t, b.db.Clauses(onID).Create(tickets).Error)
			b.want()
			b.pending(tickets[1], "y")
			assert.Equal(b.t, 1, b.count(&Ticket{}))
		},
		"a statement that fails in a transaction that goes on": func(b *bench) {
			b.generated()
			b.ok(b.db.Create(&Ticket{ID: 500, Name: "x"}).Error)
			onID := clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, DoNothing: true}
			batch := func(tx *gorm.DB) error {
				return tx.Clauses(onID).Create([]*Ticket{ticket(0, "x"), ticket(7, "y")}).Error
			}
			require.Error(b.t, b.db.Transaction(func(tx *gorm.DB) error {
				require.Error(b.t, batch(tx))
				return nil
			}))
			assert.Equal(b.t, 1, b.count(&Ticket{}), "a part of it")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				require.Error(b.t, tx.Transaction(batch))
				return tx.Create(order("1", "a")).Error
			}))
			assert.Equal(b.t, 1, b.count(&Ticket{}))
			b.want("1: a")
		},
		"in a transaction of the caller's own": func(b *bench) {
			b.generated()
			b.ok(b.db.Create(&Badge{ID: uuidOf(1), Name: "b1"}).Error)
			own, err := b.pool().BeginTx(b.t.Context(), nil)
			b.ok(err)
			tx := b.adopt(own)
			b.ok(tx.Clauses(ignoring).Create([]*Badge{badge(1), badge(2)}).Error)
			b.ok(own.Commit())
			b.want(uuidOf(2).String() + ": b2")
		},
	})
	runCases(t, map[string]func(b *bench){
		"strict: a row that was there": func(b *bench) {
			b.generated()
			b.ok(b.db.Create(&Badge{ID: uuidOf(1), Name: "b1"}).Error)
			var pending *gormplugin.PendingError
			require.ErrorAs(b.t, b.db.Clauses(ignoring).Create([]*Badge{badge(1), badge(2)}).Error, &pending)
			assert.Equal(b.t, map[string]int{"Badge": 1}, pending.Aggregates)
			b.want()
		},
	}, gormplugin.WithStrict())
}

// The same by associations, whose conflicts do nothing.
func TestAssociationsThatAreThere(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"create with children, new and not": func(b *bench) {
			b.generated()
			b.ok(b.db.Create(&Badge{ID: uuidOf(1), Name: "b1"}).Error)
			there, added := badge(1), badge(2)
			b.ok(b.db.Create(raising(&Parchment{ID: "p", Badges: []*Badge{there, added, {Name: "b3"}}}, "written")).Error)
			b.want(uuidOf(2).String()+": b2", "p: written")
			b.pending(there, "b1")
			assert.Equal(b.t, 3, b.count(&Badge{}))
			var n int64
			b.ok(b.db.Table(b.at.prefix + "parchment_badges").Count(&n).Error)
			assert.EqualValues(b.t, 3, n)
		},
		"append of one that is there and one that is new": func(b *bench) {
			b.generated()
			b.ok(b.db.Create(&Ticket{ID: 1, Name: "x"}).Error)
			p := &Parchment{ID: "p"}
			b.ok(b.db.Create(p).Error)
			there, added := ticket(1, "x"), ticket(0, "y")
			added.ID = 9
			b.ok(b.db.Model(p).Association("Tickets").Append(there, added))
			b.want("9: y")
			b.pending(there, "x")
		},
		"append of one that is there and one without a key": func(b *bench) {
			b.generated()
			b.ok(b.db.Create(&Ticket{ID: 500, Name: "x"}).Error)
			p := &Parchment{ID: "p"}
			b.ok(b.db.Create(p).Error)
			there, added := ticket(500, "x"), ticket(0, "y")
			b.ok(b.db.Model(p).Association("Tickets").Append(there, added))
			b.want(fmt.Sprintf("%d: y", added.ID))
			b.pending(there, "x")
		},
		"many that belong to what is there and what is new": func(b *bench) {
			b.generated()
			b.ok(b.db.Create(&Badge{ID: uuidOf(1), Name: "b1"}).Error)
			there, added := badge(1), badge(2)
			b.ok(b.db.Create([]*Parchment{{ID: "p", Badge: there}, {ID: "q", Badge: added}}).Error)
			b.want(uuidOf(2).String() + ": b2")
			b.pending(there, "b1")
		},
	})
}
