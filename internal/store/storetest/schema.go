package storetest

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

var schemaTests = []test{
	{name: "MigrateIsIdempotent", run: testMigrate, bare: true},
	{name: "MigrateConcurrently", run: testMigrateConcurrently, bare: true, concurrent: true},
	{name: "MigrateAfterAnotherTool", run: testMigrateAfterAnotherTool, bare: true},
	{name: "MigrateNamesWhatAnotherToolLeftOut", run: testMigrateHalf, bare: true},
	{name: "CheckNamesWhatIsMissing", run: testCheck, bare: true},
	{name: "CheckNamesWhatIsWrong", run: testSpoils, seconds: true},
	{name: "ScratchNamesWhatWasReworded", run: testRewordings},
	{name: "WithoutTable", run: testWithoutTable, bare: true},
	{name: "AnothersTable", run: testAnothersTable, bare: true},
	{name: "AnothersIndex", run: testAnothersIndex, bare: true},
	{name: "TableNames", run: testTableNames},
}

func testMigrate(t *table) {
	steps, err := t.Store.Migrate(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, steps)
	assert.Equal(t, "0001_outbox", steps[0])
	ids := t.add("key")
	steps, err = t.another().Migrate(t.Context())
	require.NoError(t, err)
	assert.Empty(t, steps)
	assert.Equal(t, ids, t.ids("SELECT id FROM {t}"), "rows stay")
	assert.Equal(t, int64(1), t.number("SELECT count(*) FROM {t}_migrations WHERE version = 1 AND name = 'outbox'"))
}

func testMigrateConcurrently(t *table) {
	var (
		mu      sync.Mutex
		applied []string
		group   sync.WaitGroup
	)
	for range 6 {
		store := t.another()
		group.Go(func() {
			steps, err := store.Migrate(t.Context())
			assert.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			applied = append(applied, steps...)
		})
	}
	group.Wait()
	assert.Len(t, applied, int(t.number("SELECT count(*) FROM {t}_migrations")), "each step once: %v", applied)
	require.NoError(t, t.Store.Check(t.Context()))
}

// The tables are there, whole, and no record says who made them: the state that another migration tool
// leaves. They are recorded as they are.
func testMigrateAfterAnotherTool(t *table) {
	_, err := t.Store.Migrate(t.Context())
	require.NoError(t, err)
	t.exec("DROP TABLE {t}_migrations")
	ids := t.add("key")
	require.NoError(t, t.Store.Check(t.Context()), "it does not matter which tool made the tables")

	steps, err := t.another().Migrate(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"0001_outbox is already there, recorded"}, steps)
	assert.Equal(t, ids, t.ids("SELECT id FROM {t}"), "rows stay")
	assert.Equal(t, int64(1), t.number("SELECT count(*) FROM {t}_migrations WHERE version = 1 AND name = 'outbox'"))
	require.NoError(t, t.Store.Check(t.Context()))
	steps, err = t.Store.Migrate(t.Context())
	require.NoError(t, err)
	assert.Empty(t, steps)
}

// Tables that are not what the steps make are refused before anything is changed, with what is
// wrong and what to do, and not with the database's "already exists".
func testMigrateHalf(t *table) {
	_, err := t.Store.Migrate(t.Context())
	require.NoError(t, err)
	t.exec("DROP TABLE {t}_migrations")
	t.exec("ALTER TABLE {t}_instances DROP COLUMN host")
	t.add("key")
	for range 2 { // also not when it is tried again
		_, err = t.Store.Migrate(t.Context())
		var schema *admin.SchemaError
		require.ErrorAs(t, err, &schema)
		require.ErrorIs(t, err, outbox.ErrSchema)
		assert.Equal(t, []string{"column host of " + t.Table + "_instances: missing"}, schema.Differences)
		assert.Contains(t, schema.Remedy, `"fanout migrate --print"`)
		assert.NotContains(t, err.Error(), "already exists")
		assert.Equal(t, 1, t.count(outbox.StatusPending), "rows stay")
		require.Error(t, t.try("SELECT count(*) FROM {t}_migrations"), "nothing is recorded")
	}
}

func testCheck(t *table) {
	err := t.Store.Check(t.Context())
	require.ErrorIs(t, err, outbox.ErrSchema)
	require.ErrorContains(t, err, t.Table)
	require.ErrorContains(t, err, `run "fanout migrate"`)
	for _, difference := range differences(t) {
		assert.Regexp(t, "^table .*: missing$", difference, "nothing is said of what belongs to a missing table")
	}
	_, err = t.Store.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, t.Store.Check(t.Context()))

	t.exec("DROP TABLE {t}_key_blocks")
	require.Equal(t, []string{"table " + t.Table + "_key_blocks: missing"}, differences(t))
	require.ErrorContains(t, t.Store.Check(t.Context()), "changed by hand")
	t.exec("DROP TABLE {t}_migrations")
	require.ErrorContains(t, t.Store.Check(t.Context()), "the tool that made it")
}

// differences is what a check finds.
func differences(t *table) []string {
	t.Helper()
	err := t.Store.Check(t.Context())
	if err == nil {
		return nil
	}
	var schema *admin.SchemaError
	require.ErrorAs(t, err, &schema)
	return schema.Differences
}

// The check names each change by hand, and ignores further objects.
func testSpoils(t *table) {
	known := t.spoil(spoils, func() []string { return differences(t) })
	require.NotEmpty(t, known)
	require.ErrorIs(t, t.Store.Check(t.Context()), outbox.ErrSchema)
}

// A relay starts whatever an expression says; the comparison with a scratch schema names it.
func testRewordings(t *table) {
	t.spoil(rewordings, func() []string {
		require.NoError(t, t.Store.Check(t.Context()))
		found, err := t.Store.CompareWithScratch(t.Context())
		require.NoError(t, err)
		return found
	})
}

// spoil applies the cases in turn to an intact table, and returns all differences that they make.
func (t *table) spoil(cases map[outbox.Dialect][]spoil, find func() []string) (known []string) {
	require.Empty(t, find())
	for _, spoil := range cases[t.Store.Dialect()] {
		for i, statement := range spoil.statements {
			err := t.try(statement)
			require.Equal(t, spoil.fails && i == len(spoil.statements)-1, err != nil, "%s: %v", statement, err)
		}
		for _, want := range spoil.wants {
			known = append(known, t.render(want))
		}
		found := find()
		slices.Sort(known)
		slices.Sort(found)
		require.Len(t, found, len(known), "after %s: %q", spoil.statements, found)
		for i, want := range known {
			require.Truef(t, strings.HasPrefix(found[i], want), "after %s: want %s, got %s", spoil.statements, want, found[i])
		}
	}
	return known
}

// Before the migration every verb says what to do.
func testWithoutTable(t *table) {
	ctx, request := t.Context(), t.request()
	calls := map[string]func() error{
		"claim":      func() error { _, err := t.Store.Exchange(ctx, nil, request); return err },
		"ready":      func() error { _, err := t.Store.Ready(ctx, broker, 0); return err },
		"renew":      func() error { _, err := t.Store.Renew(ctx, driver.Lease{Broker: broker}); return err },
		"counts":     func() error { _, err := t.Store.Counts(ctx); return err },
		"brokers":    func() error { _, err := t.Store.FinishedBrokers(ctx); return err },
		"overview":   func() error { _, err := t.Store.Overview(ctx, 1); return err },
		"key blocks": func() error { _, err := t.Store.KeyBlocks(ctx, broker, 1, 1); return err },
		"message":    func() error { _, err := t.Store.Message(ctx, uuid.NewString()); return err },
		"audit":      func() error { _, err := t.Store.Audit(ctx, 0, 1); return err },
		"audit begins": func() error {
			_, err := t.Store.BeginAudit(ctx, admin.AuditEntry{Actor: "a", Via: "go", Action: "purge"})
			return err
		},
		"audit ends":   func() error { return t.Store.EndAudit(ctx, 1, 0, "") },
		"instances":    func() error { _, err := t.Store.Instances(ctx); return err },
		"heartbeat":    func() error { return t.Store.Heartbeat(ctx, newInstance("relay")) },
		"leave":        func() error { return t.Store.Leave(ctx, uuid.New()) },
		"pauses":       func() error { _, err := t.Store.Pauses(ctx); return err },
		"pause":        func() error { _, err := t.Store.Pause(ctx, admin.Pause{Broker: broker}); return err },
		"resume":       func() error { _, err := t.Store.Resume(ctx, broker); return err },
		"unblock":      func() error { _, err := t.Store.UnblockKey(ctx, broker, "key"); return err },
		"blocked keys": func() error { _, err := t.Store.BlockedKeys(ctx, broker, 1); return err },
		"purge": func() error {
			_, err := t.Store.Purge(ctx, admin.PurgeRequest{Status: outbox.StatusPublished, Limit: 1, Broker: broker})
			return err
		},
	}
	for _, status := range outbox.Statuses() {
		calls["list "+string(status)] = func() error {
			_, err := t.Store.List(ctx, admin.ListRequest{Broker: broker, Status: status, Limit: 1, Scan: 1})
			return err
		}
	}
	for _, action := range t.calls() {
		calls[action.name] = func() error { _, err := action.run(admin.Filter{}, 1); return err }
	}
	for name, call := range calls {
		err := call()
		require.ErrorIs(t, err, outbox.ErrSchema, name)
		assert.ErrorContains(t, err, "fanout migrate", name)
	}
}

// Tables of any allowed name live side by side and share nothing.
func testTableNames(t *table) {
	t.add("key")
	for _, name := range t.Tables {
		store := t.Open(t.T, name)
		_, err := store.Migrate(t.Context())
		require.NoError(t, err, name)
		require.NoError(t, store.Check(t.Context()), name)
		other := newTable(t.T, Bundle{Store: store, DB: t.DB, Table: name})
		ids := other.add(other.keys(2)...)
		batch := other.claim(limit(1))
		require.Equal(t, ids[:1], taken(batch), name)
		kept, err := store.Renew(t.Context(), batch.Lease)
		require.NoError(t, err)
		assert.Equal(t, 1, kept)
		other.publish(batch)
		assert.Equal(t, []int{other.shard}, other.ready())
		assert.Equal(t, 1, other.purge(outbox.StatusPublished, 0, 10))
		assert.Len(t, other.counts(), 1)
		other.failHead(ids[1])
		assert.Equal(t, 1, other.deferRows())
		assert.Equal(t, 1, other.requeue(admin.Filter{}), name)
		assert.Equal(t, 1, other.abandon(admin.Filter{}), name)
		assert.Empty(t, other.blockedKeys())
		assert.Empty(t, other.pauses(), name)
		assert.True(t, other.pause(admin.Pause{Broker: broker}), name)
		assert.Empty(t, other.instances(), name)
		other.heartbeat(newInstance("relay"))
		assert.Len(t, other.instances(), 1, name)
	}
	assert.Equal(t, 1, t.count(outbox.StatusPending))
	assert.Empty(t, t.pauses())
	assert.Empty(t, t.instances())
}

// A foreign table of that name is not taken for ours: nothing is recorded, nothing is
// made, and its rows stay.
func testAnothersTable(t *table) {
	t.exec("CREATE TABLE {t} (id INTEGER NOT NULL, note VARCHAR(20))")
	t.exec("INSERT INTO {t} (id, note) VALUES (1, 'mine')")
	_, err := t.Store.Migrate(t.Context())
	require.ErrorIs(t, err, outbox.ErrSchema)
	require.ErrorContains(t, err, "another name under outbox.table")
	require.Error(t, t.another().Check(t.Context()))
	assert.Equal(t, int64(1), t.number("SELECT count(*) FROM {t} WHERE note = 'mine'"))
	assert.Error(t, t.try("SELECT count(*) FROM {t}_key_blocks"), "nothing else was made")
	_, err = t.Store.Migrate(t.Context())
	require.Error(t, err, "also not when it is tried again")
}

// A name that something else has, where names of indexes are those of the whole schema, is an error
// that says so.
func testAnothersIndex(t *table) {
	if t.Store.Dialect() != outbox.Postgres && t.Store.Dialect() != outbox.SQLite {
		t.Skip("names of indexes are those of their table")
	}
	t.exec("CREATE TABLE {f}_notes (id INTEGER)")
	t.exec("CREATE INDEX {f}_failing ON {f}_notes (id)")
	_, err := t.Store.Migrate(t.Context())
	require.ErrorContains(t, err, "step 0001_outbox: ")
	require.ErrorContains(t, err, "has an object of that name")
	require.NotErrorIs(t, err, outbox.ErrSchema, "it would tell to run what has just been run")
	require.Error(t, t.try("SELECT count(*) FROM {t}"), "all is made, or nothing")
	t.exec("DROP TABLE {f}_notes")
	_, err = t.Store.Migrate(t.Context())
	require.NoError(t, err)
}

var diagnoseTests = []test{
	{name: "BeforeAndAfterTheMigration", run: testDiagnose, bare: true},
}

// A diagnosis needs no tables, and changes nothing.
func testDiagnose(t *table) {
	for range 2 {
		d, err := t.Store.Diagnose(t.Context())
		require.NoError(t, err)
		require.NoError(t, d.Err())
		assert.Regexp(t, `^\S.* \d+`, d.Server)
		assert.NotEmpty(t, d.Settings)
		assert.Less(t, d.ClockOffset.Abs(), 10*time.Minute)
		assert.GreaterOrEqual(t, d.ClockError, time.Duration(0))
		_, err = t.Store.Migrate(t.Context())
		require.NoError(t, err)
	}
	require.NoError(t, t.Store.Check(t.Context()))
}
