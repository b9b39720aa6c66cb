package storetest

import (
	"strings"

	"github.com/gorm-fanout/fanout/outbox"
)

// A spoil is one way to make a schema wrong by hand.
type spoil struct {
	// statements that do it; the table is a fresh one, and each spoil comes after those before it.
	statements []string
	// fails is true when the last statement is meant to fail, and what it leaves behind is the
	// point.
	fails bool
	// wants are the beginnings of the differences that a check then finds beyond those before. Without any,
	// the spoil is harmless.
	wants []string
}

// spoils in the order in which they are done to one table.
var spoils = map[outbox.Dialect][]spoil{
	outbox.Postgres: {
		{statements: []string{
			"ALTER TABLE {t} ADD COLUMN note text NOT NULL DEFAULT ''", "CREATE INDEX note_{f} ON {t} (status, note)",
			"ALTER TABLE {t} ADD CONSTRAINT note_{f} CHECK (note <> 'bad')", "CREATE TABLE {t}_notes (note text)",
			"ALTER TABLE {t} SET (fillfactor = 90)", "ALTER INDEX {t}_open SET (fillfactor = 80)",
		}},
		{statements: []string{"ALTER TABLE {t} DROP CONSTRAINT {t}_ordering_key"}, wants: []string{"constraint {t}_ordering_key: missing"}},
		{statements: []string{"ALTER TABLE {t} DROP COLUMN locked_by"}, wants: []string{"column locked_by: missing", "constraint {t}_bounds: missing"}},
		{statements: []string{"ALTER TABLE {t} ALTER COLUMN attempts TYPE bigint"}, wants: []string{"column attempts: type is bigint, want integer"}},
		{statements: []string{"ALTER TABLE {t} ALTER COLUMN stream DROP NOT NULL"}, wants: []string{"column stream: nullable is yes, want no"}},
		{statements: []string{"ALTER TABLE {t} ALTER COLUMN headers SET NOT NULL"}, wants: []string{"column headers: nullable is no, want yes"}},
		{statements: []string{"ALTER TABLE {t} ALTER COLUMN crashes DROP DEFAULT"}, wants: []string{"column crashes: default is none, want 0"}},
		{statements: []string{"ALTER TABLE {t} ALTER COLUMN expires_at SET DEFAULT now()"}, wants: []string{"column expires_at: default is now(), want none"}},
		{statements: []string{"ALTER TABLE {t} ALTER COLUMN id DROP IDENTITY"}, wants: []string{"column id: identity is none, want by default"}},
		{
			statements: []string{
				"CREATE COLLATION blind_{f} (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
				"ALTER TABLE {t} ALTER COLUMN correlation_id TYPE text COLLATE blind_{f}",
			},
			wants: []string{"column correlation_id: collation is blind_{f}, want none"},
		},
		{statements: []string{"DROP INDEX {t}_failing"}, wants: []string{"index {t}_failing: missing"}},
		{
			statements: []string{"DROP INDEX {t}_published", "CREATE INDEX {t}_published ON {t} (published_at DESC, target_broker) WHERE published_at IS NOT NULL"},
			wants:      []string{"index {t}_published: columns is published_at desc, target_broker, want target_broker, published_at"},
		},
		{
			statements: []string{
				"DROP INDEX {t}_blocks_key",
				"CREATE INDEX {t}_blocks_key ON {t}_key_blocks (ordering_key, target_broker, shard) WHERE ordering_key IS NOT NULL",
			},
			wants: []string{"index {t}_blocks_key: unique is no, want yes"},
		},
		{
			statements: []string{
				"DROP INDEX {t}_blocks_wake",
				`INSERT INTO {t}_key_blocks (target_broker, shard, block_id, block_message_id, wake_at, reason)
				 SELECT 'b', 1, n, gen_random_uuid(), 'infinity', 'backoff' FROM generate_series(1, 2) AS n`,
				"CREATE UNIQUE INDEX CONCURRENTLY {t}_blocks_wake ON {t}_key_blocks (target_broker, shard, wake_at)",
			},
			fails: true,
			wants: []string{"index {t}_blocks_wake: unique is yes, want no", "index {t}_blocks_wake: valid is no, want yes"},
		},
		{statements: []string{"ALTER TABLE {t} DROP CONSTRAINT {t}_lease"}, wants: []string{"constraint {t}_lease: missing"}},
		{
			statements: []string{
				"ALTER TABLE {t} DROP CONSTRAINT {t}_status",
				"ALTER TABLE {t} ADD CONSTRAINT {t}_status CHECK (status IN ('pending', 'processing', 'published', 'failed', 'abandoned')) NOT VALID",
			},
			wants: []string{"constraint {t}_status: valid is no, want yes"},
		},
		{
			statements: []string{
				"ALTER TABLE {t} DROP CONSTRAINT {t}_pkey",
				"ALTER TABLE {t} ADD CONSTRAINT {t}_pkey PRIMARY KEY (message_id, target_broker) DEFERRABLE",
			},
			wants: []string{"constraint {t}_pkey: deferrable is yes, want none"},
		},
		{
			statements: []string{"ALTER TABLE {t} ALTER COLUMN shard DROP EXPRESSION"},
			wants:      []string{"column shard: generated is none, want (get_byte(", "column shard: storage is none, want stored"},
		},
		{statements: []string{"ALTER TABLE {t} SET UNLOGGED"}, wants: []string{"table {t}: kind is unlogged table, want table"}},
	},
	outbox.SQLite: {
		{statements: []string{
			"ALTER TABLE {t} ADD COLUMN note TEXT NOT NULL DEFAULT '' CHECK (note <> 'bad')", "CREATE INDEX note_{f} ON {t} (status, note)",
			"CREATE TABLE {t}_notes (note TEXT)",
		}},
		{statements: []string{"ALTER TABLE {t} DROP COLUMN isolated"}, wants: []string{"column isolated: missing"}},
		{statements: []string{reword("attempts          INTEGER", "attempts TEXT")}, wants: []string{"column attempts: type is TEXT, want INTEGER"}},
		{statements: []string{reword("stream            TEXT    NOT NULL", "stream TEXT")}, wants: []string{"column stream: nullable is yes, want no"}},
		{
			statements: []string{reword("crashes           INTEGER NOT NULL DEFAULT 0", "crashes INTEGER NOT NULL")},
			wants:      []string{"column crashes: default is none, want 0"},
		},
		{statements: []string{reword(" AUTOINCREMENT", "")}, wants: []string{"column id: autoincrement is none, want yes"}},
		{statements: []string{reword(" COLLATE NOCASE", " /* COLLATE NOCASE */")}, wants: []string{"column message_id: collation is none, want NOCASE"}},
		{statements: []string{reword("CONSTRAINT {t}_lease CHECK", "CHECK")}, wants: []string{"constraint {t}_lease: missing"}},
		{
			statements: []string{reword("UNIQUE (message_id, target_broker)", "UNIQUE (target_broker, message_id)")},
			wants:      []string{"constraint {t}_once: unique is target_broker, message_id, want message_id, target_broker"},
		},
		{statements: []string{"DROP INDEX {t}_deferred"}, wants: []string{"index {t}_deferred: missing"}},
		{
			statements: []string{"DROP INDEX {t}_open", "CREATE INDEX {t}_open ON {t} (target_broker, id) WHERE finished_at IS NULL AND deferred = 0 AND available_at IS NULL"},
			wants:      []string{"index {t}_open: columns is target_broker, id, want target_broker, shard, id"},
		},
		{
			statements: []string{"DROP INDEX {t}_finished", "CREATE INDEX {t}_finished ON {t} (target_broker, status, finished_at)"},
			wants:      []string{"index {t}_finished: predicate is none, want finished_at IS NOT NULL"},
		},
		{
			statements: []string{"DROP INDEX {t}_blocks_key", "CREATE INDEX {t}_blocks_key ON {t}_key_blocks (target_broker, ordering_key, shard)"},
			wants:      []string{"index {t}_blocks_key: unique is no, want yes"},
		},
	},
	outbox.SQLServer: {
		{statements: []string{
			"ALTER TABLE {t} ADD note nvarchar(10) NOT NULL CONSTRAINT note_{f} DEFAULT N''", "CREATE INDEX note_{f} ON {t} (status, note)",
			"ALTER TABLE {t} ADD CONSTRAINT good_note_{f} CHECK (note <> N'bad')",
		}},
		{statements: []string{"ALTER TABLE {t} DROP COLUMN locked_by"}, wants: []string{"column locked_by: missing"}},
		{
			statements: []string{"ALTER TABLE {t} DROP CONSTRAINT {t}_ordering_key"},
			wants:      []string{"constraint {t}_ordering_key: missing"},
		},
		{statements: []string{"ALTER TABLE {t} ALTER COLUMN headers nvarchar(100) NULL"}, wants: []string{"column headers: type is nvarchar(100), want nvarchar(max)"}},
		{
			statements: []string{"ALTER TABLE {t} ALTER COLUMN stream nvarchar(512) COLLATE Latin1_General_100_BIN2 NULL"},
			wants:      []string{"column stream: nullable is yes, want no"},
		},
		{
			statements: []string{"ALTER TABLE {t} ALTER COLUMN correlation_id nvarchar(512) COLLATE Latin1_General_100_CI_AS NULL"},
			wants:      []string{"column correlation_id: collation is Latin1_General_100_CI_AS, want Latin1_General_100_BIN2"},
		},
		{statements: []string{"ALTER TABLE {t} DROP CONSTRAINT {t}_default_crashes"}, wants: []string{"column crashes: default is none, want 0"}},
		{statements: []string{"ALTER TABLE {t} ADD CONSTRAINT more_{f} DEFAULT N'none' FOR last_error"}, wants: []string{"column last_error: default is "}},
		{
			statements: []string{"DROP INDEX {t}_finished ON {t}", "CREATE INDEX {t}_finished ON {t} (target_broker, finished_at) WHERE finished_at IS NOT NULL"},
			wants:      []string{"index {t}_finished: columns is target_broker, finished_at, want target_broker, status, finished_at"},
		},
		{
			statements: []string{
				"DROP INDEX {t}_blocks_key ON {t}_key_blocks",
				"CREATE INDEX {t}_blocks_key ON {t}_key_blocks (target_broker, key_hash, shard) WHERE ordering_key IS NOT NULL",
			},
			wants: []string{"index {t}_blocks_key: unique is no, want yes"},
		},
		{statements: []string{"ALTER INDEX {t}_blocks_wake ON {t}_key_blocks DISABLE"}, wants: []string{"index {t}_blocks_wake: enabled is no, want yes"}},
		{statements: []string{"DROP INDEX {t}_deferred ON {t}"}, wants: []string{"index {t}_deferred: missing"}},
		{statements: []string{"ALTER TABLE {t} DROP CONSTRAINT {t}_lease"}, wants: []string{"constraint {t}_lease: missing"}},
		{
			statements: []string{"ALTER TABLE {t} NOCHECK CONSTRAINT {t}_status"},
			wants:      []string{"constraint {t}_status: enabled is no, want yes", "constraint {t}_status: trusted is no, want yes"},
		},
	},
	outbox.MySQL: {
		{statements: []string{
			"ALTER TABLE {t} ADD note varchar(10) NOT NULL DEFAULT ''", "CREATE INDEX note_{f} ON {t} (status, note)",
			"ALTER TABLE {t} ADD CONSTRAINT good_note_{f} CHECK (note <> 'bad')",
		}},
		{
			statements: []string{"ALTER TABLE {t} DROP CONSTRAINT {t}_bounds", "ALTER TABLE {t} DROP COLUMN broker_message_id"},
			wants:      []string{"constraint {t}_bounds: missing", "column broker_message_id: missing"},
		},
		{statements: []string{"ALTER TABLE {t} DROP CONSTRAINT {t}_ordering_key"}, wants: []string{"constraint {t}_ordering_key: missing"}},
		{statements: []string{"ALTER TABLE {t} MODIFY headers text"}, wants: []string{"column headers: type is text, want mediumtext"}},
		{statements: []string{"ALTER TABLE {t} MODIFY stream varchar(512) NULL"}, wants: []string{"column stream: nullable is yes, want no"}},
		{
			statements: []string{"ALTER TABLE {t} MODIFY correlation_id varchar(512) COLLATE utf8mb4_general_ci"},
			wants:      []string{"column correlation_id: collation is utf8mb4_general_ci, want utf8mb4_bin"},
		},
		{statements: []string{"ALTER TABLE {t} ALTER COLUMN crashes DROP DEFAULT"}, wants: []string{"column crashes: default is none, want 0"}},
		{statements: []string{"ALTER TABLE {t} ALTER COLUMN locked_by SET DEFAULT 'me'"}, wants: []string{"column locked_by: default is 'me', want none"}},
		{
			statements: []string{"DROP INDEX {t}_queue ON {t}", "CREATE INDEX {t}_queue ON {t} (target_broker, queue, id)"},
			wants:      []string{"index {t}_queue: columns is target_broker, queue, id, want target_broker, queue, finished_at, id"},
		},
		{statements: []string{"DROP INDEX {t}_held ON {t}"}, wants: []string{"index {t}_held: missing"}},
		{
			statements: []string{"DROP INDEX {t}_blocks_key ON {t}_key_blocks", "CREATE INDEX {t}_blocks_key ON {t}_key_blocks (key_hash, target_broker, shard)"},
			wants:      []string{"index {t}_blocks_key: unique is no, want yes"},
		},
		{statements: []string{"ALTER TABLE {t}_pauses ENGINE = MyISAM"}, wants: []string{"table {t}_pauses: engine is MyISAM, want InnoDB"}},
		{statements: []string{"DELETE FROM {t}_key_slots WHERE slot = 7"}, wants: []string{"table {t}_key_slots: number of rows is 1023, want 1024"}},
	},
}

// rewordings change an expression each, which a relay does not compare and "fanout validate" does.
var rewordings = map[outbox.Dialect][]spoil{
	outbox.Postgres: {
		{statements: []string{"ALTER TABLE {t} ALTER COLUMN status SET DEFAULT 'failed'"}, wants: []string{"column status: default is 'failed'::text, want 'pending'::text"}},
		{
			statements: []string{"ALTER TABLE {t} DROP CONSTRAINT {t}_lease", "ALTER TABLE {t} ADD CONSTRAINT {t}_lease CHECK (status <> '')"},
			wants:      []string{"constraint {t}_lease: check is (status <> ''::text), want ((status <> 'processing'::text) OR "},
		},
		{
			statements: []string{"DROP INDEX {t}_failing", "CREATE INDEX {t}_failing ON {t} (target_broker, id) WHERE last_error IS NOT NULL"},
			wants:      []string{"index {t}_failing: predicate is (last_error IS NOT NULL), want ((last_error IS NOT NULL) AND (finished_at IS NULL))"},
		},
	},
	outbox.SQLite: {
		{statements: []string{reword("DEFAULT 'pending'", "DEFAULT 'failed'")}, wants: []string{"column status: default is 'failed', want 'pending'"}},
		{statements: []string{reword("BETWEEN 1 AND 512", "BETWEEN 0 AND 512")}, wants: []string{"constraint {t}_ordering_key: check is length(CAST(ordering_key AS BLOB)) BETWEEN 0 AND 512, want "}},
		{statements: []string{reword("priority > 0", "priority > 1")}, wants: []string{"column shard: generated is CASE WHEN priority < 0 THEN 1 WHEN priority > 1 "}},
		{
			statements: []string{"DROP INDEX {t}_failing", "CREATE INDEX {t}_failing ON {t} (target_broker, id) WHERE last_error IS NOT NULL"},
			wants:      []string{"index {t}_failing: predicate is last_error IS NOT NULL, want "},
		},
	},
	outbox.SQLServer: {
		{
			statements: []string{"ALTER TABLE {t} DROP CONSTRAINT {t}_lease", "ALTER TABLE {t} ADD CONSTRAINT {t}_lease CHECK (status <> N'')"},
			wants:      []string{"constraint {t}_lease: check is ([status]<>N''), want "},
		},
		{
			statements: []string{"DROP INDEX {t}_failing ON {t}", "CREATE INDEX {t}_failing ON {t} (target_broker, id) WHERE last_error IS NOT NULL"},
			wants:      []string{"index {t}_failing: predicate is ([last_error] IS NOT NULL), want "},
		},
	},
	outbox.MySQL: {
		{statements: []string{"ALTER TABLE {t} ALTER COLUMN status SET DEFAULT 'Pending'"}, wants: []string{"column status: default is 'Pending', want 'pending'"}},
		{
			statements: []string{"ALTER TABLE {t} DROP CONSTRAINT {t}_lease", "ALTER TABLE {t} ADD CONSTRAINT {t}_lease CHECK (status <> '')"},
			wants:      []string{"constraint {t}_lease: check is "},
		},
		{
			statements: []string{
				"ALTER TABLE {t} DROP INDEX {t}_failing", "ALTER TABLE {t} DROP COLUMN failing",
				"ALTER TABLE {t} ADD failing tinyint GENERATED ALWAYS AS (CASE WHEN finished_at IS NULL THEN 1 END) STORED",
				"CREATE INDEX {t}_failing ON {t} (failing, target_broker, id)",
			},
			wants: []string{"column failing: generated is "},
		},
	},
}

// reword changes the text by which SQLite knows a table, in one statement because the permission is
// the connection's.
func reword(old, text string) string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	return "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, " + quote(old) + ", " + quote(text) +
		") WHERE name = '{t}'; CREATE TABLE reread (x); DROP TABLE reread; PRAGMA writable_schema = RESET"
}
