package driver

import (
	"errors"
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

func TestApplyMigrations(t *testing.T) {
	t.Parallel()
	steps := []Migration{{Version: 1, Name: "outbox"}, {Version: 2, Name: "more"}, {Version: 3, Name: "most"}}
	var run []int
	broken := errors.New("broken")
	apply := func(step Migration) error {
		run = append(run, step.Version)
		if step.Version == 3 {
			return broken
		}
		return nil
	}
	applied, err := ApplyMigrations(steps[:2], []int{1}, apply)
	require.NoError(t, err)
	assert.Equal(t, []string{"0002_more"}, applied)
	assert.Equal(t, []int{2}, run)

	run = nil
	applied, err = ApplyMigrations(append(steps, Migration{Version: 4}), []int{2}, apply)
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "step 0003_most: ")
	assert.Empty(t, applied)
	assert.Equal(t, []int{1, 3}, run, "it stops there")
}
