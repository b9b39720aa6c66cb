package config_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/outbox"
)

const withTenants = "databases: {main: {driver: postgres, dsn: 'postgres://main'}}\nbrokers: {default: {type: memory}}\n"

func parseTenants(t *testing.T, section string) (*config.Config, error) {
	t.Helper()
	lookup := func(name string) (string, bool) {
		return "postgres://of-" + name, name == "TENANT_ACME" || name == "ACME"
	}
	return config.Parse([]byte(withTenants+section), "fanout.yaml", config.WithEnv(lookup), linked)
}

func TestTenantsSection(t *testing.T) {
	t.Parallel()
	cfg, err := parseTenants(t, "tenants: {file: t.yaml, every: 5s, notify: false, visits: 2}\n")
	require.NoError(t, err)
	assert.Equal(t, config.Tenants{
		File: "t.yaml", Every: 5 * time.Second, Driver: outbox.Postgres, Silent: true,
		MaxConns: 4, IdleAfter: time.Minute, VisitEvery: 30 * time.Second, Visits: 2, MaxAwake: 20,
	}, cfg.Tenants)
	require.NoError(t, cfg.Validate())
	for section, problem := range map[string]string{
		"{file: a, visit_every: 2m}": "fanout.yaml:3:33: tenants.visit_every: is 2m: use at most 1m",
		"{file: a, idle_after: 2ms}": "fanout.yaml:3:32: tenants.idle_after: is \"2ms\": use at least 1s",
		"{file: a, max_awake: 2001}": "fanout.yaml:3:31: tenants.max_awake: is \"2001\": use 1 to 2000",
		"{file: a, visits: 0}":       "fanout.yaml:3:28: tenants.visits: is \"0\": use 1 to 100",
	} {
		_, err := parseTenants(t, "tenants: "+section+"\n")
		assert.EqualError(t, err, problem, section)
	}
	cfg, err = parseTenants(t, "tenants: {idle_after: 5m}\n")
	require.NoError(t, err)
	assert.Len(t, cfg.Warnings, 3)
}

// An entry that is wrong costs no other, and no message shows a password.
func TestTenantsFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tenants.yaml")
	cfg, err := parseTenants(t, "tenants: {file: "+file+"}\n")
	require.NoError(t, err)
	read := func(content string) (map[string]config.Database, map[string]string, error) {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		found, refused, err := cfg.ReadTenants()
		texts := map[string]string{}
		for name, err := range refused {
			texts[name] = strings.ReplaceAll(err.Error(), file, "FILE")
		}
		return found, texts, err
	}
	_, _, err = cfg.ReadTenants()
	require.ErrorIs(t, err, os.ErrNotExist)

	acme := config.Database{Driver: outbox.Postgres, DSN: "postgres://of-TENANT_ACME", Notify: true}
	found, refused, err := read("acme: {dsn: '${TENANT_ACME}'}\nlocal: {driver: sqlite, dsn: /data/local.db}\nquiet: {dsn: 'postgres://q', notify: false}\n" +
		"nothing: {driver: postgres}\nunset: {dsn: '${ACME}'}\nother: {driver: oracle, dsn: s3cret-0}\nmain: {dsn: x}\nACME: {dsn: x}\n-bad: {dsn: x}\nmore: {dsn: x, pool: 7}\n")
	require.NoError(t, err)
	assert.Equal(t, map[string]config.Database{
		"acme": acme, "local": {Driver: outbox.SQLite, DSN: "/data/local.db"}, "quiet": {Driver: outbox.Postgres, DSN: "postgres://q"},
	}, found)
	assert.Equal(t, map[string]string{
		"nothing": "dsn is missing: use the connection string of the tenant's database",
		"unset":   "FILE:5:14: unset.dsn: environment variable ACME is not set: set it, or write ${ACME:-default}; a list of tenants takes only variables that begin with TENANT_",
		"other":   `FILE:6:17: other.driver: "oracle" is not known: use postgres, sqlserver, mysql or sqlite`,
		"main":    "a database of the configuration has this name: use another one",
		"ACME":    `FILE:8:1: ACME: differs from "acme" in line 1 only in capitals, which some databases do not tell apart`,
		"line 9":  `FILE:9:1: name "-bad": use letters, digits, _ and -, at most 63`,
		"more":    `FILE:10:16: more: unknown key "pool": use driver, dsn or notify`,
	}, refused)

	found, refused, err = read("{\n  \"acme\": {\"dsn\": \"${TENANT_ACME}\"}\n}\n")
	require.NoError(t, err)
	assert.Equal(t, map[string]config.Database{"acme": acme}, found)
	assert.Empty(t, refused)
	found, _, err = read("{}\n")
	require.NoError(t, err)
	assert.Empty(t, found)
	for _, broken := range []string{"", "a: {dsn: x\n", "[a, b]\n", "a: {dsn: x}\n---\nb: {dsn: x}\n", strings.Repeat("#", 1<<20+1)} {
		_, _, err = read(broken)
		assert.Error(t, err, "%.20s", broken)
	}
	var many strings.Builder
	for n := range 2001 {
		fmt.Fprintf(&many, "t%d: {dsn: x}\n", n)
	}
	_, _, err = read(many.String())
	assert.ErrorContains(t, err, "there are 2001 tenants: one relay takes at most 2000")
}

// What an application lists is checked as well.
func TestCheckTenants(t *testing.T) {
	t.Parallel()
	cfg := &config.Config{Databases: map[string]config.Database{"main": {Driver: outbox.Postgres}}, Tenants: config.Tenants{Driver: outbox.SQLite}}
	found, refused, err := cfg.CheckTenants(map[string]config.Database{
		"a": {DSN: "a.db"}, "b": {Driver: outbox.MySQL, DSN: "b", Notify: true}, "Main": {DSN: "m"}, "c/d": {DSN: "x"}, "e": {Driver: "oracle", DSN: "x"},
		"f": {Driver: outbox.SQLite, DSN: "a.db"}, "g": {Driver: outbox.MySQL, DSN: "a.db"},
	})
	require.NoError(t, err)
	assert.Equal(t, map[string]config.Database{"a": {Driver: outbox.SQLite, DSN: "a.db"}, "g": {Driver: outbox.MySQL, DSN: "a.db"}}, found)
	assert.Equal(t, []string{"(not shown: it may be a secret)", "Main", "b", "e", "f"}, slices.Sorted(maps.Keys(refused)))
	require.EqualError(t, refused["f"], `has the dsn of "a": list one name for a database, which would have two sets of workers`)
}

// What follows a comma of a value without quotes is read as a key, which the problem says.
func TestAValueThatNeedsQuotes(t *testing.T) {
	t.Parallel()
	_, err := parsed([]byte("databases: {a: {driver: postgres, dsn: host=db, user is me}}\n"), "fanout.yaml")
	require.ErrorContains(t, err, `unknown key "user is me"`)
	require.ErrorContains(t, err, "; a value with a comma within {} needs quotes")
}
