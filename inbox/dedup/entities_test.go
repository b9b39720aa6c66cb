package dedup_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/glebarez/sqlite"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/inbox/dedup"
	"github.com/gorm-fanout/fanout/inbox/dedup/deduptest"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// redisAccounts keeps accounts in hashes of Redis.
type redisAccounts struct {
	client *redis.Client
	prefix string
}

// compareAndSet saves a hash if it has the version that was loaded. KEYS: the hash; ARGV: that
// version, state, outbox.
var compareAndSet = redis.NewScript(`
if (redis.call('HGET', KEYS[1], 'version') or '') ~= ARGV[1] then
  return ''
end
redis.call('HSET', KEYS[1], 'state', ARGV[2], 'outbox', ARGV[3])
return tostring(redis.call('HINCRBY', KEYS[1], 'version', 1))
`)

func (r *redisAccounts) Load(ctx context.Context, id string) (e dedup.Entity[account], err error) {
	fields, err := r.client.HGetAll(ctx, r.prefix+id).Result()
	if err != nil || len(fields) == 0 {
		return e, err
	}
	e.Version = dedup.Version(fields["version"])
	return e, errors.Join(json.Unmarshal([]byte(fields["state"]), &e.State), json.Unmarshal([]byte(fields["outbox"]), &e.Outbox))
}

func (r *redisAccounts) Save(ctx context.Context, id string, e dedup.Entity[account]) (dedup.Version, error) {
	state, err := json.Marshal(e.State)
	if err != nil {
		return "", err
	}
	outbox, err := json.Marshal(e.Outbox)
	if err != nil {
		return "", err
	}
	version, err := compareAndSet.Run(ctx, r.client, []string{r.prefix + id}, string(e.Version), state, outbox).Text()
	if err == nil && version == "" {
		err = dedup.ErrConflict
	}
	return dedup.Version(version), err
}

// gormAccounts keeps accounts in a table.
type gormAccounts struct{ db *gorm.DB }

type accountRow struct {
	ID      string `gorm:"primaryKey"`
	Version int64
	Sum     int
	Outbox  dedup.Outbox `gorm:"serializer:json"`
}

func (g gormAccounts) Load(ctx context.Context, id string) (e dedup.Entity[account], err error) {
	var row accountRow
	err = g.db.WithContext(ctx).Take(&row, "id = ?", id).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return e, nil
	}
	if err != nil {
		return e, err
	}
	return dedup.Entity[account]{State: account{row.Sum}, Version: dedup.Version(strconv.FormatInt(row.Version, 10)), Outbox: row.Outbox}, nil
}

func (g gormAccounts) Save(ctx context.Context, id string, e dedup.Entity[account]) (dedup.Version, error) {
	row := accountRow{ID: id, Version: 1, Sum: e.State.Sum, Outbox: e.Outbox}
	db := g.db.WithContext(ctx)
	if e.Version == "" {
		db = db.Clauses(clause.OnConflict{DoNothing: true}).Create(&row)
	} else {
		old, err := strconv.ParseInt(string(e.Version), 10, 64)
		if err != nil {
			return "", err
		}
		row.Version = old + 1
		db = db.Model(&row).Where("version = ?", old).Select("Version", "Sum", "Outbox").Updates(&row)
	}
	if db.Error == nil && db.RowsAffected == 0 {
		return "", dedup.ErrConflict
	}
	return dedup.Version(strconv.FormatInt(row.Version, 10)), db.Error
}

func openRedis(t *testing.T) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(testenv.Redis(t))
	require.NoError(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func openSQLite(t *testing.T) *gorm.DB {
	t.Helper()
	file := "file:" + filepath.ToSlash(filepath.Join(t.TempDir(), "test.db")) + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
	return openGORM(t, sqlite.Open(file), 1)
}

func openPostgres(t *testing.T) *gorm.DB {
	t.Helper()
	return openGORM(t, postgres.Open(testenv.Postgres(t)), 8)
}

func openGORM(t *testing.T, dialector gorm.Dialector, connections int) *gorm.DB {
	t.Helper()
	db, err := gorm.Open(dialector, &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	pool.SetMaxOpenConns(connections)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	return db
}

func newGormAccounts(t *testing.T, db *gorm.DB) gormAccounts {
	t.Helper()
	require.NoError(t, db.AutoMigrate(&accountRow{}))
	return gormAccounts{db}
}

func TestEntitiesOfTheTests(t *testing.T) {
	t.Parallel()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		deduptest.RunEntities(t, func(t *testing.T) dedup.Entities[account] {
			return &redisAccounts{openRedis(t), testenv.RedisPrefix(t)}
		}, account{1}, account{2})
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		deduptest.RunEntities(t, func(t *testing.T) dedup.Entities[account] { return newGormAccounts(t, openSQLite(t)) }, account{1}, account{2})
	})
}
