package sqlserver

import (
	"database/sql"
	"embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

var matchParams = []string{"type", "type_prefix", "key", "aggregate", "correlation", "correlated", "tenant", "class", "since", "until"}

var listParams = append(matchParams[:10:10], "broker", "status", "after_id", "limit", "scan")

var (
	findParams   = append(matchParams[:10:10], "limit", "broker", "statuses", "key_prefix", "unacknowledged", "message_ids", "refused", "waiting")
	changeParams = []string{"lock_brokers", "rows", "known", "forgotten", "moves"}
)

var searchParams = []string{"term", "broker", "after_id", "limit"}

// administrationParams are what the administration gives to its statements, by their names.
var administrationParams = map[string][]string{
	"search_aggregate": append(searchParams[:4:4], "aggregate_type"), "search_key": searchParams, "search_correlation": searchParams,
	"search_causation": searchParams, "search_trace": searchParams, "search_tenant": searchParams, "search_type": searchParams,
	"heartbeat": {"instance_id", "name", "host", "pid", "version", "work"}, "leave": {"instance_id"},
	"purge_published": {"broker", "limit", "retention_seconds", "retention_micros"}, "purge_abandoned": {"broker", "limit", "retention_seconds", "retention_micros"},
	"overview": {"broker", "limit"}, "message": {"message_id", "shown", "limit"}, "key_blocks": {"broker", "limit"}, "failed_keys": {"broker", "limit"},
	"followers": {"broker", "keys", "ids", "shards", "max_count"}, "deferred_followers": {"broker", "blockers", "max_count"}, "entries": {"broker", "limit"}, "stranded": {"broker", "heads", "after_id", "limit"}, "errors_of": {"ids"},
	"blocking": findParams, "acknowledge": changeParams[:3:3], "discard": changeParams, "states": {"ids"}, "key_heads": {"broker", "shard", "keys"}, "blocked_keys": {"broker", "limit"},
	"list_pending": listParams, "list_processing": listParams, "list_failed": listParams,
	"list_published": append(listParams[:15:15], "after"), "list_abandoned": append(listParams[:15:15], "after"),
	"find": findParams, "matches": findParams, "requeue": append(changeParams[:5:5], "ttl_seconds", "ttl_micros"),
	"abandon": append(changeParams[:5:5], "error"), "pick": {"ids"}, "blocks_of": {"ids"}, "blocks_of_key": {"broker", "key"}, "move_blocks": {"lock_brokers", "moves"},
	"pause": {"broker", "by", "reason"}, "resume": {"broker"},
	"audit_begin": {"actor", "via", "action", "broker", "filter", "reason"}, "audit_end": {"id", "rows", "failure"}, "audit": {"before", "limit"},
	"beside": {"broker", "stream", "id", "limit"}, "backlog": {"brokers", "most", "look"}, "brokers": {"most"}, "finished_brokers": {"most"},
}

// batches lists every text that is sent as a batch, by name, and the names of its parameters.
func batches(t *testing.T) (texts map[string]string, params map[string][]string) {
	t.Helper()
	store, err := New(nil, "outbox_messages")
	require.NoError(t, err)
	texts = map[string]string{
		"renew": store.sql.renew, "ready": store.sql.ready, "window": store.sql.window, "defer": store.sql.deferRows, "lift": store.sql.lift,
		"exclusive": store.sql.exclusive, "release": store.sql.release, "take": store.sql.take,
		"migrate": store.sql.migrate, "record": store.sql.record, "replica": store.sql.replica,
		"applied": store.sql.applied, "facts": store.sql.facts, "diagnose": store.sql.diagnose, "clock": store.sql.clock, "rights": store.sql.rights,
	}
	params = map[string][]string{
		"renew":  {"broker", "shard", "token", "first", "last", "lease_seconds", "lease_micros"},
		"window": {"broker", "shard", "window", "bytes"}, "lift": {"broker", "shard", "decided", "changes"},
		"take":  {"broker", "shard", "worker", "token", "shared", "unordered", "most", "lease_seconds", "lease_micros", "decided", "ids"},
		"defer": {"broker", "shard", "decided", "blocks", "rows", "unordered"},
		"ready": {"broker", "busy"}, "exclusive": {"lock"}, "release": {"lock"},
		"migrate": {"lock"}, "record": {"version", "name"}, "facts": {"tables"}, "rights": {"tables"},
	}
	shared, _ := store.Texts()
	maps.Copy(texts, shared)
	maps.Copy(params, administrationParams)
	for name, search := range administrationParams {
		if strings.HasPrefix(name, "search_") {
			params[name+" in lists"] = slices.Concat(slices.DeleteFunc(slices.Clone(search), func(param string) bool { return param == "after_id" }),
				matchParams, []string{"statuses", "after_broker", "after_rank", "after", "after_row"})
		}
	}
	for p, text := range store.sql.exchange {
		if p == (parts{}) {
			continue
		}
		name := fmt.Sprintf("exchange published=%t other=%t claim=%t", p.published, p.other, p.claim)
		completion := *testCompletion
		if completion.DeletePublished = p.deleted; p.deleted {
			name += " deleted=true"
		}
		texts[name] = text
		x := exchange{store: store, completion: &completion, claim: testClaim}
		args, err := x.args(p)
		require.NoError(t, err)
		for _, arg := range args {
			params[name] = append(params[name], arg.(sql.NamedArg).Name)
		}
	}
	return texts, params
}

//go:embed testdata/exchange.golden.sql
var goldens embed.FS

// The whole exchange as the server gets it. All other texts are its parts, or short.
func TestGolden(t *testing.T) {
	t.Parallel()
	testenv.Golden(t, goldens, "testdata/exchange.golden.sql", exchangeTexts("app.outbox")[parts{published: true, other: true, claim: true}])
}

// An outcome, or a longer lease, is written where the row still has the token, and not where another
// relay has claimed the row since.
func TestFences(t *testing.T) {
	t.Parallel()
	texts, _ := batches(t)
	const ours = "m.lock_token = CONVERT(uniqueidentifier, @%s) AND m.status = N'processing';"
	for name, token := range map[string]string{
		"exchange published=true other=false claim=false":              "completed_token",
		"exchange published=true other=false claim=false deleted=true": "completed_token",
		"exchange published=false other=true claim=false":              "completed_token",
		"renew": "token",
	} {
		assert.Equal(t, 1, strings.Count(texts[name], fmt.Sprintf(ours, token)), name)
	}
}

// The purge tests age and status again as it removes a row, and leaves a row for which its key waits.
func TestPurgeTexts(t *testing.T) {
	t.Parallel()
	texts, _ := batches(t)
	for name, status := range map[string]string{"purge_published": "published", "purge_abandoned": "abandoned"} {
		assert.Contains(t, texts[name], "AND finished_at IS NOT NULL AND finished_at <= @before\n")
		assert.Contains(t, texts[name], "DELETE FROM victims\n WHERE status = N'"+status+"' AND finished_at <= @before;")
	}
	assert.Contains(t, texts["purge_abandoned"], "w.block_id = m.id AND w.reason = N'operator' AND w.wake_at = '9999-12-31')")
}

var (
	literal  = regexp.MustCompile(`'(?:[^']|'')*'`)
	variable = regexp.MustCompile(`@?@(\w+)`)
	declared = regexp.MustCompile(`(?i)[,\s]@(\w+)\s+(?:bit|int|bigint|binary|datetime2|nvarchar|table)\b`)
	argument = regexp.MustCompile(`@(Resource|LockMode|LockOwner|LockTimeout)\s*=`)
)

// A batch declares each variable once and uses what it declares or is given, and all that it is
// given.
func TestVariables(t *testing.T) {
	t.Parallel()
	texts, params := batches(t)
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
	texts, _ := batches(t)
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

// What takes rows tests again what they were chosen by, under the shard's lock, and takes its time
// after it.
func TestClaimTexts(t *testing.T) {
	t.Parallel()
	texts, _ := batches(t)
	for name, text := range texts {
		if !strings.Contains(text, "@claimed") {
			continue
		}
		update := text[strings.LastIndex(text, "UPDATE m"):]
		assert.Contains(t, update, "m.status IN (N'pending', N'failed', N'processing')")
		assert.Contains(t, update, "(m.locked_until IS NULL OR m.locked_until <= @now)")
		assert.Contains(t, update, "m.available_at IS NULL")
		inOrder(t, update, "OUTPUT inserted.id INTO @claimed", "<> (SELECT COUNT(*) FROM @chosen)", "THROW 50123", "COMMIT TRANSACTION", "m.payload")
		inOrder(t, text, "SELECT @published_rows AS fanout_published", "SELECT @other_rows AS fanout_other", "DECLARE @chosen", "AS fanout_id")
		_, claim, _ := strings.Cut(text, "DECLARE @chosen")
		inOrder(t, claim, "SELECT @found_version = version", "@found_version <> @decided", "SET @now = SYSUTCDATETIME()", "INSERT INTO @blocks", "INSERT INTO @settled",
			"INSERT INTO @win (id, ordering_key", "INSERT INTO @chosen", "UPDATE m")
		assert.Equal(t, name == "take", strings.Contains(text, "@decided"))
	}
	store, err := New(nil, "")
	require.NoError(t, err)
	_, window, _ := strings.Cut(store.sql.window, "INSERT INTO @settled")
	assert.Equal(t, 1, strings.Count(window, "READPAST"), "what is passed over must be found again by the dirty read")
}

// Who changes key blocks, brings rows back or renews a lease that was over counts it, under the
// shard's lock and before anything else changes; and what was decided about a shard is done only
// where nobody has.
func TestVersions(t *testing.T) {
	t.Parallel()
	texts, _ := batches(t)
	const lock, counts = "FROM outbox_messages_shards WITH (UPDLOCK", "SET version = version + 1"
	for name, want := range map[string][]string{
		"defer":  {lock, "IF @found_version <> @decided\n        THROW 50123", counts, "INSERT INTO @waiting", "UPDATE m"},
		"lift":   {lock, "IF @found_version <> @decided\n        THROW 50123", counts, "UPDATE m"},
		"take":   {lock, "IF @found_version <> @decided\n        THROW 50123", "UPDATE m"},
		"renew":  {lock, "INSERT INTO @leased", "WHERE late = 1", counts, "UPDATE m"},
		"window": {lock, "INSERT INTO @settled"},
		"exchange published=false other=true claim=false": {lock, "INSERT INTO @blocking", "UPDATE m", "IF EXISTS (SELECT 1 FROM @blocking)", counts, "UPDATE w"},
		"exchange published=false other=false claim=true": {lock, "INSERT INTO @blocks", "INSERT INTO @settled", "UPDATE m"},
	} {
		text := texts[name]
		assert.Equal(t, slices.Contains(want, counts), strings.Contains(text, counts), name)
		for _, part := range want {
			_, rest, found := strings.Cut(text, part)
			require.True(t, found, "%s: %q is missing, or not in its place", name, part)
			text = rest
		}
	}
	other := texts["exchange published=false other=true claim=false"]
	assert.NotContains(t, other, "@broker")
	assert.Equal(t, 3, strings.Count(other, "@completed_shard % 4"))
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
		shards[shard] = fmt.Sprintf("(%d, %d)", shard, 1<<shard)
	}
	store, err := New(nil, "")
	require.NoError(t, err)
	assert.Contains(t, store.sql.ready, "(VALUES "+strings.Join(shards, ", ")+") AS shards (shard, bit)")
	steps, err := Migrations("outbox_messages")
	require.NoError(t, err)
	assert.Contains(t, steps[0].SQL, fmt.Sprintf("& %d)", outbox.Shards-1))
	backfill, urgent := int(outbox.ClassBackfill)*outbox.Shards, int(outbox.ClassUrgent)*outbox.Shards
	assert.Contains(t, steps[0].SQL, fmt.Sprintf("+ CASE WHEN priority < 0 THEN %d WHEN priority > 0 AND ordering_key IS NULL THEN %d ELSE 0 END", backfill, urgent))
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
