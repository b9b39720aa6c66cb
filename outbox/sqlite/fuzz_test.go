package sqlite

import (
	"path/filepath"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// FuzzRow writes rows as plain SQL can, with bytes, texts and numbers in whatever column: either
// the table refuses them or the claim reads them, and the row beside them. No row stops the others.
func FuzzRow(f *testing.F) {
	f.Add("00000000-0000-0000-0000-000000000001", "s", "t", "k", "application/json", "{}", "c", []byte("p"), "0", uint8(0))
	for kind := range uint8(16) {
		f.Add("00000000-0000-0000-0000-00000000000x", "s", "\xff", "\x00", "nonsense", "{broken", "\u2028", []byte{0, 255}, "many", kind)
	}
	dsn := "file:" + filepath.Join(f.TempDir(), "x.db") + "?_pragma=busy_timeout(10000)"
	f.Fuzz(func(t *testing.T, id, stream, eventType, key, contentType, headers, correlation string, payload []byte, number string, kind uint8) {
		db := openDB(t, dsn)
		store, err := New(db, outbox.DefaultTable)
		require.NoError(t, err)
		_, err = store.Migrate(t.Context())
		require.NoError(t, err)
		_, err = db.ExecContext(t.Context(), "DELETE FROM outbox_messages")
		require.NoError(t, err)
		value := func(bit uint8, text string) any { // as a blob, or as a text
			if kind&bit != 0 {
				return []byte(text)
			}
			return text
		}
		var attempts, priority, payloadValue any = 0, 0, payload
		if kind&4 != 0 {
			attempts = number
		}
		if kind&8 != 0 {
			priority, payloadValue = number, string(payload)
		}
		_, err = db.ExecContext(t.Context(), `INSERT INTO outbox_messages
			(message_id, target_broker, stream, type, ordering_key, priority, content_type, headers, correlation_id, attempts, payload)
			VALUES (?, 'b', ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			value(1, id), value(2, stream), value(1, eventType), value(2, key), priority, value(1, contentType), value(2, headers), value(1, correlation), attempts, payloadValue)
		if err != nil {
			return // refused
		}
		_, err = db.ExecContext(t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload)
			VALUES ('ffffffff-ffff-4fff-8fff-ffffffffffff', 'b', 's', 'plain', x'')`)
		if err != nil {
			return // the fuzzer's id is that one
		}
		seen := false
		for _, shard := range []int{0, 4, 8} {
			answer, err := store.Exchange(t.Context(), nil, &driver.Claim{Broker: "b", Shard: shard, Limit: 10, Window: 10, Lease: time.Hour, Worker: "w", Wake: true})
			require.NoError(t, err)
			for _, m := range answer.Batch.Messages {
				seen = seen || m.Type == "plain"
				out, err := m.Outgoing()
				var malformed *outbox.MalformedError
				if err != nil {
					require.ErrorAs(t, err, &malformed)
				} else {
					assert.NotEmpty(t, out.Destination)
				}
			}
		}
		assert.True(t, seen || !utf8.ValidString(key))
	})
}
