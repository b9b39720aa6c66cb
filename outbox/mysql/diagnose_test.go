package mysql

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// What a server or a session must have is named, with what to do about it.
func TestJudge(t *testing.T) {
	t.Parallel()
	good := map[string]string{
		"version": "8.4.3", "sql_mode": "STRICT_TRANS_TABLES,NO_ZERO_DATE", "autocommit": "ON", "character_set_client": "utf8mb4", "log_bin": "ON",
		"binlog_format": "ROW", "max_allowed_packet": "67108864", "read_only": "OFF", "innodb_flush_log_at_trx_commit": "1", "wsrep_on": "OFF", "wait_timeout": "20",
	}
	for _, c := range []struct {
		name, value   string
		refused, warn string
	}{
		{name: "version", value: "8.0.22"},
		{name: "version", value: "9.1.0-log"},
		{name: "version", value: "10.6.0-MariaDB"},
		{name: "version", value: "5.5.5-10.11.6-MariaDB-1:10.11.6"},
		{name: "version", value: "11.4.2-MariaDB-ubu2404"},
		{name: "version", value: "8.0.20", refused: "MySQL 8.0.20 is too old"},
		{name: "version", value: "5.7.44-log", refused: "MySQL 8.0.22 is the oldest"},
		{name: "version", value: "10.5.26-MariaDB", refused: "MariaDB 10.6.0 is the oldest"},
		{name: "read_only", value: "ON", refused: "point the relay at the primary"},
		{name: "autocommit", value: "OFF", refused: "autocommit"},
		{name: "character_set_client", value: "latin1", refused: "charset=utf8mb4"},
		{name: "binlog_format", value: "MIXED"},
		{name: "binlog_format", value: "STATEMENT", refused: "set ROW, or MIXED"},
		{name: "sql_mode", value: "ANSI", warn: "STRICT_TRANS_TABLES"},
		{name: "max_allowed_packet", value: "4194304", warn: "max_allowed_packet"},
		{name: "innodb_flush_log_at_trx_commit", value: "2", warn: "last second"},
		{name: "wait_timeout", value: "60"},
		{name: "wait_timeout", value: "28800", warn: "wait_timeout=20"},
		{name: "wsrep_on", value: "ON", warn: "same node"},
		{name: "completion_type", value: "CHAIN", refused: "leave it out of the DSN"},
		{name: "global completion_type", value: "CHAIN", warn: "begins the next transaction"},
		{name: "sql_select_limit", value: "5", refused: "leave it out of the DSN"},
		{name: "global sql_select_limit", value: "5", warn: "answers end after so many rows"},
		{name: "global sql_select_limit", value: "18446744073709551615"},
		{name: "sql_mode", value: "STRICT_TRANS_TABLES,EMPTY_STRING_IS_NULL", refused: "leave it out of the DSN"},
		{name: "global sql_mode", value: "EMPTY_STRING_IS_NULL", warn: "stored as NULL"},
	} {
		found := maps.Clone(good)
		found[c.name] = c.value
		var d admin.Diagnosis
		judge(&d, found)
		switch {
		case c.refused != "":
			require.ErrorContains(t, d.Err(), c.refused, "%s = %s", c.name, c.value)
		case c.warn != "":
			require.NoError(t, d.Err())
			require.Len(t, d.Warnings(), 1, "%s = %s", c.name, c.value)
			assert.Contains(t, d.Warnings()[0].Message, c.warn)
		default:
			assert.Empty(t, d.Findings, "%s = %s", c.name, c.value)
		}
	}
}

// A session that the application has made useless is refused before a relay starts.
func TestDiagnoseSessions(t *testing.T) {
	t.Parallel()
	dsn := testenv.MySQL(t)
	for parameters, want := range map[string]string{"autocommit=0": "autocommit", "charset=latin1": "utf8mb4"} {
		d, err := newStore(t, openDB(t, with(dsn, parameters)), "").Diagnose(t.Context())
		require.NoError(t, err)
		require.ErrorContains(t, d.Err(), want)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"mysql://user:hush@host/db":   "user:password@tcp(host:3306)/database",
		"user:hush@tcp(127.0.0.1:1)":  "user:password@tcp(host:3306)/database",
		"user:hush@tcp(127.0.0.1:1)/": "cannot reach the database at 127.0.0.1:1",
	} {
		_, err := Open(t.Context(), dsn, "")
		require.ErrorContains(t, err, want, dsn)
		assert.NotContains(t, err.Error(), "hush")
	}
	_, err := Open(t.Context(), "user@tcp(127.0.0.1:1)/db", "no table")
	require.ErrorContains(t, err, "no table")
	_, err = New(nil, "heads") // the name of a part of a statement
	require.ErrorContains(t, err, "also names a part of a statement")
}
