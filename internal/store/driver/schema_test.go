package driver

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

func TestLiveSchema(t *testing.T) {
	t.Parallel()
	steps := []Migration{{Version: 1, Name: "outbox"}, {Version: 2, Name: "more"}}
	missing, wrong := []string{"table box: missing"}, []string{"column shard: missing", "index i: unique is yes, want no"}
	for _, c := range []struct {
		name   string
		live   LiveSchema
		remedy string // empty: up to date
		want   string
	}{
		{"up to date", LiveSchema{Exists: true, Recorded: true, Versions: []int{1, 2}}, "", ""},
		{"from the future", LiveSchema{Exists: true, Recorded: true, Versions: []int{1, 2, 3}}, "", ""},
		{"made by another tool", LiveSchema{Exists: true}, "", ""},
		{"nothing", LiveSchema{Differences: missing}, remedyMigrate, "(table box: missing)"},
		{"a step behind", LiveSchema{Differences: wrong, Exists: true, Recorded: true, Versions: []int{1}}, remedyMigrate, "(" + wrong[0] + "; " + wrong[1] + "; step 0002_more: not applied)"},
		{"a step behind that shows nowhere", LiveSchema{Exists: true, Recorded: true, Versions: []int{1}}, remedyMigrate, "(step 0002_more: not applied)"},
		{"changed by hand", LiveSchema{Differences: wrong, Exists: true, Recorded: true, Versions: []int{1, 2}}, remedyByHand, wrong[0]},
		{"dropped by hand", LiveSchema{Differences: missing, Recorded: true, Versions: []int{1, 2}}, remedyByHand, missing[0]},
		{"another tool is behind", LiveSchema{Differences: wrong, Exists: true}, remedyTool, wrong[1]},
	} {
		err := c.live.Err(steps)
		if c.remedy == "" {
			require.NoError(t, err, c.name)
			continue
		}
		require.ErrorIs(t, err, outbox.ErrSchema, c.name)
		var schema *admin.SchemaError
		require.ErrorAs(t, err, &schema, c.name)
		assert.Equal(t, c.remedy, schema.Remedy, c.name)
		assert.ErrorContains(t, err, "fanout migrate", c.name)
		assert.ErrorContains(t, err, c.want, c.name)
	}
}

// Tables of which nothing is recorded, and which are not the outbox's, are named with what to do.
func TestAdopt(t *testing.T) {
	t.Parallel()
	steps := []Migration{{Version: 1, Name: "outbox"}}
	found := Comparison{Begun: true}
	compare := func([]Migration) (Comparison, error) { return found, nil }
	there, err := Adopt(steps, nil, compare)
	require.NoError(t, err)
	assert.Equal(t, []int{1}, there)

	found.Differences = []string{"column shard: missing"}
	_, err = Adopt(steps, nil, compare)
	var schema *admin.SchemaError
	require.ErrorAs(t, err, &schema)
	assert.Equal(t, &admin.SchemaError{Differences: found.Differences, Remedy: remedyForeign}, schema)
}
