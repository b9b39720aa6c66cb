package inbox_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox"
)

// No text keeps a placeholder of its template or a comment, and each database has one migration.
func TestStatements(t *testing.T) {
	t.Parallel()
	for _, dialect := range []string{"postgres", "sqlite", "sqlserver", "mysql"} {
		for name, text := range inbox.StatementsOf(dialect, "app.inbox_messages") {
			assert.NotContains(t, text, "{{", name)
			assert.NotContains(t, text, "\n--", name)
			assert.Equal(t, dialect == "sqlite" && name == "lock", text == "", name)
		}
		steps, err := inbox.Migrations(dialect, "app.inbox_messages")
		require.NoError(t, err)
		require.Len(t, steps, 1)
		assert.NotContains(t, steps[0].SQL, "{{")
	}
	_, err := inbox.Migrations("oracle", "t")
	require.ErrorContains(t, err, `database "oracle" is not supported`)
	_, err = inbox.Migrations("postgres", "victims")
	require.ErrorContains(t, err, "also names a part of a statement")
}
