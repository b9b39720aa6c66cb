package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// The server reads the ids of the rows and of the broker as they were, or what can be stored of
// them.
func TestPublishedArrays(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), testenv.Postgres(t))
	require.NoError(t, err)
	defer conn.Close(t.Context())
	ctx := t.Context()
	special := rapid.StringOf(rapid.SampledFrom([]rune(`"\{}, ÄNULL` + "\x00\x01\n")))
	anyBytes := rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })
	rapid.Check(t, func(t *rapid.T) {
		var published []driver.Delivered
		var wantIDs []int64
		var wantTexts []string
		for range rapid.IntRange(1, 20).Draw(t, "n") {
			d := driver.Delivered{ID: rapid.Int64().Draw(t, "id"), BrokerMessageID: rapid.OneOf(special, anyBytes, rapid.Just("1780000000000-0")).Draw(t, "broker id")}
			published = append(published, d)
			wantIDs, wantTexts = append(wantIDs, d.ID), append(wantTexts, storable(d.BrokerMessageID))
		}
		ids, texts := publishedArrays(published)
		var gotIDs []int64
		var gotTexts []string
		require.NoError(t, conn.QueryRow(ctx, "SELECT $1::bigint[], $2::text[]", ids, texts).Scan(&gotIDs, &gotTexts))
		assert.Equal(t, wantIDs, gotIDs)
		assert.Equal(t, wantTexts, gotTexts)
	})
}
