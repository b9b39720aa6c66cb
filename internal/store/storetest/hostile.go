package storetest

import (
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

var hostileTests = []test{
	{name: "Filters", run: testHostileFilters},
	{name: "Texts", run: testHostileTexts},
	{name: "OwnColumns", run: testOwnColumns},
}

// hostile is text that means something to a database, to a pattern, to one of our templates or to a
// driver.
func hostile() *rapid.Generator[string] {
	fragment := rapid.SampledFrom([]string{
		"'", "''", `"`, "`", ";", "--", "/*", "*/", "%", "_", "*", "?", "[a-z]", "]", `\`, `\'`, "$1", "$$", ":broker", "@p1", "@broker", "{{table}}", "{{name}}",
		"{{broker}}", "' OR '1'='1", "'; DROP TABLE outbox_messages; --", "') OR 1=1 --", "NULL", "pending", "a", "A", "é", "☃", "😀", "\u2028", "\u202e", "\n", "\x1b[31m",
		`{"class":"x"}`, `"]`, `\u0000`,
	})
	return rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(fragment, 1, 3).Draw(t, "fragments"), "") })
}

// testHostileFilters compares what a filter selects with what it says, whatever stands in it and in
// the rows.
func testHostileFilters(t *table) {
	type row struct{ broker, eventType, key string }
	text := hostile()
	var rows []row
	for i := range 40 {
		r := row{broker: broker, eventType: text.Example(3 * i), key: text.Example(3*i + 1)}
		if i%4 == 0 {
			r.broker = text.Example(3*i + 2)
		}
		rows = append(rows, r)
		inserted := newRow(r.key)
		inserted.TargetBroker, inserted.Type, inserted.Stream = r.broker, r.eventType, text.Example(i)
		t.insert(inserted)
	}
	t.exec(`UPDATE {t} SET last_error = '{"class":"retryable"}'`)
	operator := t.Store
	rapid.Check(t.T, func(r *rapid.T) {
		some := rapid.SampledFrom(rows).Draw(r, "row")
		pick := func(name, own string) string {
			return rapid.OneOf(rapid.Just(""), rapid.Just(own), text).Draw(r, name)
		}
		filter := admin.Filter{
			Broker: pick("broker", some.broker), Type: pick("type", some.eventType), Key: pick("key", some.key), ErrorClass: pick("class", "retryable"),
		}
		if runes := []rune(some.eventType); filter.Type == some.eventType && rapid.Bool().Draw(r, "prefix") {
			filter.Type = string(runes[:rapid.IntRange(0, len(runes)).Draw(r, "length")]) + "*"
		}
		want := 0
		for _, row := range rows {
			exact, prefix := filter.TypePattern()
			if (filter.Broker == "" || row.broker == filter.Broker) && (exact == "" || row.eventType == exact) && strings.HasPrefix(row.eventType, prefix) &&
				(filter.Key == "" || row.key == filter.Key) && (filter.ErrorClass == "" || filter.ErrorClass == "retryable") {
				want++
			}
		}
		got, err := operator.Matches(t.Context(), filter, many)
		require.NoError(r, err)
		require.Equal(r, want, got, "%+q", filter)
	})
	assert.EqualValues(t, len(rows), t.number("SELECT count(*) FROM {t}"), "nothing was changed")
}

// testHostileTexts gives such text to everything else that an operator may say.
func testHostileTexts(t *table) {
	operator := t.Store
	others := t.add("others")
	for i := range 30 {
		text := hostile().Example(i)
		id := t.add(text)[0]
		n, err := operator.Abandon(t.Context(), admin.Filter{Key: text}, text, many)
		require.NoError(t, err, "%q", text)
		assert.Equal(t, 1, n, "%q", text)
		n, err = operator.Requeue(t.Context(), admin.Filter{Key: text, ErrorClass: admin.ClassOperator}, many)
		require.NoError(t, err, "%q", text)
		assert.Equal(t, 1, n, "%q", text)
		_, err = operator.Replay(t.Context(), admin.Filter{Type: text + "*", Broker: text}, many)
		require.NoError(t, err, "%q", text)
		released, err := operator.UnblockKey(t.Context(), text, text)
		require.NoError(t, err, "%q", text)
		assert.False(t, released)
		_, err = operator.BlockedKeys(t.Context(), text, many)
		require.NoError(t, err, "%q", text)
		pause := admin.Pause{Broker: text, By: text, Reason: text}
		if pause.Validate() == nil {
			changed, err := t.Store.Pause(t.Context(), pause)
			require.NoError(t, err, "%q", text)
			assert.True(t, changed)
			pauses, err := t.Store.Pauses(t.Context())
			require.NoError(t, err)
			if assert.Len(t, pauses, 1) {
				assert.Equal(t, text, pauses[0].Broker)
			}
			changed, err = t.Store.Resume(t.Context(), text)
			require.NoError(t, err, "%q", text)
			assert.True(t, changed)
		}
		_, err = t.Store.Purge(t.Context(), admin.PurgeRequest{Broker: text, Status: outbox.StatusPublished, Limit: 1})
		require.NoError(t, err, "%q", text)
		t.exec("DELETE FROM {t} WHERE id = ?", id)
	}
	assert.Equal(t, others, t.ids("SELECT id FROM {t} WHERE status = 'pending' AND attempts = 0"), "others were left alone")
}

// mostCounted is where the relay's own counters end.
const mostCounted = 1<<20 - 1

// testOwnColumns gives the relay's own columns what only a stranger writes there. What no relay can
// compute with is refused, and what is at a bound costs no other row its claim and its mark.
func testOwnColumns(t *table) {
	id := t.add("a")[0]
	for _, column := range []string{"attempts", "crashes"} {
		for _, n := range []int64{-1, -2, -1 << 31, mostCounted + 1, 1<<31 - 1} {
			require.Error(t, t.try("UPDATE {t} SET "+column+" = ? WHERE id = ?", n, id), "%s = %d", column, n)
		}
		t.exec("UPDATE {t} SET "+column+" = ? WHERE id = ?", mostCounted, id)
		t.exec("UPDATE {t} SET " + column + " = 0")
	}
	for _, column := range []string{"created_at", "available_at", "expires_at", "locked_until"} {
		for _, at := range []time.Time{time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(200_000, 1, 1, 0, 0, 0, 0, time.UTC)} {
			require.Error(t, t.try("UPDATE {t} SET "+column+" = ? WHERE id = ?", t.sql.time(at), id), "%s = %s", column, at)
		}
	}
	t.exec("DELETE FROM {t}")

	rows := t.add(t.keys(4)...)
	suspect := t.claim(limit(2))
	require.Equal(t, rows[:2], taken(suspect))
	t.expire(rows[:2]...)
	t.exec("UPDATE {t} SET attempts = ?, crashes = ? WHERE status = 'processing'", mostCounted, mostCounted)
	claimed := map[int64]driver.Message{}
	for range rows { // a crash more or less: each is claimed, the suspects alone
		batch := t.claim()
		if len(batch.Messages) == 0 {
			break
		}
		for _, m := range batch.Messages {
			claimed[m.ID] = m
		}
		completion := &driver.Completion{Lease: batch.Lease}
		for i, m := range batch.Messages {
			if i == 0 {
				completion.Other = append(completion.Other, driver.Outcome{ID: m.ID, Status: outbox.StatusAbandoned, Spent: true, LastError: outbox.LastError{Class: "permanent"}.Encode()})
				continue
			}
			completion.Published = append(completion.Published, driver.Delivered{ID: m.ID})
		}
		require.Zero(t, t.complete(completion).Lost)
	}
	require.Len(t, claimed, len(rows))
	for _, row := range rows[:2] {
		assert.Equal(t, mostCounted, claimed[row].Attempts, "it counts no further")
		assert.Equal(t, mostCounted, claimed[row].Crashes)
		assert.Equal(t, mostCounted, t.state(row).Attempts)
	}
}
