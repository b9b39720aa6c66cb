package postgres

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// BenchmarkFind measures searches among 300,000 published rows of 700 bytes, three million in the long
// run, whose ids begin at 10^12 and have gaps of 10^9 between every 20,000 rows.
func BenchmarkFind(b *testing.B) {
	rows := 300_000
	if testenv.Long() {
		rows *= 10
	}
	dsn := testenv.Postgres(b)
	store, err := Open(b.Context(), dsn, "finding")
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, store.Close()) })
	_, err = store.Migrate(b.Context())
	require.NoError(b, err)
	conn, err := pgx.Connect(b.Context(), dsn)
	require.NoError(b, err)
	defer conn.Close(b.Context())
	exec := func(text string, args ...any) {
		_, err := conn.Exec(b.Context(), text, args...)
		require.NoError(b, err, text)
	}
	exec("ALTER TABLE finding SET UNLOGGED")
	const span = 20_000
	insert := strings.NewReplacer("tenant_id)", "tenant_id, status, published_at, finished_at)", "'tenant-' || i % 50", "'tenant-' || i % 50, 'published', now(), now()")
	for first := 0; first < rows; first += span {
		exec("SELECT setval('finding_id_seq', 1000000000000 + $1::bigint * 50000)", first)
		exec(insert.Replace(insertSearched("finding", "i", first+1, first+span)))
	}
	exec("VACUUM ANALYZE finding")
	var mb int
	require.NoError(b, conn.QueryRow(b.Context(), "SELECT pg_relation_size('finding_search') / 1000000").Scan(&mb))

	var correlation, causation, trace string
	require.NoError(b, conn.QueryRow(b.Context(), "SELECT correlation_id, causation_id, substr(headers, 20, 32) FROM finding WHERE ordering_key = 'ordering::order-42' ORDER BY id LIMIT 1").
		Scan(&correlation, &causation, &trace))
	for _, search := range []struct {
		name, term, broker string
		by                 admin.FindBy // empty: all that it may be
		want               int
	}{
		{name: "anything", term: "order-42", want: 3},
		{name: "nothing", term: "4bf92f3577b34da6a3ce929d0e0e4736"},
		{name: "key", term: "order-42", by: admin.ByKey, want: 3},
		{name: "correlation", term: correlation, by: admin.ByCorrelation, want: 1},
		{name: "causation", term: causation, by: admin.ByCausation, want: 1},
		{name: "trace", term: trace, by: admin.ByTrace, want: 1},
		{name: "tenant", term: "tenant-7", by: admin.ByTenant, want: 50},
		{name: "type", term: "Ordering.OrderPlaced.v1", by: admin.ByType, want: 50},
		{name: "type of no rows", term: "Ordering.OrderPaid.v1", by: admin.ByType},
		{name: "type at another broker", term: "Ordering.OrderPlaced.v1", broker: "another", by: admin.ByType},
	} {
		b.Run(fmt.Sprintf("%s/rows=%d/MB=%d", search.name, rows, mb), func(b *testing.B) {
			request := admin.FindRequest{Term: search.term, Broker: search.broker, Limit: 50}
			if search.by != "" {
				request.By = []admin.FindBy{search.by}
			}
			for b.Loop() {
				found, err := store.Find(b.Context(), request)
				require.NoError(b, err)
				require.Len(b, found.Records, search.want)
			}
		})
	}
}
