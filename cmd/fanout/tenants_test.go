package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The commands work on tenants as on other databases, and one that is wrong costs no other.
func TestTenants(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := &place{T: t, config: filepath.Join(dir, "fanout.yaml")}
	list := filepath.Join(dir, "tenants.yaml")
	require.NoError(t, os.WriteFile(list, fmt.Appendf(nil, "acme: {dsn: '%[1]s/acme.db'}\nother: {dsn: '%[1]s/other.db'}\n", dir), 0o600))
	require.NoError(t, os.WriteFile(p.config, fmt.Appendf(nil, "tenants: {file: '%s', driver: sqlite}\nbrokers: {default: {type: memory}}\n", list), 0o600))
	code, stdout, stderr := p.run("migrate")
	require.Zero(t, code, stderr)
	assert.Contains(t, stdout, "acme: applied ")
	assert.Contains(t, stdout, "other: applied ")
	code, stdout, stderr = p.run("validate")
	require.Zero(t, code, stderr)
	assert.Contains(t, stdout, "tenants: 2 found\n")
	assert.Contains(t, stdout, "database acme: the schema is up to date\n")
	code, stdout, stderr = p.run("status")
	require.Zero(t, code, stderr)
	assert.Regexp(t, `(?m)^acme +default `, stdout)
	assert.Regexp(t, `(?m)^other +default `, stdout)
	code, _, stderr = p.run("broker", "pause", "default", "--reason", "test")
	require.Zero(t, code, stderr)
	code, stdout, _ = p.run("status", "--database", "other")
	require.Zero(t, code)
	assert.Contains(t, stdout, "paused")
	assert.NotContains(t, stdout, "acme")
	code, _, stderr = p.run("purge")
	require.Zero(t, code, stderr)

	require.NoError(t, os.WriteFile(list, fmt.Appendf(nil, "acme: {dsn: '%[1]s/acme.db'}\nbad: {driver: sqlite}\n", dir), 0o600))
	code, stdout, stderr = p.run("validate")
	assert.Equal(t, 1, code)
	assert.Contains(t, stdout, "database acme: the schema is up to date\n")
	assert.Contains(t, stderr, `tenant "bad": dsn is missing`)
	for _, args := range [][]string{{"migrate"}, {"status"}, {"migrate", "--database", "bad"}, {"status", "--database", "bad"}} {
		code, _, stderr = p.run(args...)
		assert.Equal(t, 1, code, args)
		assert.Contains(t, stderr, `tenant "bad": dsn is missing`, args)
	}
	require.NoError(t, os.WriteFile(list, fmt.Appendf(nil, "acme: {dsn: '%[1]s/acme.db'}\nbad: {driver: orcale, dsn: x}\n", dir), 0o600))
	for _, args := range [][]string{{"migrate"}, {"status"}, {"migrate", "--database", "bad"}, {"status", "--database", "bad"}} {
		code, _, stderr = p.run(args...)
		assert.Equal(t, 1, code, "an entry is no part of the configuration: %q", args)
		assert.Contains(t, stderr, `tenant "bad": `, args)
	}
	require.NoError(t, os.WriteFile(list, fmt.Appendf(nil, "acme: {dsn: '%[1]s/acme.db'}\nbad: {driver: sqlite}\n", dir), 0o600))
	code, stdout, stderr = p.run("messages", "list")
	assert.Equal(t, 1, code, stdout)
	assert.Contains(t, stderr, `tenant "bad": dsn is missing`)

	require.NoError(t, os.WriteFile(list, fmt.Appendf(nil, "gone: {dsn: /no/such/folder/x.db}\nlater: {dsn: '%s/later.db'}\n", dir), 0o600))
	code, stdout, stderr = p.run("migrate")
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, `database "gone": `)
	assert.Contains(t, stdout, "later: applied ", "one that was dropped does not keep it from the others")
	code, stdout, stderr = p.run("status")
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, `database "gone": `)
	assert.NotContains(t, stderr, `database "gone": fanout: `, "it is named once")
	assert.Regexp(t, `(?m)^gone .* does not answer`, stdout)
	assert.Regexp(t, `(?m)^later +default `, stdout)
}
