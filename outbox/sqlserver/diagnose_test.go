package sqlserver

import (
	sqldriver "database/sql/driver"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox/admin"
)

func TestDiagnose(t *testing.T) {
	t.Parallel()
	answer := func(values ...sqldriver.Value) reply {
		return reply{sets: []set{{columns: []string{"fanout_version", "", "", "", "", ""}, rows: [][]sqldriver.Value{values}}}}
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	clock := func(ahead time.Duration) reply {
		return reply{sets: []set{{columns: []string{"fanout_clock"}, rows: [][]sqldriver.Value{{now.Add(ahead)}}}}}
	}
	rights := func(missing ...string) reply {
		s := set{columns: []string{"fanout_forbidden"}}
		for _, right := range missing {
			s.rows = append(s.rows, []sqldriver.Value{right})
		}
		return reply{sets: []set{s}}
	}
	good := answer("16.0.1000.6", int64(3), int64(160), "READ_WRITE", true, "ALLOWED")
	for _, c := range []struct {
		name    string
		replies []reply
		wants   []admin.Finding
	}{
		{"good", []reply{good, clock(0), rights()}, nil},
		{"oldest", []reply{answer("13.0.1601.5", int64(2), int64(130), "READ_WRITE", false, "DISABLED"), clock(0), rights()}, nil},
		{"a service", []reply{answer("12.0.2000.8", int64(5), int64(150), "READ_WRITE", true, "DISABLED"), clock(0), rights()}, nil},
		{"a server that does not say", []reply{answer(nil, nil, int64(130), nil, nil, nil), clock(0), rights()}, nil},
		{
			"too old",
			[]reply{answer("12.0.2000.8", int64(3), int64(120), "READ_WRITE", false, "DISABLED"), clock(0)},
			[]admin.Finding{
				{Refused: true, Topic: "version", Message: "SQL Server 12.0.2000.8 is too old"},
				{Refused: true, Topic: "compatibility level", Message: "compatibility level 120"},
			},
		},
		{
			"replica",
			[]reply{answer("16.0.1000.6", int64(3), int64(160), "READ_ONLY", true, "DISABLED"), clock(0), rights()},
			[]admin.Finding{{Refused: true, Topic: "read-only", Message: "point the relay at the primary"}},
		},
		{
			"careless",
			[]reply{answer("16.0.1000.6", int64(3), int64(160), "READ_WRITE", true, "FORCED"), clock(-time.Hour), rights("DELETE ON app.outbox", "INSERT ON app.outbox_key_blocks")},
			[]admin.Finding{
				{Topic: "durability", Message: "DELAYED_DURABILITY is FORCED"},
				{Topic: "clock", Message: "behind this machine"},
				{Refused: true, Topic: "rights", Message: "GRANT DELETE ON app.outbox, INSERT ON app.outbox_key_blocks"},
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			store, server := newFake(t, "app.outbox", inTurn(c.replies...))
			store.now = func() time.Time { return now }
			d, err := store.Diagnose(t.Context())
			require.NoError(t, err)
			require.Len(t, d.Findings, len(c.wants), "%v", d.Findings)
			for i, want := range c.wants {
				assert.Contains(t, d.Findings[i].Message, want.Message)
				want.Message = d.Findings[i].Message
				assert.Equal(t, want, d.Findings[i])
			}
			assert.Len(t, server.requests, len(c.replies))
			assert.Len(t, d.Settings, 3)
		})
	}
	store, _ := newFake(t, "app.outbox", inTurn(good, reply{err: serverError(229)}))
	_, err := store.Diagnose(t.Context())
	require.ErrorContains(t, err, "sqlserver: diagnose app.outbox: ")
}
