package sqladmin

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// given are the names of what statements get; a database uses those that it needs.
var given = func() map[string][]string {
	matched := []string{"type", "type_prefix", "key", "aggregate", "correlation", "correlated", "tenant", "class", "since", "until"}
	filter := append(matched[:10:10], "broker", "statuses", "key_prefix", "unacknowledged", "message_ids", "refused", "waiting", "limit")
	rows := []string{"ids", "message_ids", "brokers", "keys"}
	repaired := append(rows[:4:4], "rows", "behind", "locks", "lock_brokers", "known", "forgotten", "moves")
	blocks := []string{"blocks", "block_messages", "block_brokers", "block_shards"}
	followers := []string{"broker", "keys", "ids", "shards", "blockers", "max_count"}
	list := append(matched[:10:10], "broker", "status", "after", "after_id", "limit", "scan")
	purge := []string{"broker", "retention", "limit"}
	search := append(matched[:10:10], "term", "broker", "after_id", "limit", "statuses", "after_broker", "after_rank", "after", "after_row")
	return map[string][]string{
		"audit": {"before", "limit"}, "audit_begin": {"actor", "via", "action", "broker", "filter", "reason"}, "audit_end": {"id", "rows", "failure"},
		"pause": {"broker", "by", "reason"}, "resume": {"broker"}, "pauses": nil,
		"heartbeat": {"instance_id", "name", "host", "pid", "version", "work"}, "leave": {"instance_id"}, "instances": nil, "forget_instances": nil,
		"counts": nil, "last_errors": nil, "beside": {"broker", "stream", "id", "limit"}, "backlog": {"brokers", "most", "look", "floors", "versions", "above", "writers", "sessions"}, "brokers": {"most"}, "finished_brokers": {"most"}, "purge_published": purge, "purge_abandoned": purge,
		"overview": {"broker", "limit"}, "key_blocks": {"broker", "limit"}, "failed_keys": {"broker", "limit"}, "blocked_keys": {"broker", "limit"},
		"followers": followers, "deferred_followers": followers, "entries": {"broker", "limit"}, "stranded": {"broker", "heads", "after_id", "limit"}, "errors_of": append(rows[:3:3], "broker"), "blocking": filter,
		"acknowledge": repaired, "discard": repaired, "states": {"ids", "brokers", "message_ids", "keys", "shards"}, "key_heads": {"broker", "shard", "keys"}, "message": {"message_id", "shown", "limit"},
		"list_pending": list, "list_processing": list, "list_failed": list, "list_published": list, "list_abandoned": list,
		"search_key": search, "search_aggregate": append(search[:19:19], "aggregate_type"), "search_correlation": search,
		"search_causation": search, "search_trace": search, "search_tenant": search, "search_type": search,
		"find": filter, "matches": filter, "requeue": append(repaired[:11:11], "ttl"), "abandon": append(repaired[:11:11], "error"),
		"pick": rows, "blocks_of": rows, "blocks_of_key": {"broker", "key"}, "move_blocks": append(blocks[:4:4], "to_messages", "to_ids", "moves", "locks", "lock_brokers"),
	}
}()

// stepwise are the statements of a database whose operators change rows in several steps, within a
// transaction.
var stepwise = map[string][]string{
	"siblings":      {"message_id", "first", "last", "shown", "limit"}, // where ids are in the order of their bytes
	"forget_blocks": {"blocks", "block_messages", "block_brokers", "block_shards"},
}

// narrow are the statements of a database whose derived tables see nothing of the rows beside them, and which
// answers to no INSERT: what others say at once, it says for one broker or key.
var narrow = map[string][]string{
	"audit_begun": nil, "brokers": {"after", "before"}, "next_broker": {"after", "before"}, "open_brokers": {"broker"}, "finished_brokers": {"broker"}, "backlog_of": marked(), "followers_of": {"broker", "key", "id", "shard", "max_count"},
	"expired_published": {"broker", "retention", "limit"}, "expired_abandoned": {"broker", "retention", "limit"}, "purge": {"ids"},
}

// marked are the names of what a statement gets that goes by the marks of each shard.
func marked() []string {
	names := []string{"broker", "server", "versions", "look"}
	for shard := range MySQL.Shards {
		names = append(names, fmt.Sprint("floor_", shard), fmt.Sprint("late_", shard))
	}
	return names
}

// Every database has the same statements, which use nothing that they are not given; and every file
// is used.
func TestStatements(t *testing.T) {
	t.Parallel()
	for _, dialect := range []Dialect{Postgres, SQLite, SQLServer, MySQL} {
		a, err := New(nil, dialect, "app.outbox_messages")
		require.NoError(t, err)
		texts, parameters := a.Texts()
		wanted := maps.Clone(given)
		if dialect.Answers == "" {
			maps.Copy(wanted, stepwise)
		}
		if dialect == MySQL {
			maps.Copy(wanted, narrow)
			for _, name := range []string{"find", "matches"} {
				wanted[name+"_everywhere"] = append(slices.Clone(wanted[name]), "brokers")
			}
			for _, name := range []string{"backlog", "followers", "purge_published", "purge_abandoned"} {
				delete(wanted, name)
			}
		}
		for name, names := range wanted {
			require.Contains(t, texts, name, dialect.Name)
			if dialect.Answers == "" { // batches declare variables of their own
				known := slices.Concat(names, []string{"now"})
				for _, bound := range []string{"limit", "scan", "max_count"} { // LIMIT takes no sums
					if dialect == MySQL && slices.Contains(names, bound) {
						known = append(known, bound+"_1", bound+"_2")
					}
				}
				assert.Subset(t, known, parameters[name], "%s: %s", dialect.Name, name)
			}
		}
		var all strings.Builder
		for name, text := range texts {
			assert.NotContains(t, text, "{{", "%s: %s", dialect.Name, name)
			assert.NotContains(t, text, "--", "%s: %s", dialect.Name, name)
			base, _, _ := strings.Cut(name, hidden)
			base = strings.TrimSuffix(base, inLists)
			for _, special := range []string{"_by_message", "_everywhere"} {
				base = strings.TrimSuffix(base, special)
			}
			known := slices.Contains(slices.Collect(maps.Keys(wanted)), base) || strings.HasPrefix(base, "settings_") || strings.HasPrefix(base, "lock_")
			assert.True(t, known, "%s: nobody says %s", dialect.Name, name)
		}
		files, err := fs.Glob(sqlFiles, path.Join("sql", dialect.Name, "*.sql"))
		require.NoError(t, err)
		for _, file := range files {
			text, err := fs.ReadFile(sqlFiles, file)
			require.NoError(t, err)
			all.Write(text)
		}
		for _, file := range files {
			if part := strings.TrimSuffix(path.Base(file), ".sql"); strings.HasPrefix(part, "part_") && part != "part_prelude" && part != "part_search_lists" { // which the code includes
				assert.Regexp(t, `\{\{(include|each shard) `+part+`\}\}`, all.String(), dialect.Name)
			}
		}
	}
	for _, part := range []string{"deferred_rows", "deferred_brokers"} { // without and with a list of columns
		_, err := New(nil, SQLite, part)
		require.ErrorContains(t, err, "also names a part of a statement")
	}
}

func TestMoment(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	for _, c := range []struct {
		value any
		want  time.Time
		fault string
	}{
		{nil, time.Time{}, ""},
		{at.In(time.FixedZone("elsewhere", 3600)), at, ""},
		{at.UnixMicro(), at, ""},
		{"-infinity", time.Time{}, "is -infinity"},
		{"now", time.Time{}, `is "now"`},
		{1.5, time.Time{}, "is no time"},
	} {
		var m moment
		require.NoError(t, m.Scan(c.value))
		assert.Equal(t, c.want, m.Time, "%v", c.value)
		assert.Equal(t, c.fault, m.fault, "%v", c.value)
	}
}
