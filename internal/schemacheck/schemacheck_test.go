package schemacheck_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/schemacheck"
)

const wanted = `# a comment
table box
    storage: permanent

column id
    type: bigint
column shard
    type: smallint
    generated: ((a & 3) + CASE WHEN p < 0 THEN 4 ELSE 0 END)
index box_open
    columns: btree (shard, id)
table box_key_blocks
column shard of box_key_blocks
    type: smallint
`

func parse(t *testing.T, text string) schemacheck.Facts {
	t.Helper()
	facts, err := schemacheck.Parse(text)
	require.NoError(t, err)
	return facts
}

func TestFacts(t *testing.T) {
	t.Parallel()
	facts := parse(t, wanted)
	assert.Equal(t, facts, parse(t, facts.String()))
	assert.Equal(t, []string{"box", "box_key_blocks"}, facts.Tables())
	assert.Equal(t, []string{"id", "shard"}, facts.Owned("column "))
	assert.True(t, facts.Has("table BOX"))
	assert.False(t, facts.Has("table bo"))
	assert.Equal(t, "table {{table}}\ncolumn shard of {{table}}_key_blocks\nindex {{name}}_open\n",
		parse(t, "table box\ncolumn shard of box_key_blocks\nindex box_open").Template("box"))
	var built schemacheck.Facts
	built = built.With("table box", "storage", "permanent")
	built = built.With("column id", "type", "bigint")
	built = built.With("column id", "default", "a: b")
	built = built.With("table bare", "", "")
	assert.Equal(t, "table box\n    storage: permanent\ncolumn id\n    type: bigint\n    default: a: b\ntable bare\n", built.String())
	assert.Equal(t, built, parse(t, built.String()))

	for _, text := range []string{"    type: bigint", "column id\n    type bigint"} {
		_, err := schemacheck.Parse(text)
		require.ErrorContains(t, err, "schemacheck: line ", text)
	}
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, live string
		want       []string
	}{
		{"the same", wanted, nil},
		{
			"the same in other words, and more",
			`table BOX
    storage: permanent
column id
    type: [bigint]
column shard
    generated: (a&(3))+case when [p]<(0) then (4) else (0) end
    type: SMALLINT
column more
    type: text
index box_open
    columns: btree (shard,  id)
index box_more
    columns: btree (more)
table box_key_blocks
column shard of box_key_blocks
    type: smallint
`, nil,
		},
		{"nothing", "", []string{"table box: missing", "table box_key_blocks: missing"}},
		{
			"all kinds",
			`table box
    storage: unlogged
column id
    type: bigint
    default: 7
column shard
    type: integer
table box_key_blocks
column shard of box_key_blocks
    type: ?
`,
			[]string{
				"table box: storage is unlogged, want permanent",
				"column id: default is 7, want none",
				"column shard: type is integer, want smallint",
				"column shard: generated is none, want ((a & 3) + CASE WHEN p < 0 THEN 4 ELSE 0 END)",
				"index box_open: missing",
			},
		},
	} {
		assert.Equal(t, c.want, schemacheck.Differences(parse(t, wanted), parse(t, c.live)), c.name)
	}
}

func TestFold(t *testing.T) {
	t.Parallel()
	for _, same := range [][]string{
		{"(finished_at IS NULL AND deferred = 0)", "([finished_at] is null AND [deferred]=(0))", "finished_at IS NULL -- open\n AND \"deferred\"=0"},
		{"DEFAULT N'pending'", "default ((('pending')))", "/* a\nb */ Default ('pending')"},
		{"f(x, 1) + 2", "F( [x],(1))+((2))"},
		{"(a & 3) + b", "((a&(3))+b)", "(((a&(3))+b))"},
		{"ARRAY['a'::text, 'b'::text]", "array['a'::text,'b'::text]"},
		{"'it''s (fine) -- really'", "('it''s (fine) -- really')"},
	} {
		for _, text := range same[1:] {
			assert.Equal(t, schemacheck.Fold(same[0]), schemacheck.Fold(text))
		}
	}
	for _, different := range [][2]string{
		{"(a & 3) + b", "a & (3 + b)"}, {"'Pending'", "'pending'"}, {"ARRAY['A']", "ARRAY['a']"}, {"a", "'a'"}, {"(a)(b)", "((a)(b))x"}, {"((a", "a"}, {"'a  b'", "'a b'"},
	} {
		assert.NotEqual(t, schemacheck.Fold(different[0]), schemacheck.Fold(different[1]), different)
	}
}

// Texts that another version of a database may word differently are not compared, but have to be
// there.
func TestForget(t *testing.T) {
	t.Parallel()
	want := schemacheck.Facts{}.With("table box", "", "").With("column n", "type", "integer").With("column n", "default", "1").With("column m", "default", "2")
	live := schemacheck.Facts{}.With("table box", "", "").With("column n", "type", "bigint").With("column n", "default", "'1'::integer").With("column m", "type", "x")
	assert.Equal(t, []string{"column n: type is bigint, want integer", "column m: default is none, want 2", "column m: type is x, want none"},
		schemacheck.Differences(want, schemacheck.Forget(want, live, "default")))
}
