package storetest

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

var auditTests = []test{
	{name: "BeginAndEnd", run: testAudit},
	{name: "EndedStays", run: testAuditEnded},
	{name: "Pages", run: testAuditPages},
	{name: "HostileTexts", run: testAuditHostile},
}

func (t *table) begin(entry admin.AuditEntry) int64 {
	t.Helper()
	id, err := t.Store.BeginAudit(t.Context(), entry)
	require.NoError(t, err)
	require.Positive(t, id)
	return id
}

func (t *table) audit(before int64, limit int) []admin.AuditEntry {
	t.Helper()
	entries, err := t.Store.Audit(t.Context(), before, limit)
	require.NoError(t, err)
	return entries
}

// What was begun is there at once, and until it ends it can be seen that it has not.
func testAudit(t *table) {
	assert.Empty(t, t.audit(0, 10))
	entry := admin.AuditEntry{
		Actor: "me", Via: "cli", Action: "requeue", Broker: "b", Filter: `{"type":"T"}`, Reason: "why",
		ID: 4711, Rows: 99, Failure: "not yet", StartedAt: time.Unix(0, 0), EndedAt: time.Unix(0, 0), // those are the store's to say
	}
	id := t.begin(entry)
	entries := t.audit(0, 10)
	require.Len(t, entries, 1)
	assert.WithinDuration(t, time.Now(), entries[0].StartedAt, time.Minute)
	want := admin.AuditEntry{ID: id, Actor: "me", Via: "cli", Action: "requeue", Broker: "b", Filter: `{"type":"T"}`, Reason: "why", StartedAt: entries[0].StartedAt}
	assert.Equal(t, want, entries[0])

	require.NoError(t, t.Store.EndAudit(t.Context(), id, 3_000_000_000, "the database has gone"))
	entries = t.audit(0, 10)
	require.Len(t, entries, 1)
	assert.WithinDuration(t, time.Now(), entries[0].EndedAt, time.Minute)
	assert.False(t, entries[0].EndedAt.Before(entries[0].StartedAt))
	want.Rows, want.Failure, want.EndedAt = 3_000_000_000, "the database has gone", entries[0].EndedAt
	assert.Equal(t, want, entries[0])
	assert.Equal(t, entries, t.auditOf(t.another()), "another process sees it")
}

func (t *table) auditOf(store driver.Store) []admin.AuditEntry {
	t.Helper()
	entries, err := store.Audit(t.Context(), 0, 10)
	require.NoError(t, err)
	return entries
}

func testAuditEnded(t *table) {
	first, second := t.begin(admin.AuditEntry{Actor: "a", Via: "go", Action: "purge"}), t.begin(admin.AuditEntry{Actor: "b", Via: "http", Action: "pause"})
	require.Greater(t, second, first)
	require.NoError(t, t.Store.EndAudit(t.Context(), first, 5, ""))
	before := t.audit(0, 10)
	require.Len(t, before, 2)
	assert.Zero(t, before[0].EndedAt, "the other is in progress")
	assert.Empty(t, before[1].Failure)
	t.exec("UPDATE {t}_audit SET ended_at = "+t.sql.minus("ended_at", time.Hour)+" WHERE id = ?", first)
	before = t.audit(0, 10)
	_ = t.Store.EndAudit(t.Context(), first, 7, "again") // whether that is an error is the store's to say
	assert.Equal(t, before, t.audit(0, 10), "what has ended stays as it is")
}

func testAuditPages(t *table) {
	var ids []int64
	for range 7 {
		ids = append([]int64{t.begin(admin.AuditEntry{Actor: "a", Via: "go", Action: "resume"})}, ids...)
	}
	var got []int64
	for before := int64(0); ; {
		page := t.audit(before, 3)
		if len(page) == 0 {
			break
		}
		require.LessOrEqual(t, len(page), 3)
		for _, entry := range page {
			got = append(got, entry.ID)
		}
		before = got[len(got)-1]
		t.begin(admin.AuditEntry{Actor: "a", Via: "go", Action: "resume"}) // is not on the pages that follow
		require.LessOrEqual(t, len(got), 7)
	}
	assert.Equal(t, ids, got, "newest first")
	_, err := t.Store.Audit(t.Context(), 0, 0)
	require.ErrorContains(t, err, "limit")
}

// A record of what was done is not refused for what stands in it.
func testAuditHostile(t *table) {
	for i := range 30 {
		text := hostile().Example(i)
		id := t.begin(admin.AuditEntry{Actor: text, Via: text, Action: text, Broker: text, Filter: text, Reason: text})
		require.NoError(t, t.Store.EndAudit(t.Context(), id, 1, text))
		got := t.audit(0, 1)[0]
		assert.Equal(t, []string{text, text, text, text, text, text, text}, []string{got.Actor, got.Via, got.Action, got.Broker, got.Filter, got.Reason, got.Failure})
	}
	text := "a\x00b\xff" + strings.Repeat("ü", 10_000)
	id := t.begin(admin.AuditEntry{Actor: text, Via: text, Action: text, Broker: text, Filter: text, Reason: text})
	require.NoError(t, t.Store.EndAudit(t.Context(), id, 1, text))
	got := t.audit(0, 1)[0]
	for _, kept := range []string{got.Actor, got.Reason, got.Failure} {
		assert.True(t, utf8.ValidString(kept))
		assert.True(t, strings.HasPrefix(kept, "a"))
		assert.Contains(t, kept, "b")
	}
}
