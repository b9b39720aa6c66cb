package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// Others look for the pool of prepared statements by its type: PostgreSQL's migrator and the
// resolver. And what the plugin writes is no business of it.
func TestPreparedStatementsStayOutside(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		db := b.open(&gorm.Config{PrepareStmt: true})
		b.use(db)
		prepared, ok := db.ConnPool.(*gorm.PreparedStmtDB)
		require.True(b.t, ok)
		require.NoError(b.t, db.Transaction(func(tx *gorm.DB) error { return tx.Create(placed("1")).Error }))
		b.want("OrderPlaced 1", "OrderPlaced 1>partner")
		require.NotEmpty(b.t, prepared.Stmts.Keys())
		for _, text := range prepared.Stmts.Keys() {
			assert.NotContains(b.t, text, "outbox")
		}
	})
}
