package storetest

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

var registryTests = []test{
	{name: "ComeAndGo", run: testRegistry},
	{name: "Heartbeat", run: testHeartbeat},
	{name: "SameName", run: testSameName},
	{name: "NotSeenForADay", run: testNotSeen},
	{name: "OddTexts", run: testInstanceTexts},
	{name: "UnreadableRow", run: testUnreadableInstance},
}

func (t *table) heartbeat(instance admin.Instance) {
	t.Helper()
	require.NoError(t, t.Store.Heartbeat(t.Context(), instance))
}

func (t *table) instances() []admin.Instance {
	t.Helper()
	instances, err := t.Store.Instances(t.Context())
	require.NoError(t, err)
	return instances
}

// seen moves the times of an instance into the past.
func (t *table) seen(column, name string, ago time.Duration) {
	t.Helper()
	t.exec("UPDATE {t}_instances SET "+column+" = "+t.sql.minus(column, ago)+" WHERE name = ?", name)
}

func newInstance(name string) admin.Instance {
	return admin.Instance{ID: uuid.New(), Name: name, Host: "host", PID: 4711, Version: "v1.2.3"}
}

func testRegistry(t *table) {
	assert.Empty(t, t.instances())
	instance := newInstance("relay")
	instance.Work = []admin.Work{
		{Worker: "host/4711/db/broker/0", Broker: broker, Shard: 3, Rows: 500, Since: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)},
		{Worker: "host/4711/db/broker/1", Broker: "another", Shard: 0, Rows: 1, Since: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)},
	}
	instance.StartedAt = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC) // by the database's clock, whatever the caller says
	instance.SeenAt = instance.StartedAt
	t.heartbeat(instance)
	got := t.instances()
	require.Len(t, got, 1)
	assert.WithinDuration(t, time.Now(), got[0].StartedAt, time.Minute)
	assert.WithinDuration(t, time.Now(), got[0].SeenAt, time.Minute)
	got[0].StartedAt, got[0].SeenAt = instance.StartedAt, instance.SeenAt
	assert.Equal(t, instance, got[0])

	require.NoError(t, t.Store.Leave(t.Context(), uuid.New()), "nobody")
	assert.Len(t, t.instances(), 1)
	require.NoError(t, t.Store.Leave(t.Context(), instance.ID))
	assert.Empty(t, t.instances())
	require.NoError(t, t.Store.Leave(t.Context(), instance.ID), "twice")
}

func testHeartbeat(t *table) {
	instance := newInstance("relay")
	instance.Work = []admin.Work{{Worker: "w", Broker: broker, Rows: 1}}
	t.heartbeat(instance)
	t.seen("started_at", "relay", time.Hour)
	t.seen("seen_at", "relay", time.Hour)
	got := t.instances()[0]
	assert.WithinDuration(t, time.Now().Add(-time.Hour), got.SeenAt, time.Minute)
	instance.Unavailable = []admin.Unavailable{{Broker: broker}, {Broker: broker, Destination: "orders \"é\""}}
	t.heartbeat(instance)
	assert.Equal(t, instance.Unavailable, t.instances()[0].Unavailable)
	assert.Equal(t, instance.Work, t.instances()[0].Work)
	t.seen("seen_at", "relay", time.Hour)
	instance.Work, instance.Unavailable = nil, nil
	require.NoError(t, t.another().Heartbeat(t.Context(), instance))
	again := t.instances()
	require.Len(t, again, 1)
	assert.Equal(t, got.StartedAt, again[0].StartedAt, "it did not start anew")
	assert.WithinDuration(t, time.Now(), again[0].SeenAt, time.Minute)
	assert.Empty(t, again[0].Work)
	assert.Empty(t, again[0].Unavailable)
}

// Two processes of one name are two.
func testSameName(t *table) {
	first, second := newInstance("relay"), newInstance("relay")
	t.heartbeat(first)
	t.heartbeat(second)
	t.heartbeat(first)
	assert.Len(t, t.instances(), 2)
	require.NoError(t, t.Store.Leave(t.Context(), first.ID))
	got := t.instances()
	require.Len(t, got, 1)
	assert.Equal(t, second.ID, got[0].ID)
}

func testNotSeen(t *table) {
	gone, silent := newInstance("gone"), newInstance("silent")
	t.heartbeat(gone)
	t.heartbeat(silent)
	t.seen("seen_at", "gone", 24*time.Hour+time.Minute)
	t.seen("started_at", "gone", 48*time.Hour)
	t.seen("seen_at", "silent", 24*time.Hour-time.Minute)
	got := t.instances()
	require.Len(t, got, 1)
	assert.Equal(t, silent.ID, got[0].ID)
	assert.Equal(t, int64(1), t.number("SELECT count(*) FROM {t}_instances"), "and it is removed")
	t.heartbeat(gone)
	assert.Len(t, t.instances(), 2, "it was asleep")
}

func testInstanceTexts(t *table) {
	const odd = "schlüssel ключ 鍵 🔑 '\"\\%_{}$1?@p1 \u2028"
	instance := newInstance(odd)
	instance.Host, instance.Version = odd, odd
	instance.Work = []admin.Work{{Worker: odd, Broker: odd}}
	t.heartbeat(instance)
	got := t.instances()[0]
	got.StartedAt, got.SeenAt = time.Time{}, time.Time{}
	assert.Equal(t, instance, got)

	t.heartbeat(admin.Instance{ID: uuid.New()})
	nul := newInstance("a\x00b\xff")
	nul.Host, nul.Version, nul.Work = nul.Name, nul.Name, []admin.Work{{Worker: nul.Name}}
	t.heartbeat(nul)
	assert.Len(t, t.instances(), 3, "a name never keeps a process from being seen")
}

// A row that an operator has spoilt costs itself only, and says what is wrong with it.
func testUnreadableInstance(t *table) {
	instance := newInstance("good")
	instance.Work = []admin.Work{{Worker: "w", Broker: broker, Rows: 1}}
	t.heartbeat(instance)
	far := map[outbox.Dialect]string{outbox.SQLite: "999999999999999999", outbox.Postgres: "'infinity'"}[t.Store.Dialect()]
	for name, spoil := range map[string]string{
		"no JSON":       "work = 'nonsense'",
		"a list":        "work = '[]'",
		"no list":       `work = '{"batches":{}}'`,
		"twice":         `work = '{"batches":[{"rows":1,"rows":2}]}'`,
		"started never": "started_at = " + far,
	} {
		if strings.HasSuffix(spoil, "= ") {
			continue
		}
		t.heartbeat(newInstance(name))
		t.exec("UPDATE {t}_instances SET "+spoil+" WHERE name = ?", name)
	}
	if t.Store.Dialect() == outbox.SQLite { // whose columns take anything
		for name, spoil := range map[string]string{"no id": "instance_id = 'nonsense'", "no number": "pid = 'x'", "no time": "seen_at = 'now'"} {
			t.heartbeat(newInstance(name))
			t.exec("UPDATE {t}_instances SET "+spoil+" WHERE name = ?", name)
		}
	}
	got := t.instances()
	assert.Len(t, got, int(t.number("SELECT count(*) FROM {t}_instances")))
	for i := range got {
		if got[i].Name == "good" {
			assert.Equal(t, instance.Work, got[i].Work)
			assert.Empty(t, got[i].Unreadable)
			continue
		}
		assert.NotEmpty(t, got[i].Unreadable, got[i].Name)
		_, err := json.Marshal(got[i].StartedAt)
		require.NoError(t, err, got[i].Name)
	}
}
