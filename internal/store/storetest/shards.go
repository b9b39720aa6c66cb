package storetest

import (
	"context"
	"strings"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
)

var shardTests = []test{
	{name: "ComputedAsByTheDatabase", run: testShards},
	{name: "KnownHashes", run: testShardHashes},
}

// A ShardHash is the first byte of the SHA-256 of a text, from which its shard follows: in UTF-8,
// as on PostgreSQL, and in UTF-16 with the least byte first, as on SQL Server. SQLite has no need
// of it.
type ShardHash struct {
	Key         string
	UTF8, UTF16 int
}

// ShardHashes were computed by sha256sum, behind iconv -t UTF-16LE for the last column.
var ShardHashes = []ShardHash{
	{"test", 0x9f, 0xfe},
	{"ordering::order-42", 0x41, 0x8c},
	{"Ünï→😀", 0x78, 0x6a},
	{`back\slash \101 \\ \x`, 0x06, 0x83},
	{`a'b"c`, 0xd7, 0x35},
	{strings.Repeat("é", 100), 0xf4, 0xc9},
	{strings.Repeat("k", 500), 0x8a, 0x84},
	{"\n\t", 0xe8, 0x52},
}

// Shard is that of a row with this key on a database.
func (h ShardHash) Shard(dialect outbox.Dialect) int {
	switch dialect {
	case outbox.SQLServer:
		return h.UTF16 % outbox.Shards
	case outbox.SQLite:
		return 0
	default:
		return h.UTF8 % outbox.Shards
	}
}

// Databases and Go compute the hash that is documented, of whatever a key has in it.
func testShardHashes(t *table) {
	for _, hash := range ShardHashes {
		row := newRow(hash.Key)
		id := t.insert(row)[0]
		assert.Equal(t, hash.Shard(t.Store.Dialect()), t.shardOf(id), "key %q", hash.Key)
		assert.Equal(t, hash.Shard(t.Store.Dialect()), t.Store.Dialect().Shard(&row), "key %q", hash.Key)
	}
}

// Writers tell processors in which shards their rows are, and compute that by themselves.
func testShards(t *table) {
	inserter, err := outbox.NewInserter(t.Store.Dialect(), t.Table)
	require.NoError(t, err)
	key := rapid.OneOf(rapid.Just(""), rapid.String(), rapid.StringN(0, 40, 120), rapid.StringMatching("order::order-[0-9a-z]{1,9}"),
		rapid.Custom(func(rt *rapid.T) string { return string(rapid.SliceOfN(rapid.Byte(), 1, 8).Draw(rt, "bytes")) }))
	rapid.Check(t.T, func(rt *rapid.T) {
		rows := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) outbox.Row {
			row := newRow(key.Draw(rt, "key"))
			row.MessageID = uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(rt, "message"))
			row.Priority = rapid.IntRange(-2, 2).Draw(rt, "priority")
			row.TargetBroker = rapid.SampledFrom([]string{broker, "another"}).Draw(rt, "broker")
			return row
		}), 1, 8).Draw(rt, "rows")
		t.exec("DELETE FROM {t}")
		if inserter.Insert(context.Background(), t.DB, rows) != nil { // bytes that are no text, or the same message twice
			return
		}
		stored, arrived := map[string]wakeup.Set{}, map[string]wakeup.Set{}
		for i, id := range t.ids("SELECT id FROM {t} ORDER BY id") {
			shard := t.shardOf(id)
			require.Equal(rt, shard, t.Store.Dialect().Shard(&rows[i]), "key %q, message %s", rows[i].OrderingKey, rows[i].MessageID)
			stored[rows[i].TargetBroker] |= wakeup.SetOf(shard)
		}
		for _, wakeUp := range inserter.WakeUps(nil, rows) {
			arrived[wakeUp.Broker] = wakeUp.Shards
		}
		require.Equal(rt, stored, arrived)
	})

	seen := map[int]bool{} // all of them, so that this test has compared each
	rows := make([]outbox.Row, 0, 600)
	for n := range cap(rows) {
		row := newRow("")
		row.Priority = n%3 - 1
		rows = append(rows, row)
	}
	t.exec("DELETE FROM {t}")
	for i, id := range t.insert(rows...) {
		shard := t.shardOf(id)
		require.Equal(t, shard, t.Store.Dialect().Shard(&rows[i]))
		seen[shard] = true
	}
	assert.Len(t, seen, outbox.Classes*t.Store.Shards())
}
