package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox/admin"
)

func TestDiagnose(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, parameters string
		ahead            time.Duration // of this process's clock
		wants            []admin.Finding
	}{
		{name: "good", parameters: "_pragma=journal_mode(WAL)&_pragma=busy_timeout(1000)"},
		{
			name: "as SQLite comes", parameters: "_pragma=busy_timeout(0)",
			wants: []admin.Finding{{Topic: "journal mode", Message: "journal_mode is delete"}, {Topic: "busy timeout", Message: "busy_timeout is 0"}},
		},
		{
			name: "unsafe", parameters: "_pragma=journal_mode(WAL)&_pragma=busy_timeout(1000)&_pragma=synchronous(OFF)",
			wants: []admin.Finding{{Topic: "durability", Message: "synchronous is OFF"}},
		},
		{
			name: "queries only", parameters: "_pragma=journal_mode(WAL)&_pragma=busy_timeout(1000)&_pragma=query_only(1)",
			wants: []admin.Finding{{Refused: true, Topic: "read-only", Message: "query_only is on"}},
		},
		{
			name: "read-only", parameters: "mode=ro&_pragma=busy_timeout(1000)",
			wants: []admin.Finding{{Refused: true, Topic: "read-only", Message: "the database is read-only"}},
		},
		{
			name: "another time", parameters: "_pragma=journal_mode(WAL)&_pragma=busy_timeout(1000)", ahead: time.Hour,
			wants: []admin.Finding{{Topic: "clock", Message: "behind this machine's"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "outbox.db")
			if c.name == "read-only" { // it must be there
				store, err := New(openDB(t, path+"?_pragma=journal_mode(WAL)"), "")
				require.NoError(t, err)
				_, err = store.Migrate(t.Context())
				require.NoError(t, err)
			}
			store, err := New(openDB(t, "file:"+path+"?"+c.parameters), "", WithClock(func() time.Time { return time.Now().Add(c.ahead) }))
			require.NoError(t, err)
			d, err := store.Diagnose(t.Context())
			require.NoError(t, err)
			require.Len(t, d.Findings, len(c.wants), "%v", d.Findings)
			for i, want := range c.wants {
				assert.Contains(t, d.Findings[i].Message, want.Message)
				want.Message = d.Findings[i].Message
				assert.Equal(t, want, d.Findings[i])
			}
			assert.Regexp(t, `^SQLite 3\.\d+`, d.Server)
		})
	}
}

// A writer at work is no finding.
func TestDiagnoseBusy(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db") + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(1)"
	conn, err := openDB(t, path).Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)
	store, err := New(openDB(t, path), "")
	require.NoError(t, err)
	d, err := store.Diagnose(t.Context())
	require.NoError(t, err)
	assert.Empty(t, d.Findings)
}
