package storetest

import (
	"fmt"
	"math"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

// dialect is the little that the suite must say differently from database to database.
type dialect struct {
	// placeholder is the n-th parameter, from 1.
	placeholder func(n int) string
	// minus is a point in time moved into the past.
	minus func(column string, by time.Duration) string
	// fromNow is the time from now to a point in time in microseconds, NULL for NULL.
	fromNow func(column string) string
	// text is a uuid as lower-case text.
	text func(column string) string
	// uuid is the value of a column from a uuid as text; nil where they are the same.
	uuid func(text string) string
	// time is a point in time as a parameter.
	time func(time.Time) any
	// never is when a block wakes that waits for an operator, as a parameter.
	never any
	// no and yes are the literals for a flag.
	no, yes string
	// bytes is the SQL literal of a payload.
	bytes func(ascii string) string
	// refuseWorker makes the database refuse every claim by the worker "refused".
	refuseWorker []string
	// discard makes the database store nothing of an INSERT, and report no error; empty where it
	// cannot.
	discard []string
	// impatient makes a transaction wait for no lock; empty where there are none.
	impatient string
	// session is the number of a session. waiting counts the sessions that wait for a lock of that
	// one, and says which statement others have run last, where the server knows.
	session, waiting string
	// hurried makes a session find a deadlock before those of [Bundle.OpenUnhurried]; empty where
	// the server itself does.
	hurried string
	// passesOver says that claims pass over locked rows.
	passesOver bool
}

func same(s string) string { return s }

// id is a uuid as text, an expression of SQL, as a column's value.
func (d *dialect) id(text string) string {
	if d.uuid == nil {
		return text
	}
	return d.uuid(text)
}

var dialects = map[outbox.Dialect]dialect{
	outbox.Postgres: {
		placeholder: func(n int) string { return fmt.Sprintf("$%d", n) },
		minus: func(column string, by time.Duration) string {
			return fmt.Sprintf("%s + (%d) * interval '1 microsecond'", column, -by.Microseconds())
		},
		fromNow: func(column string) string {
			return "(extract(epoch FROM " + column + " - clock_timestamp()) * 1000000)::bigint"
		},
		text:  func(column string) string { return column + "::text" },
		time:  func(at time.Time) any { return at },
		never: "infinity",
		no:    "false",
		yes:   "true",
		bytes: func(ascii string) string { return "'" + ascii + "'" },
		refuseWorker: []string{
			"CREATE FUNCTION refuse_{f}() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN RAISE 'refused by the test'; END $f$",
			"CREATE TRIGGER refuse BEFORE UPDATE ON {t} FOR EACH ROW WHEN (NEW.locked_by = 'refused') EXECUTE FUNCTION refuse_{f}()",
		},
		discard: []string{
			"CREATE FUNCTION discard_{f}() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN IF NEW.ordering_key = 'lost' THEN RETURN NULL; END IF; RETURN NEW; END $f$",
			"CREATE TRIGGER discard BEFORE INSERT ON {t} FOR EACH ROW EXECUTE FUNCTION discard_{f}()",
		},
		impatient: "SET LOCAL lock_timeout = '1ms'",
		session:   "SELECT pg_backend_pid()",
		waiting:   "SELECT count(*), 0 FROM pg_stat_activity WHERE datname = current_database() AND ?::int = ANY (pg_blocking_pids(pid))",
		hurried:   "SET LOCAL deadlock_timeout = '5s'",
	},
	outbox.SQLite: {
		placeholder: func(int) string { return "?" },
		minus: func(column string, by time.Duration) string {
			return fmt.Sprintf("%s + (%d)", column, -by.Microseconds())
		},
		fromNow: func(column string) string {
			return "(" + column + " - CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER))"
		},
		text:  same,
		time:  func(at time.Time) any { return at.UnixMicro() },
		never: int64(math.MaxInt64),
		no:    "0",
		yes:   "1",
		bytes: func(ascii string) string { return "'" + ascii + "'" },
		refuseWorker: []string{
			"CREATE TRIGGER refuse BEFORE UPDATE ON {t} WHEN NEW.locked_by = 'refused' BEGIN SELECT RAISE(ABORT, 'refused by the test'); END",
		},
		discard: []string{"CREATE TRIGGER discard BEFORE INSERT ON {t} WHEN NEW.ordering_key = 'lost' BEGIN SELECT RAISE(IGNORE); END"},
	},
	outbox.SQLServer: {
		placeholder: func(n int) string { return fmt.Sprintf("@p%d", n) },
		minus: func(column string, by time.Duration) string {
			return fmt.Sprintf("DATEADD(MICROSECOND, %d, DATEADD(SECOND, %d, %s))",
				-by%time.Second/time.Microsecond, -by/time.Second, column)
		},
		fromNow: func(column string) string {
			return "DATEDIFF_BIG(MICROSECOND, SYSUTCDATETIME(), " + column + ")"
		},
		text:  func(column string) string { return "lower(CONVERT(char(36), " + column + "))" },
		time:  func(at time.Time) any { return at.UTC() },
		never: "9999-12-31",
		no:    "0",
		yes:   "1",
		bytes: func(ascii string) string { return "CAST('" + ascii + "' AS varbinary(max))" },
		refuseWorker: []string{
			"CREATE TRIGGER refuse_{f} ON {t} AFTER UPDATE AS IF EXISTS (SELECT 1 FROM inserted WHERE locked_by = N'refused') THROW 50000, N'refused by the test', 1",
		},
		impatient:  "SET LOCK_TIMEOUT 0",
		session:    "SELECT @@SPID",
		waiting:    "SELECT COUNT(*), 0 FROM sys.dm_exec_requests WHERE blocking_session_id = ?",
		passesOver: true,
	},
	outbox.MySQL: {
		placeholder: func(int) string { return "?" },
		minus: func(column string, by time.Duration) string {
			return fmt.Sprintf("%s - INTERVAL %d MICROSECOND", column, by.Microseconds())
		},
		fromNow: func(column string) string {
			return "TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), " + column + ")"
		},
		text: func(column string) string {
			return "LOWER(INSERT(INSERT(INSERT(INSERT(HEX(" + column + "), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-'))"
		},
		uuid:  func(text string) string { return "UNHEX(REPLACE(" + text + ", '-', ''))" },
		time:  func(at time.Time) any { return at.UTC().Format("2006-01-02 15:04:05.000000") },
		never: "9999-12-31",
		no:    "FALSE",
		yes:   "TRUE",
		bytes: func(ascii string) string { return "'" + ascii + "'" },
		refuseWorker: []string{
			"CREATE TRIGGER refuse_{f} BEFORE UPDATE ON {t} FOR EACH ROW BEGIN " +
				"IF NEW.locked_by = 'refused' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused by the test'; END IF; END",
		},
		impatient: "SET SESSION innodb_lock_wait_timeout = 1",
		session:   "SELECT CONNECTION_ID()",
		// On MariaDB sessions give way, and their statements count. On MySQL they wait.
		waiting: "SELECT /*M! (SELECT COUNT(trx_wait_started) FROM information_schema.innodb_trx" +
			" WHERE trx_mysql_thread_id IN (SELECT id FROM information_schema.processlist WHERE db = DATABASE()))," +
			" (SELECT MAX(p.query_id) FROM information_schema.processlist AS p WHERE p.db = DATABASE() AND p.id NOT IN (CONNECTION_ID(), own.id)) */" +
			"/*!50700 (SELECT COUNT(*) FROM performance_schema.data_lock_waits AS w" +
			" JOIN performance_schema.threads AS t ON t.thread_id = w.blocking_thread_id WHERE t.processlist_id = own.id), 0 */ FROM (SELECT ? AS id) AS own",
	},
}
