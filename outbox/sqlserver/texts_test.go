package sqlserver

import (
	"database/sql"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
)

var listParams = []string{"broker", "status", "type", "type_prefix", "key", "class", "since", "until", "after_id", "limit", "scan"}

var (
	findParams   = []string{"limit", "broker", "statuses", "type", "type_prefix", "key", "message_ids", "class", "refused", "since", "until", "waiting"}
	changeParams = []string{"locks", "ids", "statuses", "waiting"}
)

// administrationParams are what the administration gives to its statements, by their names.
var administrationParams = map[string][]string{
	"heartbeat": {"instance_id", "name", "host", "pid", "version", "work"}, "leave": {"instance_id"},
	"purge_published": {"broker", "limit", "retention_seconds", "retention_micros"}, "purge_abandoned": {"broker", "limit", "retention_seconds", "retention_micros"},
	"overview": {"broker", "limit"}, "message": {"message_id"}, "key_blocks": {"broker", "limit"}, "failed_keys": {"broker", "limit"},
	"followers": {"broker", "keys", "ids", "max_count"}, "deferrals": {"ids"}, "blocked_keys": {"broker", "limit"},
	"list_pending": listParams, "list_key": listParams, "list_processing": listParams, "list_failed": listParams,
	"list_published": append(listParams[:11:11], "after"), "list_abandoned": append(listParams[:11:11], "after"),
	"find": findParams, "matches": findParams, "requeue": append(changeParams[:4:4], "ttl_seconds", "ttl_micros"),
	"abandon": append(changeParams[:4:4], "error"), "unblock_key": {"locks", "broker", "key"},
	"pause": {"broker", "by", "reason"}, "resume": {"broker"},
	"audit_begin": {"actor", "via", "action", "broker", "filter", "reason"}, "audit_end": {"id", "rows", "failure"}, "audit": {"before", "limit"},
}

// batches lists every text that is sent as a batch, by name, and the names of its parameters.
func batches(t *testing.T, table string) (texts map[string]string, params map[string][]string) {
	t.Helper()
	store, err := New(nil, table)
	require.NoError(t, err)
	texts = map[string]string{
		"renew": store.sql.renew, "ready": store.sql.ready, "defer": store.sql.deferRows, "take": store.sql.take,
		"release": store.sql.release,
		"migrate": store.sql.migrate, "record": store.sql.record, "replica": store.sql.replica,
		"applied": store.sql.applied, "facts": store.sql.facts, "diagnose": store.sql.diagnose, "clock": store.sql.clock, "rights": store.sql.rights,
		"compare": strings.NewReplacer("{{live}}", "1", "{{want}}", "2").Replace(store.sql.compare),
		"verify":  store.sql.verify,
	}
	params = map[string][]string{
		"renew": {"broker", "shard", "claim_lock", "token", "first", "last", "lease_seconds", "lease_micros"},
		"defer": {"broker", "shard", "claim_lock", "window", "unordered"},
		"ready": {"broker"}, "take": {"lock"}, "release": {"lock"},
		"migrate": {"lock"}, "record": {"version", "name"}, "facts": {"tables"}, "rights": {"tables"},
		"verify": {"broker", "shard", "claim_lock", "token", "messages", "backlog", "unordered"},
	}
	shared, _ := store.Texts()
	maps.Copy(texts, shared)
	maps.Copy(params, administrationParams)
	for p, text := range store.sql.exchange {
		if p == (parts{}) {
			continue
		}
		name := fmt.Sprintf("exchange published=%t other=%t claim=%d wake=%t", p.published, p.other, p.claim, p.wake)
		texts[name] = text
		claim := *testClaim
		claim.Unordered, claim.Wake = p.claim == unorderedClaim, p.wake
		x := exchange{store: store, completion: testCompletion, claim: &claim}
		args, err := x.args(p)
		require.NoError(t, err)
		for _, arg := range args {
			params[name] = append(params[name], arg.(sql.NamedArg).Name)
		}
	}
	return texts, params
}

// The texts as the server gets them. FANOUT_UPDATE_GOLDEN writes the files anew.
func TestGolden(t *testing.T) {
	t.Parallel()
	texts, _ := batches(t, "app.outbox")
	for file, wanted := range map[string]func(name string) bool{
		"exchange.golden.sql": func(name string) bool {
			return name == "exchange published=true other=true claim=1 wake=true" || name == "exchange published=false other=false claim=2 wake=false"
		},
		"others.golden.sql": func(name string) bool { return !strings.HasPrefix(name, "exchange") },
	} {
		var b strings.Builder
		for _, name := range slices.Sorted(maps.Keys(texts)) {
			if wanted(name) {
				fmt.Fprintf(&b, "-- %s\n%s\n", name, texts[name])
			}
		}
		golden(t, file, b.String())
	}
	steps, err := Migrations("app.outbox")
	require.NoError(t, err)
	for _, step := range steps {
		golden(t, step.String()+".golden.sql", step.SQL)
	}
}

// However many rows finished at one instant, a page of them seeks its place: the index ends with the id, by which the table is clustered,
// and no condition stands in the way of the seek.
func TestListOfOneInstantSeeks(t *testing.T) {
	t.Parallel()
	texts, _ := batches(t, "app.outbox")
	list := regexp.MustCompile(`\s+`).ReplaceAllString(texts["list_published"], " ")
	assert.Contains(t, list, "AND m.finished_at = @after_at AND m.id < @after_id ORDER BY m.id DESC")
	assert.Contains(t, list, "AND m.finished_at < @after_at ORDER BY m.finished_at DESC, m.id DESC")
	assert.NotContains(t, list, "OR m.id < @after_id")
	steps, err := Migrations("app.outbox")
	require.NoError(t, err)
	assert.Contains(t, steps[0].SQL, "PRIMARY KEY CLUSTERED (id)")
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if os.Getenv("FANOUT_UPDATE_GOLDEN") != "" {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

var (
	literal  = regexp.MustCompile(`'(?:[^']|'')*'`)
	variable = regexp.MustCompile(`@?@(\w+)`)
	declared = regexp.MustCompile(`(?i)[,\s]@(\w+)\s+(?:bit|int|bigint|binary|datetime2|nvarchar|table)\b`)
	argument = regexp.MustCompile(`@(Resource|LockMode|LockOwner|LockTimeout)\s*=`)
)

// A batch declares each variable once and uses what it declares or is given, and all that it is given.
func TestVariables(t *testing.T) {
	t.Parallel()
	texts, params := batches(t, "outbox_messages")
	for name, text := range texts {
		text = argument.ReplaceAllString(literal.ReplaceAllString(text, "''"), "")
		known := map[string]bool{}
		for _, param := range params[name] {
			assert.False(t, known[param], "%s: @%s is given twice", name, param)
			known[param] = true
			assert.Regexp(t, `@`+param+`\b`, text, "%s: @%s is given in vain", name, param)
		}
		for _, match := range declared.FindAllStringSubmatch(text, -1) {
			assert.False(t, known[match[1]], "%s: @%s is declared twice", name, match[1])
			known[match[1]] = true
		}
		for _, match := range variable.FindAllStringSubmatch(text, -1) {
			if !strings.HasPrefix(match[0], "@@") {
				assert.True(t, known[match[1]], "%s: @%s is not declared", name, match[1])
			}
		}
	}
}

// What every batch must have, whoever changes it.
func TestBatches(t *testing.T) {
	t.Parallel()
	texts, _ := batches(t, "outbox_messages")
	for name, text := range texts {
		assert.True(t, strings.HasPrefix(text, "SET NOCOUNT ON;\nSET XACT_ABORT ON;\nSET LOCK_TIMEOUT "), name)
		assert.NotContains(t, text, "{{", name)
		assert.NotContains(t, text, "?", "%s: the driver's old name takes it for a parameter", name)
		begun, committed := strings.Count(text, "BEGIN TRANSACTION;"), strings.Count(text, "COMMIT TRANSACTION")
		assert.Equal(t, begun, committed, name)
		assert.Equal(t, begun, strings.Count(text, "ROLLBACK TRANSACTION;\n    THROW;"), name)
		assert.Equal(t, strings.Count(text, "BEGIN TRY"), begun, "%s: no error leaves a transaction", name)
		// Only losing a claim is harmless.
		assert.Equal(t, strings.Count(text, "OUTPUT inserted.id INTO @claimed"), strings.Count(text, "DELAYED_DURABILITY"), name)
		for _, later := range []string{"GREATEST", "LEAST(", ">>", "<<", "WINDOW ", "GENERATE_SERIES", "STRING_AGG", "JSON_OBJECT", "DROP TABLE IF"} {
			assert.NotContains(t, text, later, "%s: 2016 does not know that", name)
		}
		for _, clause := range regexp.MustCompile(`WITH \(([A-Z][^)]*\)?[^)]*)\)`).FindAllString(text, -1) {
			if strings.Contains(clause, "READPAST") {
				assert.Contains(t, clause, "READCOMMITTEDLOCK", "%s: READPAST wants locks where reads use row versions", name)
			}
		}
	}
}

// The claim tests again what it chose by, and takes its time after the lock.
func TestClaimTexts(t *testing.T) {
	t.Parallel()
	for p, text := range exchangeTexts("outbox_messages") {
		if p.claim == noClaim {
			continue
		}
		update := text[strings.LastIndex(text, "UPDATE m"):]
		assert.Contains(t, update, "m.status IN (N'pending', N'failed', N'processing')")
		assert.Contains(t, update, "(m.locked_until IS NULL OR m.locked_until <= @now)")
		assert.Equal(t, p.published, strings.Contains(text, "@published"))
		assert.Equal(t, p.other, strings.Contains(text, "@other"))
		assert.Equal(t, p.claim == orderedClaim || p.wake, strings.Contains(text, "@claim_lock"))
		assert.Equal(t, p.wake, strings.Contains(text, "@due"))
		inOrder(t, text, "SELECT @published_rows AS fanout_published", "SELECT @other_rows AS fanout_other", "AS fanout_busy", "AS fanout_id")
		if p.claim == orderedClaim {
			_, claim, _ := strings.Cut(text, "DECLARE @busy")
			inOrder(t, claim, "sp_getapplock", "SET @now = SYSUTCDATETIME()", "@due", "@blocks", "INSERT INTO @ready", "@blocked =", "INSERT INTO @win", "COMMIT TRANSACTION", "AS fanout_busy", "m.payload")
			_, choice, _ := strings.Cut(claim, "INSERT INTO @ready")
			inOrder(t, choice, "READPAST", "NOLOCK", "@mixed = 1", "@ahead = id", "INSERT INTO @win", "UPDATE m", "THROW 50123", "COMMIT TRANSACTION")
			assert.Equal(t, 1, strings.Count(choice, "READPAST"), "what is passed over must be found again by the dirty read")
		}
	}
}

// How often the statements of a batch touch the table, and through what, stands fixed: a further pass over the window, or one that the
// server would have to plan by itself, is a change of speed.
func TestTableAccesses(t *testing.T) {
	t.Parallel()
	const published, claim, weighed = "ROWLOCK, FORCESEEK", "INDEX(outbox_messages_open), ", "FORCESEEK, NOLOCK"
	texts := exchangeTexts("outbox_messages")
	for p, want := range map[parts][]string{
		{published: true}: {published},
		{claim: unorderedClaim}: {
			claim + "UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK",
			claim + "NOLOCK", // only where the batch is not full
			weighed, weighed, "READCOMMITTEDLOCK, READPAST, ROWLOCK, FORCESEEK", "FORCESEEK",
		},
		{claim: orderedClaim}: {
			claim + "READCOMMITTEDLOCK, READPAST, ROWLOCK", // what is ready
			claim + "NOLOCK",                                                       // is there low priority?
			claim + "NOLOCK", "INDEX(outbox_messages_backfill), FORCESEEK, NOLOCK", // what is ahead of low priority
			claim + "NOLOCK", // what is there
			"INDEX(outbox_messages_backfill), FORCESEEK, NOLOCK", // only where there is low priority
			weighed, weighed, // what is chosen; again only where it is too much
			published, "FORCESEEK", // the update, and the messages after the commit
		},
	} {
		var found []string
		for _, match := range regexp.MustCompile(`(?:FROM|JOIN) outbox_messages\b(?: AS \w+)?(?: WITH \(((?:[^()]|\(\w+\))*)\))?`).FindAllStringSubmatch(texts[p], -1) {
			found = append(found, match[1])
		}
		assert.Equal(t, want, found, "%+v", p)
		assert.Equal(t, 1, strings.Count(texts[p], "UPDATE m\n"), "%+v", p)
		assert.NotContains(t, texts[p], "RECOMPILE", "a batch is planned once")
	}
}

// The window is judged row by row only where something in it is held, and whichever way rows are chosen, one update takes them.
func TestUntroubledWindow(t *testing.T) {
	t.Parallel()
	_, text, found := strings.Cut(exchangeTexts("outbox_messages")[parts{claim: orderedClaim}], "SET @seen = @@ROWCOUNT;")
	require.True(t, found)
	for _, part := range []string{
		"SET clear = 0, rests = 1", "SET clear = 0, low_rests", // what is known by then
		"IF NOT EXISTS (SELECT 1 FROM @win WHERE clear = 0 OR suspicion > 0)", "SELECT TOP (@limit) id\n              FROM @win\n             ORDER BY id;",
		"SET @chosen_rows = @@ROWCOUNT", "ELSE\n        BEGIN", "INSERT INTO @judged", "SET @chosen_rows = @@ROWCOUNT",
		"IF @chosen_rows > 1 AND @bytes <", "SET @cut = 1", "SET @chosen_rows = (",
		"IF @chosen_rows = 1 AND @shared = 0", "IF @chosen_rows > 0", "UPDATE m", "<> @chosen_rows\n                THROW",
	} {
		_, rest, found := strings.Cut(text, part)
		require.True(t, found, "%q is missing, or not in its place", part)
		text = rest
	}
}

// The search for followers begins at their block while there are enough of them, and otherwise at the beginning of the key.
func TestFollowersText(t *testing.T) {
	t.Parallel()
	text := exchangeTexts("outbox_messages")[parts{claim: orderedClaim, wake: true}]
	assert.Equal(t, 1, strings.Count(text, "AND m.id > done.block_id\n"))
	assert.Equal(t, 1, strings.Count(text, "AND m.id > CASE WHEN behind.followers = 400 THEN done.block_id ELSE 0 END"))
	assert.Equal(t, 2, strings.Count(text, "TOP (400)"))
	assert.Contains(t, text, "WHERE t.place = 400")
}

// A row that blocks its key becomes the block in place of any other, and what is deferred before it comes back, in one transaction.
func TestBlockAbandonedTexts(t *testing.T) {
	t.Parallel()
	for p, text := range exchangeTexts("outbox_messages") {
		if !p.other {
			assert.NotContains(t, text, "@back")
			continue
		}
		_, text, _ = strings.Cut(text, "INSERT INTO @blocking")
		text, _, found := strings.Cut(text, "COMMIT TRANSACTION;")
		require.True(t, found)
		for _, part := range []string{
			"status = N'processing'\n         GROUP BY m.target_broker, m.key_hash", // before the rows change
			"UPDATE m\n       SET status ", "UPDATE w\n", "INSERT INTO outbox_messages_key_blocks", "INSERT INTO @back",
			"INDEX(outbox_messages_deferred_key)", "earlier.id < g.id", "earlier.deferred = 1 AND earlier.finished_at IS NULL", "SET deferred = 0",
		} {
			_, rest, found := strings.Cut(text, part)
			require.True(t, found, "%q is missing, or not in its place", part)
			text = rest
		}
	}
}

// inOrder checks that those of the parts that the text has stand in it in this order.
func inOrder(t *testing.T, text string, parts ...string) {
	t.Helper()
	last := -1
	for _, part := range parts {
		if at := strings.Index(text, part); at >= 0 {
			assert.Greater(t, at, last, part)
			last = at
		}
	}
}

func TestShards(t *testing.T) {
	t.Parallel()
	shards := make([]string, outbox.Classes*outbox.Shards)
	for shard := range shards {
		shards[shard] = fmt.Sprintf("(%d)", shard)
	}
	store, err := New(nil, "")
	require.NoError(t, err)
	assert.Contains(t, store.sql.ready, "(VALUES "+strings.Join(shards, ", ")+") AS shards")
	steps, err := Migrations("outbox_messages")
	require.NoError(t, err)
	assert.Contains(t, steps[0].SQL, fmt.Sprintf("& %d)", outbox.Shards-1))
	backfill, urgent := int(outbox.ClassBackfill)*outbox.Shards, int(outbox.ClassUrgent)*outbox.Shards
	assert.Contains(t, steps[0].SQL, fmt.Sprintf("+ CASE WHEN priority < 0 THEN %d WHEN priority > 0 AND ordering_key IS NULL THEN %d ELSE 0 END", backfill, urgent))
	claim := store.sql.exchange[parts{claim: orderedClaim}]
	assert.Contains(t, claim, fmt.Sprintf("IF @shard < %d AND", backfill))
	assert.Contains(t, claim, fmt.Sprintf("shard = @shard + %d AND", backfill))
	assert.Contains(t, claim, fmt.Sprintf("IF @shard BETWEEN %d AND %d\n", backfill, backfill+outbox.Shards-1))
	assert.Contains(t, claim, fmt.Sprintf("shard = @shard - %d AND", backfill))
}

// A step is one batch: GO is a word of the tools, not of the server.
func TestMigrationTexts(t *testing.T) {
	t.Parallel()
	steps, err := Migrations("app.Outbox_1")
	require.NoError(t, err)
	for _, step := range steps {
		assert.NotRegexp(t, `(?mi)^\s*GO\s*$`, step.SQL)
		assert.NotContains(t, step.SQL, "{{")
		assert.NotRegexp(t, `\b(INDEX|CONSTRAINT) app\.`, step.SQL, "names of indexes and constraints have no schema")
	}
	assert.Contains(t, steps[0].SQL, "CREATE TABLE app.Outbox_1 (")
	assert.Contains(t, steps[0].SQL, "CREATE INDEX Outbox_1_open ON app.Outbox_1 (target_broker, shard, id)")
}

// Every file is used.
func TestFiles(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(sqlFiles, "sql/*.sql")
	require.NoError(t, err)
	source, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var code strings.Builder
	for _, file := range source {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if !strings.HasSuffix(file, "_test.go") {
			code.Write(text)
		}
	}
	for _, file := range files {
		text, err := fs.ReadFile(sqlFiles, file)
		require.NoError(t, err)
		assert.NotRegexp(t, `'[^'\n]*--[^'\n]*'`, string(text), "what looks like a comment in a literal would be cut off")
		assert.Contains(t, code.String(), `"`+strings.TrimSuffix(filepath.Base(file), ".sql")+`"`)
	}
}
