package gormplugin_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/schema"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/internal/capture"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// GORM starts a goroutine for each cache of prepared statements and never ends it.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(program{m}, goleak.IgnoreAnyFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}

// program is all tests of the package.
type program struct{ *testing.M }

func (p program) Run() int {
	code := p.M.Run()
	for _, end := range ends {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	return code
}

// onCommit hears of commits as a relay in the process does.
func onCommit(db *gorm.DB, f func([]wakeup.WakeUp) bool) (cancel func()) {
	return db.Plugins[capture.HooksName].(wakeup.Source).OnCommit(f)
}

// ends end what the tests have shared.
var ends = []func() error{dropPostgresPlaces, dropMySQLPlaces}

// bench is one place with the plugin on its handle.
type bench struct {
	t       *testing.T
	db      *gorm.DB
	plugin  *gormplugin.Plugin
	dialect outbox.Dialect
	at      place
	log     *logs
	pools   []*sql.DB
}

// logs are written by whoever commits.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// config gives the tables of the place to a handle.
func (at place) config(config *gorm.Config) *gorm.Config {
	if config == nil {
		config = &gorm.Config{}
	}
	config.Logger = logger.Discard
	config.NamingStrategy = schema.NamingStrategy{TablePrefix: at.prefix}
	config.DisableForeignKeyConstraintWhenMigrating = true // so that tables go in any order
	return config
}

func (at place) outbox() string { return at.prefix + "outbox_messages" }

type migrator interface {
	Migrate(ctx context.Context) ([]string, error)
}

func migrate(db *gorm.DB, at place, store func(*sql.DB, string) (migrator, error)) error {
	sqlDB, err := db.DB()
	if err != nil {
		return err
	}
	m, err := store(sqlDB, at.outbox())
	if err != nil {
		return err
	}
	if _, err := m.Migrate(context.Background()); err != nil {
		return err
	}
	if err := db.SetupJoinTable(&Team{}, "Members", &Membership{}); err != nil {
		return err
	}
	return db.Transaction(func(tx *gorm.DB) error { return tx.Migrator().CreateTable(models...) }) // one wait for the disk
}

func newBench(t *testing.T, at place, options []gormplugin.Option) *bench {
	t.Helper()
	b := &bench{t: t, at: at, log: new(logs)}
	b.db = b.open(&gorm.Config{})
	b.dialect = outbox.Dialect(b.db.Name())
	b.plugin = b.use(b.db, options...)
	return b
}

// open opens another handle on the same tables, without the plugin.
func (b *bench) open(config *gorm.Config) *gorm.DB {
	b.t.Helper()
	return b.openOn(b.at.dial(false), config)
}

func (b *bench) openOn(dialector gorm.Dialector, config *gorm.Config) *gorm.DB {
	b.t.Helper()
	db, err := gorm.Open(dialector, b.at.config(config))
	require.NoError(b.t, err)
	sqlDB, err := db.DB()
	require.NoError(b.t, err)
	b.watch(sqlDB)
	return db
}

// watch closes a pool after the case, which must not leave a connection in use.
func (b *bench) watch(pool *sql.DB) {
	b.pools = append(b.pools, pool)
	b.t.Cleanup(func() { _ = pool.Close() })
}

// settled fails when a connection stays in use. Where a context was cancelled database/sql rolls
// back on its own time.
func (b *bench) settled() {
	b.t.Helper()
	for _, pool := range b.pools {
		idle := func() bool { return pool.Stats().InUse == 0 }
		if !idle() {
			assert.Eventually(b.t, idle, 30*time.Second, time.Millisecond, "a connection stays in use")
		}
	}
}

// not leaves a case out on a database, and says why.
func (b *bench) not(dialect outbox.Dialect, reason string) {
	b.t.Helper()
	if b.dialect == dialect {
		b.t.Skipf("not on %s: %s", dialect, reason)
	}
}

// updatesReturn leaves a case out where an UPDATE returns nothing.
func (b *bench) updatesReturn() {
	b.t.Helper()
	b.not(outbox.SQLServer, "its driver knows no RETURNING")
	b.not(outbox.MySQL, "its UPDATE knows no RETURNING")
}

// deletesReturn leaves a case out where a DELETE returns nothing.
func (b *bench) deletesReturn() {
	b.t.Helper()
	b.not(outbox.SQLServer, "its driver knows no RETURNING")
	if b.at.silent {
		b.t.Skip("MySQL knows no RETURNING")
	}
}

// preparesSavepoints leaves a case out where the server takes savepoints only as plain text.
func (b *bench) preparesSavepoints() {
	b.t.Helper()
	if b.at.refuses {
		b.t.Skip("MySQL refuses to prepare savepoints: error 1295")
	}
}

// insertsReturn reports whether an INSERT returns the rows that it has inserted, and no others.
func (b *bench) insertsReturn() bool {
	return b.dialect == outbox.SQLite || b.dialect == outbox.Postgres
}

// only leaves a case out on all databases but one.
func (b *bench) only(dialect outbox.Dialect, reason string) {
	b.t.Helper()
	if b.dialect != dialect {
		b.t.Skipf("on %s only: %s", dialect, reason)
	}
}

// Small, so that going over it is quick.
const maxPayload = 1 << 15

// newPlugin makes a plugin for the place's tables.
func (b *bench) newPlugin(opts ...gormplugin.Option) *gormplugin.Plugin {
	routing := outbox.Routing{Table: b.at.outbox(), External: []outbox.Route{{Broker: "partner"}}, MaxPayloadBytes: maxPayload}
	return gormplugin.New(catalog(), routing,
		append(opts, gormplugin.WithLogger(slog.New(slog.NewTextHandler(b.log, nil))))...)
}

// use puts a plugin on a handle.
func (b *bench) use(db *gorm.DB, opts ...gormplugin.Option) *gormplugin.Plugin {
	b.t.Helper()
	plugin := b.newPlugin(opts...)
	require.NoError(b.t, db.Use(plugin))
	return plugin
}

// row is what a test looks at.
type row struct {
	MessageID     string
	TargetBroker  string
	Stream        string
	Type          string
	OrderingKey   *string
	AggregateType *string
	AggregateID   *string
	CorrelationID *string
	CausationID   *string
	TenantID      *string
	Priority      int
	Headers       *string
	Payload       []byte
	Held          bool // until a time
	Expires       bool
}

// messageIDColumn is how a message's id is read as text, or as bytes.
func messageIDColumn(dialect outbox.Dialect) string {
	if dialect == outbox.MySQL {
		return "message_id"
	}
	return "CAST(message_id AS char(36))"
}

// messageID is what [messageIDColumn] has read, as text.
func messageID(read string) string {
	if id, err := uuid.FromBytes([]byte(read)); err == nil {
		return id.String()
	}
	return strings.ToLower(read)
}

func (b *bench) rows() []row {
	b.t.Helper()
	var rows []row
	// A handle of our own kind: sessions of the case, resolvers and the like must not change what
	// is read.
	db := b.db.Session(&gorm.Session{NewDB: true, Context: context.Background()})
	require.NoError(b.t, db.Table(b.at.outbox()).Select(messageIDColumn(b.dialect)+" AS message_id, target_broker, stream, type, ordering_key, "+
		"aggregate_type, aggregate_id, correlation_id, causation_id, tenant_id, priority, headers, payload, "+
		"CASE WHEN available_at IS NULL THEN 0 ELSE 1 END AS held, CASE WHEN expires_at IS NULL THEN 0 ELSE 1 END AS expires").
		Order("id").Find(&rows).Error)
	for i := range rows {
		rows[i].MessageID = messageID(rows[i].MessageID)
	}
	return rows
}

// shards are those of the rows of a type for a broker.
func (b *bench) shards(eventType, broker string) wakeup.Set {
	b.t.Helper()
	var shards []int
	require.NoError(b.t, b.db.Session(&gorm.Session{NewDB: true, Context: context.Background()}).Table(b.at.outbox()).
		Where("target_broker = ? AND type LIKE ?", broker, "%."+eventType+".%").Pluck("shard", &shards).Error)
	return wakeup.SetOf(shards...)
}

// emitted lists what stands in the outbox: "1: shipped" for a Happened of aggregate 1 or ":
// shipped" of none, and for the other events "OrderPlaced 1"; rows for an external broker end with
// ">partner".
func (b *bench) emitted() []string {
	b.t.Helper()
	result := []string{}
	for _, r := range b.rows() {
		id := ""
		if r.AggregateID != nil {
			id = *r.AggregateID
		}
		name := strings.TrimSpace(strings.Split(r.Type, ".")[1] + " " + id)
		if strings.HasPrefix(name, "Happened") {
			data, _ := internalOf(b.t, r)["data"].(map[string]any)
			name = id + ": " + data["what"].(string)
		}
		if r.TargetBroker != "default" {
			name += ">" + r.TargetBroker
		}
		result = append(result, name)
	}
	return result
}

func (b *bench) want(events ...string) {
	b.t.Helper()
	if events == nil {
		events = []string{}
	}
	require.Equal(b.t, events, b.emitted())
}

// pending wants these Happened, and nothing else, to be pending on an aggregate.
func (b *bench) pending(root any, what ...string) {
	b.t.Helper()
	events := []any{}
	for _, w := range what {
		events = append(events, Happened{w})
	}
	require.Equal(b.t, events, uow.Pending(root))
}

func (b *bench) ok(err error) {
	b.t.Helper()
	require.NoError(b.t, err)
}

// count counts the rows of a model's table.
func (b *bench) count(model any) int {
	b.t.Helper()
	var n int64
	require.NoError(b.t, b.db.Session(&gorm.Session{NewDB: true}).Unscoped().Model(model).Count(&n).Error)
	return int(n)
}

func (b *bench) orders() int {
	b.t.Helper()
	return b.count(&Order{})
}

// table is the name of a model's table.
func (b *bench) table(model any) string {
	b.t.Helper()
	statement := &gorm.Statement{DB: b.db}
	require.NoError(b.t, statement.Parse(model))
	return statement.Table
}

func internalOf(t *testing.T, r row) map[string]any {
	t.Helper()
	var message map[string]any
	require.NoError(t, json.Unmarshal(r.Payload, &message))
	return message
}

// sequences are those of the messages for the internal broker.
func (b *bench) sequences() (all []any) {
	b.t.Helper()
	for _, r := range b.rows() {
		if r.TargetBroker != "partner" {
			all = append(all, part(internalOf(b.t, r), "metadata", "domain")["sequence_id"])
		}
	}
	return all
}

// part reads nested objects of a message.
func part(message map[string]any, names ...string) map[string]any {
	for _, name := range names {
		message, _ = message[name].(map[string]any)
	}
	return message
}

func background() context.Context { return context.Background() }
