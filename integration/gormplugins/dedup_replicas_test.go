package gormplugins_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/plugin/dbresolver"

	"github.com/gorm-fanout/fanout/inbox/dedup"
	"github.com/gorm-fanout/fanout/inbox/dedup/sqldedup"
)

// sqldedup reads from the primary. A replica answers from the past: a message whose token has not
// arrived there would never be processed.
func TestDedupAsksThePrimary(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) gorm.Dialector {
		return sqlite.Open(filepath.Join(dir, name) + "?_pragma=busy_timeout(10000)")
	}
	db, err := gorm.Open(file("primary.db"), &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	b := &bench{t: t}
	require.NoError(t, db.Use(b.resolver(dbresolver.Config{Replicas: []gorm.Dialector{file("empty.db")}})))
	_, err = sqldedup.Migrate(t.Context(), db)
	require.NoError(t, err)
	require.Error(t, db.Raw("SELECT count(*) FROM inbox_deduplication").Scan(new(int)).Error, "dbresolver routes reads to the replica")

	store, err := sqldedup.New(db)
	require.NoError(t, err)
	tokens, err := sqldedup.NewTokens(db)
	require.NoError(t, err)
	token, id := dedup.Token{Consumer: "billing", Value: "one"}, uuid.New()
	require.NoError(t, tokens.Create(t.Context(), []dedup.Token{token}, time.Now()))
	exists, err := tokens.Exists(t.Context(), token)
	require.NoError(t, err)
	require.True(t, exists)
	require.NoError(t, store.Add(t.Context(), "billing", id, time.Now()))
	contains, err := store.Contains(t.Context(), "billing", id)
	require.NoError(t, err)
	require.True(t, contains)
}
