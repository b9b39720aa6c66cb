package sqlserver

import (
	sqldriver "database/sql/driver"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/schemacheck"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

func versions(values ...sqldriver.Value) reply {
	s := set{columns: []string{"fanout_version"}}
	for _, v := range values {
		s.rows = append(s.rows, []sqldriver.Value{v})
	}
	return reply{sets: []set{s}}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	steps, err := Migrations("app.outbox")
	require.NoError(t, err)
	store, server := newFake(t, "app.outbox", inTurn(versions(nil), told(nil), reply{}, reply{}, versions(), reply{}, reply{}))
	applied, err := store.Migrate(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"0001_outbox"}, applied)
	assert.Equal(t, []string{
		store.sql.applied, store.sql.facts,
		"BEGIN", "SET XACT_ABORT ON; SET NOCOUNT ON", store.sql.migrate, store.sql.applied, steps[0].SQL, store.sql.record, "COMMIT",
	}, server.texts())
	assert.Equal(t, map[string]any{"lock": "fanout:migrate:outbox"}, server.requests[4].args)
	assert.Equal(t, map[string]any{"version": 1, "name": "outbox"}, server.requests[7].args)
	assert.Empty(t, server.requests[6].args, "a batch of its own: with parameters it would be a procedure")

	store, server = newFake(t, "app.outbox", inTurn(versions(int64(1)), reply{}, reply{}, versions(int64(1))))
	applied, err = store.Migrate(t.Context())
	require.NoError(t, err)
	assert.Empty(t, applied)
	assert.Equal(t, "COMMIT", server.texts()[5])
}

// Tables that another tool has made are recorded where they are what the steps make, and named with
// what is wrong where they are not.
func TestMigrateAfterAnotherTool(t *testing.T) {
	t.Parallel()
	facts := func(lacking string) (*Store, *fake) {
		return newFake(t, "app.outbox", inTurn(versions(nil), told(change(live(t, fakeStore(t)), lacking, "", "")), reply{}, reply{}, versions(), reply{}))
	}
	store, server := facts("")
	steps, err := store.Migrate(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"0001_outbox is already there, recorded"}, steps)
	texts := server.texts()
	assert.Equal(t, []string{"BEGIN", "SET XACT_ABORT ON; SET NOCOUNT ON", store.sql.migrate, store.sql.applied, store.sql.record, "COMMIT"}, texts[len(texts)-6:])

	store, server = facts("column shard")
	_, err = store.Migrate(t.Context())
	var schema *admin.SchemaError
	require.ErrorAs(t, err, &schema)
	assert.Equal(t, []string{"column shard: missing"}, schema.Differences)
	assert.NotContains(t, server.texts(), "BEGIN", "nothing is changed")
}

func fakeStore(t *testing.T) *Store {
	t.Helper()
	store, _ := newFake(t, "app.outbox", inTurn())
	return store
}

func TestMigrateFails(t *testing.T) {
	t.Parallel()
	for number, remedy := range map[int32]string{
		2760: "create the schema first", 2714: `run "fanout migrate" again`, 262: "may create tables", 1934: "QUOTED_IDENTIFIER",
	} {
		store, server := newFake(t, "app.outbox", inTurn(versions(nil), told(nil), reply{}, reply{}, versions(), reply{err: serverError(number)}))
		_, err := store.Migrate(t.Context())
		require.ErrorContains(t, err, "sqlserver: migrate app.outbox: step 0001_outbox: ")
		require.ErrorContains(t, err, remedy)
		require.NotErrorIs(t, err, outbox.ErrSchema, "it would tell to run what has just been run")
		assert.Equal(t, "ROLLBACK", server.texts()[7])
	}
	// The deadlock of two migrations is nobody's fault.
	store, _ := newFake(t, "app.outbox", inTurn(versions(int64(1)), reply{}, reply{err: serverError(1205)}, versions(int64(1)), reply{}, reply{}, versions(int64(1))))
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
}

func updateability(v sqldriver.Value) reply {
	return reply{sets: []set{{columns: []string{"fanout_updateability"}, rows: [][]sqldriver.Value{{v}}}}}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	store, _ := newFake(t, "app.outbox", inTurn())
	good := told(live(t, store))
	primary := updateability("READ_WRITE")
	for _, c := range []struct {
		name    string
		replies []reply
		wants   string
		schema  bool
	}{
		{name: "up to date", replies: []reply{primary, good, versions(int64(1))}},
		{name: "made by another tool", replies: []reply{primary, good, versions(nil)}},
		{name: "a record that this user may not read", replies: []reply{primary, good, {err: serverError(permissionDenied)}}},
		{name: "a server that knows no replicas", replies: []reply{{err: serverError(195)}, good, versions(int64(1))}},
		{name: "a server that does not say", replies: []reply{updateability(nil), good, versions(int64(1))}},
		{name: "replica", replies: []reply{updateability("READ_ONLY")}, wants: "point the relay at the primary"},
		{
			name: "nothing", replies: []reply{primary, told(nil), versions(nil)}, schema: true,
			wants: `run "fanout migrate" (table app.outbox: missing; table app.outbox_key_blocks: missing`,
		},
		{
			name: "parts", replies: []reply{primary, told(change(change(live(t, store), "column shard", "", ""), "index outbox_open", "", "")), versions(int64(1))},
			wants: "changed by hand: bring it back to what \"fanout migrate --print\" shows (column shard: missing; index outbox_open: missing)", schema: true,
		},
		{name: "step", replies: []reply{primary, good, versions()}, wants: "step 0001_outbox", schema: true},
		{name: "old database", replies: []reply{primary, {err: serverError(102)}}, wants: "compatibility level"},
	} {
		store, server := newFake(t, "app.outbox", inTurn(c.replies...))
		err := store.Check(t.Context())
		if c.wants == "" {
			require.NoError(t, err, c.name)
			assert.Equal(t, `["app.outbox","app.outbox_key_blocks"`, server.requests[1].args["tables"].(string)[:37])
			continue
		}
		require.ErrorContains(t, err, "sqlserver: check app.outbox: ", c.name)
		require.ErrorContains(t, err, c.wants, c.name)
		if c.schema {
			require.ErrorIs(t, err, outbox.ErrSchema, c.name)
		} else {
			require.NotErrorIs(t, err, outbox.ErrSchema, c.name)
		}
	}
}

// Each kind of difference is named, and what the server says in words of its own is none.
func TestCheckFacts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, object, property, value string
		want                          string // empty: no difference
	}{
		{name: "type", object: "column attempts", property: "type", value: "bigint", want: "column attempts: type is bigint, want int"},
		{name: "length", object: "column type", property: "type", value: "nvarchar(100)", want: "column type: type is nvarchar(100), want nvarchar(512)"},
		{name: "nullable", object: "column stream", property: "nullable", value: "yes", want: "column stream: nullable is yes, want no"},
		{
			name: "collation", object: "column ordering_key", property: "collation", value: "Latin1_General_CI_AS",
			want: "column ordering_key: collation is Latin1_General_CI_AS, want Latin1_General_100_BIN2",
		},
		{name: "collation of the database", object: "column locked_by", property: "collation", value: "Latin1_General_CI_AS"},
		{name: "another default", object: "column status", property: "default", value: "(N'failed')"},
		{name: "no default", object: "column crashes", property: "default", want: "column crashes: default is none, want 0"},
		{name: "a default too many", object: "column headers", property: "default", value: "('{}')", want: "column headers: default is ('{}'), want none"},
		{name: "identity", object: "column id", property: "identity", value: "by -1", want: "column id: identity is by -1, want by 1"},
		{name: "not persisted", object: "column shard", property: "persisted", value: "no", want: "column shard: persisted is no, want yes"},
		{name: "computed otherwise", object: "column shard", property: "generated", value: "([other])"},
		{name: "no longer computed", object: "column shard", property: "generated", want: "column shard: generated is none, want "},
		{name: "no constraint", object: "constraint outbox_lease", want: "constraint outbox_lease: missing"},
		{name: "disabled constraint", object: "constraint outbox_lease", property: "enabled", value: "no", want: "constraint outbox_lease: enabled is no, want yes"},
		{name: "unchecked constraint", object: "constraint outbox_lease", property: "trusted", value: "no", want: "constraint outbox_lease: trusted is no, want yes"},
		{name: "no index", object: "index outbox_once", want: "index outbox_once: missing"},
		{name: "disabled index", object: "index outbox_open", property: "enabled", value: "no", want: "index outbox_open: enabled is no, want yes"},
		{
			name: "columns", object: "index outbox_open", property: "columns", value: "target_broker, id",
			want: "index outbox_open: columns is target_broker, id, want target_broker, shard, id",
		},
		{name: "included", object: "index outbox_deferred_key", property: "included", want: "index outbox_deferred_key: included is none, want message_id"},
		{name: "no predicate", object: "index outbox_failing", property: "predicate", want: "index outbox_failing: predicate is none, want "},
		{name: "uniqueness", object: "index outbox_blocks_key", property: "unique", value: "no", want: "index outbox_blocks_key: unique is no, want yes"},
		{name: "a view", object: "table app.outbox", property: "kind", value: "VIEW", want: "table app.outbox: kind is VIEW, want table"},
		{name: "escalation", object: "table app.outbox", property: "lock escalation", value: "TABLE", want: "table app.outbox: lock escalation is TABLE, want DISABLE"},
		{name: "more", object: "column note", property: "type", value: "int"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			store, _ := newFake(t, "app.outbox", inTurn())
			facts := change(live(t, store), c.object, c.property, c.value)
			if c.name == "more" {
				facts = facts.With(c.object, c.property, c.value)
			}
			store, _ = newFake(t, "app.outbox", checked(facts, versions(int64(1))))
			err := store.Check(t.Context())
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			var schema *admin.SchemaError
			require.ErrorAs(t, err, &schema)
			require.Len(t, schema.Differences, 1)
			assert.Contains(t, schema.Differences[0], c.want)
		})
	}
}

// The scratch tables are made and read in one transaction that is rolled back.
func TestCompareWithScratch(t *testing.T) {
	t.Parallel()
	good := live(t, fakeStore(t))
	for _, c := range []struct {
		name  string
		made  reply // of the step
		live  schemacheck.Facts
		want  []string
		error string
	}{
		{name: "the same", live: good},
		{
			name: "in other words", live: change(good, "constraint outbox_lease", "check", "([status]<>N'')"),
			want: []string{"constraint outbox_lease: check is ([status]<>N''), want " + good.Find("constraint outbox_lease").Value("check")},
		},
		{name: "hidden", live: change(good, "column shard", "generated", schemacheck.Unknown), error: "VIEW DEFINITION"},
		{name: "no right", made: reply{err: serverError(262)}, error: "the user needs CREATE TABLE, and ALTER on the schema"},
	} {
		store, server := newFake(t, "app.outbox", func(r request) reply {
			switch tables, _ := r.args["tables"].(string); {
			case strings.HasPrefix(tables, `["app.fanout_scratch_`):
				name, _, _ := strings.Cut(strings.TrimPrefix(tables, `["app.`), `"`)
				return told(live(t, fakeStore(t)).Renamed("outbox", name))
			case tables != "":
				return told(c.live)
			case strings.Contains(r.text, "CREATE TABLE"):
				return c.made
			default:
				return reply{}
			}
		})
		found, err := store.CompareWithScratch(t.Context())
		if c.error != "" {
			require.ErrorContains(t, err, c.error, c.name)
		} else {
			require.NoError(t, err, c.name)
		}
		assert.Equal(t, c.want, found, c.name)
		assert.Contains(t, server.texts(), "ROLLBACK", c.name)
		assert.NotContains(t, server.texts(), "COMMIT", c.name)
	}
}

// A user of few rights sees tables, columns and indexes.
func TestCheckWithoutDefinitions(t *testing.T) {
	t.Parallel()
	store, _ := newFake(t, "app.outbox", inTurn())
	var facts schemacheck.Facts
	for _, object := range live(t, store) {
		if strings.HasPrefix(object.Name, "constraint ") {
			continue
		}
		for _, p := range object.Properties {
			if p.Name == "default" || p.Name == "generated" || p.Name == "predicate" {
				p.Value = schemacheck.Unknown
			}
			facts = facts.With(object.Name, p.Name, p.Value)
		}
	}
	for _, hidden := range []bool{true, false} {
		if hidden {
			facts = facts.With("table app.outbox", "definitions", "hidden")
		} else {
			facts = change(facts, "table app.outbox", "definitions", "")
		}
		store, _ := newFake(t, "app.outbox", checked(facts, versions(nil)))
		err := store.Check(t.Context())
		if hidden {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "constraint outbox_lease: missing")
		}
	}
}
