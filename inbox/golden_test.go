package inbox_test

import (
	"embed"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gorm-fanout/fanout/internal/testenv"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox"
)

// What is sent to each database, as it is sent. FANOUT_UPDATE_GOLDEN writes the files anew.
func TestStatements(t *testing.T) {
	t.Parallel()
	for _, dialect := range []string{"postgres", "sqlite", "sqlserver", "mysql"} {
		texts := inbox.StatementsOf(dialect, "app.inbox_messages")
		var all strings.Builder
		for _, name := range slices.Sorted(maps.Keys(texts)) {
			assert.NotContains(t, texts[name], "{{", name)
			assert.NotContains(t, texts[name], "\n--", name)
			assert.Equal(t, dialect == "sqlite" && name == "lock", texts[name] == "", name)
			all.WriteString("-- " + name + "\n" + texts[name] + "\n\n")
		}
		golden(t, "statements_"+dialect+".golden.sql", all.String())
		steps, err := inbox.Migrations(dialect, "app.inbox_messages")
		require.NoError(t, err)
		require.Len(t, steps, 1)
		golden(t, steps[0].String()+"_"+dialect+".golden.sql", steps[0].SQL)
	}
	_, err := inbox.Migrations("oracle", "t")
	require.ErrorContains(t, err, `database "oracle" is not supported`)
	_, err = inbox.Migrations("postgres", "victims")
	require.ErrorContains(t, err, "has a meaning of its own")
}

//go:embed testdata/*.golden.sql
var goldens embed.FS

func golden(t *testing.T, name, got string) {
	t.Helper()
	testenv.Golden(t, goldens, "testdata/"+name, got)
}
