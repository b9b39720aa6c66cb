package fanout_test

import (
	"context"
	"database/sql"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	sqlmysql "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// says waits for a line of the log.
func (l *landlord) says(text string) {
	l.Helper()
	l.eventually(func() bool { return strings.Contains(l.log.String(), text) }, "the log lacks "+text)
}

func opened(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func count(t *testing.T, db *sql.DB, query string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), query, args...).Scan(&n))
	return n
}

// listed is a list of tenants that a test changes.
type listed struct {
	mu   sync.Mutex
	list map[string]config.Database
}

func (l *listed) set(name string, database *config.Database) {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := map[string]config.Database{}
	if database != nil {
		changed[name] = *database
	}
	for other, at := range l.list {
		if other != name {
			changed[other] = at
		}
	}
	l.list = changed
}

func (l *listed) option() fanout.Option {
	return fanout.WithTenants(func(context.Context) (map[string]config.Database, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.list, nil
	})
}

// The commits of a GORM handle wake the tenant that has its name: three of them leave within less time
// than two visits take.
func TestCommitOfAHandleWakesATenant(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	_, schemas := schemaTenants(t, 1)
	acme := schemas["tenant_000"]
	tenants := &listed{list: map[string]config.Database{"acme": acme}}
	l := runTenants(t, "{idle_after: 1s, every: 1s, visit_every: 1m}", tenants.option())
	db, err := gorm.Open(postgres.Open(acme.DSN.Reveal()), &gorm.Config{})
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	defer pool.Close()
	_, err = l.relay.ConnectDB("acme", db)
	require.ErrorContains(t, err, "a handle with the outbox plugin")
	routing := outbox.Routing{External: []outbox.Route{{Broker: "partner", Overrides: outbox.Overrides{Destination: "partner"}}}}
	require.NoError(t, db.Use(gormplugin.New(wakeUps(), routing)))
	disconnect, err := l.relay.ConnectDB("acme", db)
	require.NoError(t, err)
	defer disconnect()

	l.says(`msg="tenants found" tenants=1`)
	began := time.Now()
	for n := range 3 {
		require.NoError(t, db.Transaction(func(tx *gorm.DB) error { return uow.Publish(tx, wakeUp{n}) }))
		l.eventually(func() bool { return strings.Count(l.log.String(), `msg="tenant asleep"`) > n }, "delivered, and asleep again")
		assert.Equal(t, n+1, l.delivered("default"))
	}
	assert.Less(t, time.Since(began), time.Minute)
}

func migrated(t *testing.T, databases map[string]config.Database) {
	t.Helper()
	cfg, err := config.Parse([]byte("brokers: {default: {type: memory}}\n"), "fanout.yaml")
	require.NoError(t, err)
	cfg.Databases = databases
	require.NoError(t, fanout.Migrate(t.Context(), cfg))
}

// Of a tenant that was removed while it was awake no goroutine and no connection is left.
//
//nolint:paralleltest // the goroutines of other tests would be among those that it counts
func TestRemovedTenantLeavesNothing(t *testing.T) {
	atPostgres, mysqlDSN := testenv.Postgres(t), testenv.MySQL(t)
	databases := map[string]config.Database{
		"left":  {Driver: outbox.Postgres, DSN: config.Secret(atPostgres), Notify: true},
		"right": {Driver: outbox.MySQL, DSN: config.Secret(mysqlDSN)},
	}
	migrated(t, databases)
	address, err := url.Parse(atPostgres)
	require.NoError(t, err)
	database := strings.Trim(address.Path, "/")
	address.Path = "/postgres" // so that what the test asks does not count
	parsed, err := sqlmysql.ParseDSN(mysqlDSN)
	require.NoError(t, err)
	name := parsed.DBName
	parsed.DBName = ""
	servers := map[string]*sql.DB{"left": opened(t, "pgx", address.String()), "right": opened(t, "mysql", parsed.FormatDSN())}
	connections := func(tenant string) int {
		if tenant == "left" {
			return count(t, servers[tenant], "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'", database)
		}
		return count(t, servers[tenant], "SELECT count(*) FROM information_schema.processlist WHERE db = ?", name)
	}
	tenants := &listed{}
	l := runTenants(t, "{idle_after: 1h, every: 1s, visit_every: 1s}", tenants.option())
	for _, tenant := range []string{"left", "right"} {
		at := databases[tenant]
		l.eventually(func() bool { return connections(tenant) == 0 }, "what the migration left")
		before := goleak.IgnoreCurrent()
		tenants.set(tenant, &at)
		db, err := sql.Open(map[string]string{"left": "pgx", "right": "mysql"}[tenant], at.DSN.Reveal())
		require.NoError(t, err)
		already := l.delivered("default")
		write(t, at.Driver, db, "default", 20)
		require.NoError(t, db.Close())
		l.eventually(func() bool { return l.delivered("default") == already+20 }, "delivered")
		assert.Positive(t, connections(tenant))
		assert.Len(t, l.relay.Stats(), 2)
		tenants.set(tenant, nil)
		l.says(`msg="tenant removed" tenant=` + tenant)
		l.eventually(func() bool { return connections(tenant) == 0 && len(l.relay.Stats()) == 0 }, "no connection")
		l.eventually(func() bool { return connections(tenant) == 0 && goleak.Find(before) == nil }, "no goroutine") // of a busy driver, one may end late
	}
}
