package outbox_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/storetest"
	"github.com/gorm-fanout/fanout/outbox"
)

// Go computes what the databases do; that these do it is tested on them.
func TestShardHashes(t *testing.T) {
	t.Parallel()
	for _, dialect := range []outbox.Dialect{outbox.Postgres, outbox.SQLServer, outbox.SQLite, outbox.MySQL} {
		for _, hash := range storetest.ShardHashes {
			assert.Equal(t, hash.Shard(dialect), dialect.Shard(&outbox.Row{OrderingKey: hash.Key}), "%s: key %q", dialect, hash.Key)
		}
	}
	// SQL Server's driver makes U+FFFD of what is no text, and a message's id is text in capitals
	// there. On MySQL it is bytes.
	assert.Equal(t, 0x58%outbox.Shards, outbox.SQLServer.Shard(&outbox.Row{OrderingKey: "bad \xff byte"}))
	id := uuid.MustParse("0192a1b2-c3d4-7e5f-8a9b-abcdef012345")
	for dialect, first := range map[outbox.Dialect]int{outbox.Postgres: 0x10, outbox.SQLServer: 0x9f, outbox.MySQL: 0x28} {
		assert.Equal(t, first%outbox.Shards, dialect.Shard(&outbox.Row{MessageID: id}))
		assert.Equal(t, int(outbox.ClassUrgent)*outbox.Shards+first%outbox.Shards, dialect.Shard(&outbox.Row{MessageID: id, Priority: 1}))
		assert.Equal(t, int(outbox.ClassBackfill)*outbox.Shards+first%outbox.Shards, dialect.Shard(&outbox.Row{MessageID: id, Priority: -1}))
	}
}

// Where only what FIPS 140 allows may be computed, what writers and relays compute of a row comes
// out as everywhere.
func TestFIPS(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	child := exec.CommandContext(t.Context(), self, "-test.run=^(TestShardHashes|TestAppendWakeUps|TestNotification|TestKeyLocks|TestInsert)")
	child.Env = append(os.Environ(), "GODEBUG=fips140=only")
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.NotContains(t, string(out), "no tests to run")
}
