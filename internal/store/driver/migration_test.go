package driver

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestCheckTableAmong(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		"sql/a.sql": {Data: []byte("-- WITH words AS (\nWITH first AS MATERIALIZED (\n    SELECT 1\n), second AS (\n    SELECT 2\n)\n   , third AS (\n SELECT 3)\nSELECT 4 AS fourth")},
	}
	for _, name := range []string{"first", "SECOND", "third"} {
		require.ErrorContains(t, ValidateTableAmong(name, files), name)
	}
	for _, name := range []string{"fourth", "words", "app.first", "firsts", "outbox_messages"} {
		require.NoError(t, ValidateTableAmong(name, files), name)
	}
}
