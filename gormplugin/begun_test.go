package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
)

// A transaction that was begun by an SQL text on a reserved connection is the application's: the plugin writes in it,
// and neither ends it nor begins another one.
func TestTransactionsBegunBySQL(t *testing.T) {
	t.Parallel()
	begins := map[outbox.Dialect]string{
		outbox.Postgres: "START TRANSACTION ISOLATION LEVEL READ COMMITTED", outbox.MySQL: "START TRANSACTION",
		outbox.SQLite: "BEGIN IMMEDIATE", outbox.SQLServer: "BEGIN TRAN",
	}
	alone := func(b *bench, f func(tx *gorm.DB)) {
		b.ok(b.db.Session(&gorm.Session{SkipDefaultTransaction: true}).Connection(func(tx *gorm.DB) error {
			f(tx)
			return nil
		}))
	}
	for name, text := range map[string]func(sql string) string{
		"plain":         func(sql string) string { return sql },
		"with a remark": func(sql string) string { return "/* here */ " + sql + ";" },
		"a word":        func(string) string { return "begin" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(b *bench) {
				sql := text(begins[b.dialect])
				if sql == "begin" {
					b.not(outbox.SQLServer, "it begins a block there")
				}
				lines := []Line{{SKU: "x"}}
				raising(&lines[0], "line")
				o, gone := order("1", "a"), order("2", "gone")
				o.Lines = lines
				alone(b, func(tx *gorm.DB) {
					b.ok(tx.Exec(sql).Error)
					b.ok(tx.Create(gone).Error)
					b.ok(tx.Exec("ROLLBACK").Error)
					assert.Zero(b.t, b.orders())
					b.want()
					b.pending(gone, "gone")

					b.ok(tx.Exec(sql).Error)
					b.ok(tx.Create(o).Error)
					b.ok(tx.Model(raising(o, "b")).Update("status", "x").Error)
					b.ok(tx.Exec("COMMIT").Error)
					b.want("1: line", "1: a", "1: b")

					b.ok(tx.Create(order("3", "c")).Error) // in one of its own again
					b.want("1: line", "1: a", "1: b", "3: c")
				})
				b.ok(b.db.Create(gone).Error)
				b.want("1: line", "1: a", "1: b", "3: c", "2: gone")
				require.Contains(b.t, b.log.String(), "transaction on a pool that the plugin has not seen")
			})
		})
	}
}

func TestTextsThatBeginTransactions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]bool{
		"BEGIN":                             {true},
		"BEGIN; INSERT INTO t VALUES (1)":   {true},
		"BEGIN; SELECT 1; COMMIT":           {true, false},
		"COMMIT; BEGIN":                     {false, true},
		"COMMIT AND CHAIN":                  {true},
		"ROLLBACK AND NO CHAIN":             {false},
		"ROLLBACK TO a":                     nil,
		"SELECT 'BEGIN'; -- BEGIN":          nil,
		"START TRANSACTION READ ONLY":       {true},
		"CREATE TABLE start (begin bigint)": nil,
	} {
		assert.Equal(t, want, gormplugin.ControlOf(outbox.Postgres, text), text)
	}
	assert.Equal(t, []bool{true}, gormplugin.ControlOf(outbox.SQLServer, "BEGIN TRANSACTION x"))
	assert.Empty(t, gormplugin.ControlOf(outbox.SQLServer, "BEGIN SELECT 1 END"))
	assert.Equal(t, []bool{true}, gormplugin.ControlOf(outbox.MySQL, "START TRANSACTION"))
	assert.Equal(t, []bool{false}, gormplugin.ControlOf(outbox.MySQL, "CREATE TABLE t (id int)"))
}

// A COMMIT that is refused has ended the transaction, but on SQLite.
func TestCommitBySQLThatIsRefused(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		b.only(outbox.Postgres, "it has constraints that are checked at the commit")
		b.at.changed.Store(true)
		lines := b.table(&Line{})
		b.ok(b.db.Exec("ALTER TABLE " + lines + " ADD CONSTRAINT " + lines + "_refuse FOREIGN KEY (order_id) REFERENCES " +
			b.table(&Order{}) + " DEFERRABLE INITIALLY DEFERRED").Error)
		b.ok(b.db.Session(&gorm.Session{SkipDefaultTransaction: true}).Connection(func(tx *gorm.DB) error {
			b.ok(tx.Exec("BEGIN").Error)
			b.ok(tx.Exec("INSERT INTO " + lines + " (order_id) VALUES ('none')").Error)
			require.Error(b.t, tx.Exec("COMMIT").Error)
			o := &Order{ID: "1"}
			o.Raise(struct{ Unregistered int }{1})
			require.Error(b.t, tx.Create(o).Error)
			return nil
		}))
		assert.Zero(b.t, b.orders(), "the order and its event are written together, or neither")
	})
}
