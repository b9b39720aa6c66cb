package fanout_test

import (
	"os"
	"path/filepath"
	"testing"

	sqlmysql "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/microsoft/go-mssqldb/msdsn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// listedInAFile asks for the one tenant of a file.
func listedInAFile(t *testing.T, driver outbox.Dialect, dsn string) (config.Database, error) {
	t.Helper()
	cfg := &config.Config{Tenants: config.Tenants{File: filepath.Join(t.TempDir(), "tenants.yaml"), Driver: driver}}
	require.NoError(t, os.WriteFile(cfg.Tenants.File, []byte(`acme: {dsn: "`+dsn+`"}`), 0o600))
	found, err := fanout.Tenants(t.Context(), cfg)
	return found["acme"], err
}

// An entry names its options one by one; what is refused says which, and shows no password.
func TestRefusedDSNs(t *testing.T) {
	t.Parallel()
	for driver, dsns := range map[outbox.Dialect]map[string]string{
		outbox.Postgres: {
			"postgres://u:s3cret@h/d?sslrootcert=/dev/zero":     `option "sslrootcert" is not for an entry`,
			"postgres://u:s3cret@h/d?ssl%6bey=/key":             `option "sslkey"`,
			"postgres://u:s3cret@h/d?service=other":             `option "service"`,
			"postgres://u:s3cret@h/d?ssl=true":                  `option "ssl"`,
			"postgres://u:s3cret@h/d?a%3D1 sslcert=x":           `is not for an entry`,
			"host=h user=u dbname=d password=x servicefile=/s":  `option "servicefile"`,
			"host=h user=u dbname=d sslmode=allow":              "sslmode falls back to plain text",
			"host=h user=u dbname=d sslmode=''":                 "sslmode falls back to plain text",
			"host=h user=u dbname=d password=s3cret x-s3cret=1": "option \"(not shown: it may be a secret)\"",
			"POSTGRES://u:s3cret@h/d?sslmode=disable":           "not shown",
			`host=h user=u dbname=d password='`:                 "cannot be read",
			"postgres://u:s3cret@/d":                            "names no host",
			"user=u dbname=d":                                   "names no host",
			"host=h,/run user=u dbname=d":                       "names no host, or a socket",
			`host=C:\\\\run user=u dbname=d`:                    "names no host, or a socket",
			"postgres://h/d":                                    "names no user",
			"host=h user= dbname=d":                             "names no user",
			"postgres://u:s3cret@h":                             "no database",
			"postgres://u:s3cret@h:1,i:2/d":                     "has several hosts",
			"postgres://u:s3cret@h,i/d":                         "has several hosts: write host=a,b",
		},
		outbox.MySQL: {
			"u:s3cret@tcp(h)/d?strict=true":                       `option "strict"`,
			"u:s3cret@tcp(h)/d?allowAllFiles=true&tls=true":       `option "allowAllFiles"`,
			"u:s3cret@tcp(h)/d?tls=true&allowCleartextPasswords=": `option "allowCleartextPasswords"`,
			"u:s3cret@tcp(h)/d?sql_log_bin=(SELECT 1)":            `option "sql_log_bin"`,
			"u:s3cret@tcp(h)/d?tls=preferred":                     "tls falls back to plain text",
			"u:s3cret@tcp(h)/d?tls=s3cret":                        "tls is true, or false for plain text",
			"u:s3cret@unix(/run/mysqld.sock)/d":                   "is not for TCP",
			"u:s3cret@tcp(h)":                                     "cannot be read",
		},
		outbox.SQLServer: {
			"sqlserver://u:s3cret@h?certificate=/a.pem": `option "certificate"`,
			"sqlserver://u:s3cret@h?FailoverPartner=x":  `option "FailoverPartner"`,
			"sqlserver://u:s3cret@h?encrypt=":           "cannot be read",
			"sqlserver://h?database=d":                  "use sqlserver://user:password@host",
			"server=h;user id=u;password=s3cret":        "use sqlserver://user:password@host",
		},
		outbox.SQLite: {
			"file:/a.db?vfs=x":              "use a path alone",
			"/a.db?_pragma=foreign_keys(1)": "use a path alone",
		},
	} {
		for dsn, says := range dsns {
			_, err := listedInAFile(t, driver, dsn)
			require.ErrorContains(t, err, `tenant "acme": dsn: `, dsn)
			require.ErrorContains(t, err, says, dsn)
			assert.NotContains(t, err.Error(), "s3cret")
		}
	}
}

// Without a word about it an entry has TLS with a certificate that is checked, and nothing of the
// environment.
func TestHeldDSNs(t *testing.T) { //nolint:paralleltest // it sets the environment
	for _, name := range []string{"PGPASSWORD", "PGUSER", "PGHOST", "PGDATABASE", "PGSSLCERT", "PGSSLKEY", "PGSSLROOTCERT", "PGAPPNAME", "PGREQUIREAUTH", "PGOPTIONS"} {
		t.Setenv(name, map[bool]string{true: "md5", false: "/inherited"}[name == "PGREQUIREAUTH"])
	}
	t.Setenv("PGPORT", "7")
	for dsn, password := range map[string]string{
		"postgres://u@h/d": "", "postgresql://u:a%27%5C%20b@h/d?sslmode=verify-full": `a'\ b`, "host=h user=u dbname=d": "", "postgres://h/?user=u&dbname=d&port=5432": "",
	} {
		held, err := listedInAFile(t, outbox.Postgres, dsn)
		require.NoError(t, err, dsn)
		cfg, err := pgxpool.ParseConfig(held.DSN.Reveal())
		require.NoError(t, err)
		at := cfg.ConnConfig
		assert.Equal(t, []any{"h", uint16(5432), "u", password, "d", ""}, []any{at.Host, at.Port, at.User, at.Password, at.Database, at.RequireAuth})
		assert.Equal(t, map[string]string{"application_name": "fanout", "options": ""}, at.RuntimeParams)
		assert.Empty(t, at.Fallbacks)
		assert.Equal(t, "h", at.TLSConfig.ServerName)
		assert.False(t, at.TLSConfig.InsecureSkipVerify)
		assert.Empty(t, at.TLSConfig.Certificates)
		assert.Nil(t, at.TLSConfig.RootCAs)
	}
	for dsn, verifies := range map[string]bool{"u@tcp(h)/d": true, "u@tcp(h)/d?": true, "u@tcp(h)/d?parseTime=true&tls=": true, "u@tcp(h)/d?tls=skip-verify": false} {
		held, err := listedInAFile(t, outbox.MySQL, dsn)
		require.NoError(t, err, dsn)
		cfg, err := sqlmysql.ParseDSN(held.DSN.Reveal())
		require.NoError(t, err)
		assert.Equal(t, !verifies, cfg.TLS.InsecureSkipVerify, dsn)
		assert.False(t, cfg.AllowFallbackToPlaintext)
	}
	for dsn, verifies := range map[string]bool{"sqlserver://u:p@h?database=d": true, "sqlserver://u:p@h?TrustServerCertificate=true": false} {
		held, err := listedInAFile(t, outbox.SQLServer, dsn)
		require.NoError(t, err, dsn)
		cfg, err := msdsn.Parse(held.DSN.Reveal())
		require.NoError(t, err)
		assert.Equal(t, msdsn.Encryption(msdsn.EncryptionRequired), cfg.Encryption)
		assert.Equal(t, !verifies, cfg.TLSConfig.InsecureSkipVerify, dsn)
	}
	t.Setenv("PGSERVICE", "other")
	_, err := listedInAFile(t, outbox.Postgres, "postgres://u@h/d")
	assert.ErrorContains(t, err, "PGSERVICE is set")
}

// What an entry may say reaches its server.
func TestServedDSNs(t *testing.T) {
	t.Parallel()
	for driver, dsn := range map[outbox.Dialect]string{outbox.Postgres: testenv.Postgres(t), outbox.MySQL: testenv.MySQL(t) + "?tls=false&parseTime=true"} {
		held, err := listedInAFile(t, driver, dsn)
		require.NoError(t, err)
		migrated(t, map[string]config.Database{"acme": held})
	}
}
