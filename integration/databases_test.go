package integration_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the database/sql driver "mysql"
	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib" // the database/sql driver "pgx"
	"github.com/stretchr/testify/require"
	gormmysql "gorm.io/driver/mysql"
	gormpostgres "gorm.io/driver/postgres"
	gormsqlserver "gorm.io/driver/sqlserver"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// A place is an empty database on one kind of server.
type place struct {
	*testing.T

	driver outbox.Dialect
	dsn    string
	db     *sql.DB // the test's own connections
}

// servers are the kinds of servers, each with a database for a test.
var servers = map[outbox.Dialect]func(testing.TB) string{
	outbox.Postgres: testenv.Postgres, outbox.MySQL: testenv.MySQL, outbox.SQLServer: testenv.SQLServerDatabase,
}

// onServers runs a test on an empty database of each server that can be had, or of the one whose
// turn it is.
func onServers(t *testing.T, test func(t *testing.T, p *place)) {
	t.Helper()
	testenv.OnEach(t, slices.Sorted(maps.Keys(servers)), func(d outbox.Dialect) string { return string(d) }, func(t *testing.T, driver outbox.Dialect) {
		test(t, newPlace(t, driver))
	})
}

// onServersInTurn does so on PostgreSQL, and on the others where there is time: what it is about is
// brokers and processes, more than databases.
func onServersInTurn(t *testing.T, test func(t *testing.T, p *place)) {
	t.Helper()
	onServers(t, func(t *testing.T, p *place) {
		t.Helper()
		if p.driver != outbox.Postgres {
			testenv.NeedLong(t)
		}
		test(t, p)
	})
}

func newPlace(t *testing.T, driver outbox.Dialect) *place {
	t.Helper()
	p := &place{T: t, driver: driver, dsn: servers[driver](t)}
	name, dsn := string(driver), p.dsn
	if driver == outbox.Postgres {
		name = "pgx"
	}
	if driver == outbox.MySQL { // times are read as such
		dsn += "?parseTime=true"
	}
	var err error
	p.db, err = sql.Open(name, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.db.Close() })
	return p
}

// yaml is the section databases of a configuration.
func (p *place) yaml() string {
	return fmt.Sprintf("databases:\n  default: {driver: %s, dsn: %q}\n", p.driver, p.dsn)
}

// bare is [place.yaml] for an application that passes its own handle.
func (p *place) bare() string { return fmt.Sprintf("databases:\n  default: {driver: %s}\n", p.driver) }

// dial is a way for GORM.
func (p *place) dial() gorm.Dialector {
	switch p.driver {
	case outbox.MySQL:
		return gormmysql.Open(p.dsn)
	case outbox.SQLServer:
		return gormsqlserver.Open(p.dsn)
	default:
		return gormpostgres.Open(p.dsn)
	}
}

// openStore opens the table of a database.
func openStore(ctx context.Context, driver outbox.Dialect, dsn string) (driver.Store, error) {
	cfg := &config.Config{Databases: map[string]config.Database{"default": {Driver: driver, DSN: config.Secret(dsn)}}}
	return fanout.OpenStore(ctx, cfg, "default")
}

// migrate does what "fanout migrate" does.
func (p *place) migrate() {
	p.Helper()
	store, err := openStore(p.Context(), p.driver, p.dsn)
	require.NoError(p, err)
	defer store.Close()
	_, err = store.Migrate(p.Context())
	require.NoError(p, err)
}

// write inserts rows in one transaction.
func (p *place) write(rows ...outbox.Row) {
	p.Helper()
	tx, err := p.db.BeginTx(p.Context(), nil)
	require.NoError(p, err)
	defer func() { _ = tx.Rollback() }()
	require.NoError(p, insertRows(p.Context(), p.driver, tx, rows))
	require.NoError(p, tx.Commit())
}

func insertRows(ctx context.Context, driver outbox.Dialect, tx *sql.Tx, rows []outbox.Row) error {
	inserter, err := outbox.NewInserter(driver, outbox.DefaultTable)
	if err != nil {
		return err
	}
	return inserter.Insert(ctx, tx, rows)
}

// numbered is the n-th message, of a key among several; what the broker gets can be checked with
// [bench.checkOrder].
func numbered(broker, stream string, key, n int) outbox.Row {
	payload, err := json.Marshal(map[string]int{"key": key, "n": n})
	if err != nil { // numbers always encode
		panic(err)
	}
	return outbox.Row{
		MessageID: uuid.New(), TargetBroker: broker, Stream: stream, Type: "Ordering.OrderPlaced.v1", OrderingKey: fmt.Sprint("order-", key), Payload: payload,
	}
}

func (p *place) exec(statement string) {
	p.Helper()
	_, err := p.db.ExecContext(p.Context(), statement)
	require.NoError(p, err)
}

func (p *place) count(where string) (n int) {
	p.Helper()
	require.NoError(p, p.db.QueryRowContext(p.Context(), "SELECT count(*) FROM outbox_messages WHERE "+where).Scan(&n))
	return n
}

// has is the condition that a row has a payload.
func (p *place) has(payload string) string {
	if p.driver == outbox.SQLServer {
		return "payload = CONVERT(varbinary(max), '" + payload + "')"
	}
	return "payload = '" + payload + "'"
}

// expire ends leases at once, as if the time had passed.
func (p *place) expire() {
	p.Helper()
	p.leaseUntil(map[outbox.Dialect]string{outbox.Postgres: "now()", outbox.MySQL: "UTC_TIMESTAMP(6)", outbox.SQLServer: "SYSUTCDATETIME()"})
}

// hold prolongs leases, so that none ends before [place.expire], however slow the machine is.
func (p *place) hold() {
	p.Helper()
	p.leaseUntil(map[outbox.Dialect]string{
		outbox.Postgres: "now() + INTERVAL '1 hour'", outbox.MySQL: "UTC_TIMESTAMP(6) + INTERVAL 1 HOUR", outbox.SQLServer: "DATEADD(hour, 1, SYSUTCDATETIME())",
	})
}

func (p *place) leaseUntil(then map[outbox.Dialect]string) {
	p.Helper()
	p.exec("UPDATE outbox_messages SET locked_until = " + then[p.driver] + " WHERE status = 'processing'")
}

// moment reads a time of the server's.
func (p *place) moment(query string) (at time.Time) {
	p.Helper()
	require.NoError(p, p.db.QueryRowContext(p.Context(), query).Scan(&at))
	return at
}

// messages are the message ids of the rows, in order.
func (p *place) messages() (ids []string) {
	p.Helper()
	column := "message_id"
	if p.driver == outbox.SQLServer { // the driver would read its bytes in another order
		column = "CAST(message_id AS char(36))"
	}
	rows, err := p.db.QueryContext(p.Context(), "SELECT "+column+" FROM outbox_messages ORDER BY id")
	require.NoError(p, err)
	defer rows.Close()
	for rows.Next() {
		var id uuid.UUID
		require.NoError(p, rows.Scan(&id))
		ids = append(ids, id.String())
	}
	require.NoError(p, rows.Err())
	return ids
}

// state is every column of every row.
func (p *place) state() string {
	p.Helper()
	rows, err := p.db.QueryContext(p.Context(), "SELECT * FROM outbox_messages ORDER BY id") //nolint:unqueryvet // whatever there is
	require.NoError(p, err)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(p, err)
	var all strings.Builder
	for rows.Next() {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		require.NoError(p, rows.Scan(into...))
		fmt.Fprintln(&all, values...)
	}
	require.NoError(p, rows.Err())
	return all.String()
}
