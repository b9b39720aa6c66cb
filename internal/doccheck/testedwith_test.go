package doccheck_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testreport/testedwith"
)

// The page says what the last whole run of make test-all did, nothing else.
func TestTestedWith(t *testing.T) {
	t.Parallel()
	said, err := os.ReadFile(root + "docs/tested-with.json")
	require.NoError(t, err)
	var result testedwith.Result
	require.NoError(t, json.Unmarshal(said, &result))
	page, err := os.ReadFile(root + "docs/tested.md")
	require.NoError(t, err)
	want, err := testedwith.Splice(page, result.Table())
	require.NoError(t, err)
	require.Equal(t, string(want), string(page), "the table of servers is written by make test-all, out of docs/tested-with.json: do not edit it")
}
