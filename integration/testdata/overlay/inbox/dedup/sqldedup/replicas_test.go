// This file is laid over the package when make test builds its tests: the plugin is not among the
// requirements of this module, which has to stay small for those who write.
package sqldedup_test

import (
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/plugin/dbresolver"

	"github.com/gorm-fanout/fanout/inbox/dedup"
	"github.com/gorm-fanout/fanout/inbox/dedup/sqldedup"
)

// A replica would answer from the past: a token that it has not yet is a message that is lost.
func TestReplicasAreNotAsked(t *testing.T) {
	t.Parallel()
	db := connect(t, sqlite.Open(sqliteFile(t)), &gorm.Config{})
	replica := sqlite.Open(sqliteFile(t)) // empty: nothing that was written arrives there
	resolver := dbresolver.Register(dbresolver.Config{Replicas: []gorm.Dialector{replica}})
	require.NoError(t, db.Use(resolver))
	t.Cleanup(func() {
		require.NoError(t, resolver.Call(func(pool gorm.ConnPool) error {
			if closer, ok := pool.(interface{ Close() error }); ok {
				return closer.Close()
			}
			return nil
		}))
	})
	_, err := sqldedup.Migrate(t.Context(), db)
	require.NoError(t, err)
	var n int64
	require.Error(t, db.Raw("SELECT count(*) FROM inbox_deduplication").Scan(&n).Error, "the plugin is at work")

	store, err := sqldedup.New(db)
	require.NoError(t, err)
	tokens, err := sqldedup.NewTokens(db)
	require.NoError(t, err)
	token, key := dedup.Token{Consumer: "billing", Value: "one"}, uuid.New()
	require.NoError(t, tokens.Create(t.Context(), []dedup.Token{token}, time.Now()))
	there, err := tokens.Exists(t.Context(), token)
	require.NoError(t, err)
	require.True(t, there)
	require.NoError(t, store.Add(t.Context(), "billing", key, time.Now()))
	has, err := store.Contains(t.Context(), "billing", key)
	require.NoError(t, err)
	require.True(t, has)
}
