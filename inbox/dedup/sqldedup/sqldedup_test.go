package sqldedup_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlserver"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/inbox/dedup"
	"github.com/gorm-fanout/fanout/inbox/dedup/deduptest"
	"github.com/gorm-fanout/fanout/inbox/dedup/sqldedup"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// GORM never ends the goroutine of its cache of prepared statements.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}

var databases = map[string]func(t *testing.T) gorm.Dialector{
	"sqlite":    func(t *testing.T) gorm.Dialector { return sqlite.Open(sqliteFile(t)) },
	"postgres":  func(t *testing.T) gorm.Dialector { return postgres.Open(testenv.Postgres(t)) },
	"sqlserver": func(t *testing.T) gorm.Dialector { return sqlserver.Open(testenv.SQLServer(t)) },
	"mysql":     func(t *testing.T) gorm.Dialector { return mysql.Open(testenv.MySQL(t) + "?parseTime=true") },
	"mysql, found rows": func(t *testing.T) gorm.Dialector {
		return mysql.Open(testenv.MySQL(t) + "?clientFoundRows=true&interpolateParams=true&loc=Asia%2FTokyo")
	},
}

func sqliteFile(t *testing.T) string {
	return "file:" + filepath.ToSlash(filepath.Join(t.TempDir(), "dedup.db")) + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"
}

func connect(t *testing.T, dialector gorm.Dialector, config *gorm.Config) *gorm.DB {
	t.Helper()
	config.Logger = logger.Discard
	db, err := gorm.Open(dialector, config)
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	pool.SetMaxOpenConns(8)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	return db
}

var tables atomic.Int64

// fresh makes a table of its own.
func fresh(t *testing.T, db *gorm.DB) sqldedup.Option {
	t.Helper()
	name := fmt.Sprintf("dedup_%s_%d", uuid.NewString()[:8], tables.Add(1))
	option := sqldedup.WithTable(name)
	applied, err := sqldedup.Migrate(t.Context(), db, option)
	require.NoError(t, err)
	require.Equal(t, []string{"0001_deduplication"}, applied)
	t.Cleanup(func() {
		assert.NoError(t, db.Exec("DROP TABLE "+name).Error)
		assert.NoError(t, db.Exec("DROP TABLE "+name+"_migrations").Error)
	})
	return option
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := connect(t, open(t), &gorm.Config{})
			deduptest.RunStore(t, func(t *testing.T) dedup.Store {
				store, err := sqldedup.New(db, fresh(t, db))
				require.NoError(t, err)
				return store
			})
			deduptest.RunTokens(t, func(t *testing.T) dedup.Tokens {
				tokens, err := sqldedup.NewTokens(db, fresh(t, db))
				require.NoError(t, err)
				return tokens
			})
			t.Run("prepared statements", func(t *testing.T) {
				t.Parallel()
				prepared := connect(t, open(t), &gorm.Config{PrepareStmt: true})
				deduptest.RunTokens(t, func(t *testing.T) dedup.Tokens {
					tokens, err := sqldedup.NewTokens(prepared, fresh(t, prepared))
					require.NoError(t, err)
					return tokens
				})
			})
			t.Run("both kinds in one table", func(t *testing.T) {
				t.Parallel()
				bothKinds(t, db)
			})
			t.Run("tokens of a transaction", func(t *testing.T) {
				t.Parallel()
				inTransaction(t, db)
			})
			t.Run("tables that are there", func(t *testing.T) {
				t.Parallel()
				tablesThatAreThere(t, db)
			})
			t.Run("migrations at a time", func(t *testing.T) {
				t.Parallel()
				migrations(t, db)
			})
		})
	}
}

func bothKinds(t *testing.T, db *gorm.DB) {
	t.Helper()
	option := fresh(t, db)
	store, err := sqldedup.New(db, option)
	require.NoError(t, err)
	tokens, err := sqldedup.NewTokens(db, option)
	require.NoError(t, err)
	key, old := uuid.New(), time.Now().Add(-time.Hour)
	token := dedup.Token{Consumer: "billing", Value: key.String()}

	require.NoError(t, store.Add(t.Context(), "billing", key, old))
	there, err := tokens.Exists(t.Context(), token)
	require.NoError(t, err)
	require.False(t, there)
	require.NoError(t, tokens.Create(t.Context(), []dedup.Token{token, token}, old))
	n, err := store.PurgeOlderThan(t.Context(), time.Now(), 10)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	has, err := store.Contains(t.Context(), "billing", key)
	require.NoError(t, err)
	require.False(t, has)
	there, err = tokens.Exists(t.Context(), token)
	require.NoError(t, err)
	require.True(t, there)

	require.NoError(t, store.Add(t.Context(), "billing", key, old))
	require.NoError(t, tokens.Remove(t.Context(), []dedup.Token{token}))
	has, err = store.Contains(t.Context(), "billing", key)
	require.NoError(t, err)
	require.True(t, has)
}

func inTransaction(t *testing.T, db *gorm.DB) {
	t.Helper()
	tokens, err := sqldedup.NewTokens(db, fresh(t, db))
	require.NoError(t, err)
	token := dedup.Token{Consumer: "billing", Value: "one"}
	for _, commit := range []bool{false, true} {
		err := db.Transaction(func(tx *gorm.DB) error {
			if err := tokens.In(tx).Create(t.Context(), []dedup.Token{token}, time.Now()); err != nil {
				return err
			}
			there, err := tokens.In(tx).Exists(t.Context(), token)
			assert.NoError(t, err)
			assert.True(t, there)
			if !commit {
				return assert.AnError
			}
			return nil
		})
		require.Equal(t, commit, err == nil, "%v", err)
		there, err := tokens.Exists(t.Context(), token)
		require.NoError(t, err)
		require.Equal(t, commit, there)
	}
}

func migrations(t *testing.T, db *gorm.DB) {
	t.Helper()
	option := fresh(t, db)
	applied, err := sqldedup.Migrate(t.Context(), db, option)
	require.NoError(t, err)
	require.Empty(t, applied)
	if db.Name() == "sqlite" { // whoever comes second may find its snapshot outdated, and has to be told to come again
		return
	}
	name := "dedup_" + uuid.NewString()[:8]
	var by atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			applied, err := sqldedup.Migrate(t.Context(), db, sqldedup.WithTable(name))
			assert.NoError(t, err)
			by.Add(int32(len(applied)))
		})
	}
	all.Wait()
	require.EqualValues(t, 1, by.Load())
	require.NoError(t, db.Exec("DROP TABLE "+name).Error)
	require.NoError(t, db.Exec("DROP TABLE "+name+"_migrations").Error)
}

// Another's table of that name stays as it is, and is not recorded as ours; one that another tool has made,
// or a migration that was broken off, is.
func tablesThatAreThere(t *testing.T, db *gorm.DB) {
	t.Helper()
	name := "dedup_" + uuid.NewString()[:8]
	require.NoError(t, db.Exec("CREATE TABLE "+name+" (id integer NOT NULL, kind varchar(8), consumer varchar(9), token varchar(9))").Error)
	require.NoError(t, db.Exec("INSERT INTO "+name+" (id) VALUES (7)").Error)
	for range 2 {
		steps, err := sqldedup.Migrate(t.Context(), db, sqldedup.WithTable(name))
		require.ErrorContains(t, err, name)
		require.ErrorContains(t, err, "column created_at: missing")
		require.ErrorContains(t, err, "sqldedup.WithTable")
		require.NotContains(t, err.Error(), "already exists")
		require.Empty(t, steps)
	}
	var id int
	require.NoError(t, db.Raw("SELECT id FROM "+name).Scan(&id).Error)
	require.Equal(t, 7, id)
	require.NoError(t, db.Exec("DROP TABLE "+name).Error)
	for _, want := range [][]string{{"0001_deduplication"}, {"0001_deduplication is already there, recorded"}, nil} {
		steps, err := sqldedup.Migrate(t.Context(), db, sqldedup.WithTable(name))
		require.NoError(t, err)
		require.Equal(t, want, steps)
		if len(want) > 0 && want[0] == "0001_deduplication" {
			require.NoError(t, db.Exec("DROP TABLE "+name+"_migrations").Error)
		}
	}
	require.NoError(t, db.Exec("DROP TABLE "+name).Error)
	require.NoError(t, db.Exec("DROP TABLE "+name+"_migrations").Error)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	db := connect(t, sqlite.Open(sqliteFile(t)), &gorm.Config{})
	_, err := sqldedup.New(nil)
	require.ErrorContains(t, err, "database is missing")
	_, err = sqldedup.NewTokens(nil)
	require.ErrorContains(t, err, "database is missing")
	_, err = sqldedup.Migrate(context.Background(), nil)
	require.ErrorContains(t, err, "database is missing")
	for _, table := range []string{"", "a b", "a;b", "1a", "a.b.c"} {
		_, err := sqldedup.New(db, sqldedup.WithTable(table))
		require.ErrorContains(t, err, "letters, digits and underscores", "%q", table)
	}
	_, err = sqldedup.Migrations("sqlserver", "old") // the name of a part of a statement
	require.ErrorContains(t, err, `"old"`)
	_, err = sqldedup.Migrations("oracle", sqldedup.DefaultTable)
	require.ErrorContains(t, err, "use postgres, sqlserver, mysql or sqlite")

	store, err := sqldedup.New(db)
	require.NoError(t, err)
	_, err = store.Contains(t.Context(), "billing", uuid.New())
	require.ErrorContains(t, err, "sqldedup: look, table inbox_deduplication")
	require.ErrorContains(t, err, "run sqldedup.Migrate")
}
