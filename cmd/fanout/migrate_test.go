package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/config"
)

// runs executes a script as the command line of the database does.
func (s *shop) runs(script string) {
	s.Helper()
	cfg, err := config.Load(s.config, config.WithUnsetVariables("brokers"))
	require.NoError(s, err)
	db, err := openHandle(cfg.Databases["main"])
	require.NoError(s, err)
	pool, err := db.DB()
	require.NoError(s, err)
	defer func() { assert.NoError(s, pool.Close()) }()
	statements := []string{script}
	if db.Name() == "mysql" { // whose sessions take one at a time
		statements = strings.Split(strings.TrimSpace(script), ";\n")
	}
	for _, statement := range statements {
		_, err := pool.ExecContext(s.Context(), statement)
		require.NoError(s, err, statement)
	}
}

// What --print shows is given to another tool. Everything works with its tables, and a migration
// records them.
func TestMigrateAfterAnotherTool(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		text, err := os.ReadFile(s.config)
		require.NoError(t, err)
		databases, _, _ := strings.Cut(string(text), "\n")
		require.NoError(t, os.WriteFile(s.config, []byte(databases+"\noutbox: {table: other_tool}\nbrokers: {default: {type: memory}}\n"), 0o600))

		s.runs(s.does("migrate", "--print"))
		code, stdout, stderr := s.run("validate")
		assert.Zero(t, code)
		assert.Contains(t, stdout, "database main: the schema is up to date\n")
		assert.NotContains(t, stdout+stderr, "not compared")
		assert.NotContains(t, stderr, "migrate --print", "each expression is the migration's")
		s.does("status", "--json")
		assert.Equal(t, "main: 0001_outbox is already there, recorded\n", s.does("migrate"))
		assert.Equal(t, "main: up to date\n", s.does("migrate"))
		assert.Contains(t, s.does("validate"), "database main: the schema is up to date\n")

		s.runs("DROP TABLE other_tool_migrations;\n")
		s.runs("ALTER TABLE other_tool_instances DROP COLUMN host;\n")
		code, stdout, stderr = s.run("migrate")
		assert.Equal(t, exitFailed, code)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, "which records them;")
		assert.Contains(t, stderr, ":\n  column host of other_tool_instances: missing\n", "one line for each difference")

		s.runs(s.does("inbox", "migrate", "--print", "--table", "other_inbox"))
		assert.Equal(t, "main: 0001_inbox is already there, recorded\n", s.does("inbox", "migrate", "--table", "other_inbox"))
		assert.Equal(t, "main: up to date\n", s.does("inbox", "migrate", "--table", "other_inbox"))
	})
}

// The SQL is printed where no database can be reached, and no secret is known: in a pipeline, say.
func TestMigratePrint(t *testing.T) {
	t.Parallel()
	p := &place{T: t, config: filepath.Join(t.TempDir(), "fanout.yaml")}
	require.NoError(t, os.WriteFile(p.config, []byte(`
databases: {shop: {driver: postgres, dsn: "${FANOUT_TEST_UNSET_DSN}"}, audit: {driver: mysql, dsn: "${FANOUT_TEST_UNSET_DSN}"}}
brokers: {default: {type: memory}}
`), 0o600))
	code, stdout, stderr := p.run("migrate", "--print", "--database", "shop")
	require.Zero(t, code, stderr)
	assert.True(t, strings.HasPrefix(stdout, "-- database shop (postgres), step 0001_outbox\n"), stdout[:100])
	assert.NotContains(t, stdout, "database audit")
	assert.True(t, strings.HasSuffix(stdout, ";\n"))
	assert.NotContains(t, stdout, ";;")

	code, stdout, stderr = p.run("inbox", "migrate", "--print", "--database", "audit")
	require.Zero(t, code, stderr)
	assert.True(t, strings.HasPrefix(stdout, "-- database audit (mysql), step 0001_inbox\n"), stdout[:100])
	assert.True(t, strings.HasSuffix(stdout, ";\n"))

	code, _, stderr = p.run("migrate", "--print", "--database", "nowhere")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, stderr, `the configuration has no database "nowhere"`)
}
