//go:build unix

package chaos

import (
	"context"
	"crypto/rand"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of PostgreSQL for the rig's own questions
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlserver"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/integration/chaos/worker"
	"github.com/gorm-fanout/fanout/internal/testservers"
	"github.com/gorm-fanout/fanout/outbox"
)

var (
	//go:embed sql/postgres/business.sql
	postgresBusiness string
	//go:embed sql/postgres/watch_not_kept.sql
	postgresWatchNotKept string
	//go:embed sql/postgres/watch.sql
	postgresWatch string
	//go:embed sql/mysql/business.sql
	mysqlBusiness string
	//go:embed sql/mysql/watch_not_kept.sql
	mysqlWatchNotKept string
	//go:embed sql/mysql/watch.sql
	mysqlWatch string
	//go:embed sql/sqlserver/business.sql
	sqlserverBusiness string
	//go:embed sql/sqlserver/watch_not_kept.sql
	sqlserverWatchNotKept string
	//go:embed sql/sqlserver/watch.sql
	sqlserverWatch string
)

// A database is the kind of database that a run is about, and what is different with it.
type database struct {
	driver   string // in the configuration
	variable string // that names a server of the environment
	// Own starts a server. Nil where none can be started: the one of the environment is used.
	own     func(ctx context.Context) (*testservers.Own, error)
	signals map[Kind]syscall.Signal // that end the server, by the faults of it that there are

	business, watch string // tables, and what watches them
	watchNotKept    string // what watches them otherwise, where rows go as they are delivered
	strain          strain

	pool    string // the driver of database/sql
	gorm    func(dsn string) gorm.Dialector
	inside  func(server, name string) string                   // the DSN of one of its databases
	address func(dsn string) string                            // in a DSN
	through func(dsn, address, process string) (string, error) // the DSN for a process, by way of a proxy
	drop    string                                             // a database of that name
	id      string                                             // of a message as text; default: as the driver has it
	// Users are made for the processes where sessions are distinguished by them.
	user string
	// Peaks are the sessions of each process, left how many sessions there are beside one's own.
	peaks, left string
}

var databases = []*database{
	{
		driver: string(outbox.Postgres), variable: testservers.PostgresVariable,
		own: func(ctx context.Context) (*testservers.Own, error) {
			return testservers.OwnPostgres(ctx, "max_wal_size=256MB", "min_wal_size=80MB")
		},
		signals:  map[Kind]syscall.Signal{DatabaseFast: syscall.SIGINT, DatabaseImmediate: syscall.SIGQUIT, DatabaseKill: syscall.SIGKILL},
		business: postgresBusiness, watch: postgresWatch, watchNotKept: postgresWatchNotKept,
		strain: strain{
			lock:   "SELECT id, status FROM outbox_messages WHERE id > $1 AND finished_at IS NULL ORDER BY random() LIMIT $2 FOR UPDATE SKIP LOCKED",
			update: "UPDATE outbox_messages SET headers = headers WHERE id = $1",
			halfSent: `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE $1 || '/%'
				AND xact_start IS NOT NULL AND wait_event = 'ClientRead'`,
		},
		pool: "pgx", gorm: postgres.Open,
		inside: func(server, name string) string {
			return changed(server, func(u *url.URL) { u.Path = "/" + name })
		},
		address: host,
		through: func(dsn, address, _ string) (string, error) { return behind(dsn, address, "connect_timeout=2"), nil },
		drop:    "DROP DATABASE %s WITH (FORCE)",
		peaks:   "SELECT split_part(application_name, '/', 1), count(*) FROM pg_stat_activity WHERE datname = current_database() GROUP BY 1",
		left: `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()`,
	},
	{
		driver: string(outbox.MySQL), variable: testservers.EitherMySQL(),
		own:      func(ctx context.Context) (*testservers.Own, error) { return testservers.OwnMySQL(ctx) },
		signals:  map[Kind]syscall.Signal{DatabaseFast: syscall.SIGTERM, DatabaseKill: syscall.SIGKILL},
		business: mysqlBusiness, watch: mysqlWatch, watchNotKept: mysqlWatchNotKept,
		strain: strain{
			lock:   "SELECT id, status FROM outbox_messages WHERE id > ? AND finished_at IS NULL ORDER BY RAND() LIMIT ? FOR UPDATE SKIP LOCKED",
			update: "UPDATE outbox_messages SET headers = headers WHERE id = ?",
			halfSent: `SELECT count(*) FROM information_schema.innodb_trx AS t JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id
				WHERE p.user = ? AND p.command = 'Sleep' AND t.trx_rows_locked > 0`,
		},
		pool: "mysql", gorm: gormmysql.Open,
		inside: func(server, name string) string {
			before, _, _ := strings.Cut(server, ")/")
			return before + ")/" + name + "?multiStatements=true"
		},
		address: func(dsn string) string {
			_, address, _ := strings.Cut(dsn, "(")
			address, _, _ = strings.Cut(address, ")")
			return address
		},
		through: func(dsn, address, process string) (string, error) {
			settings, err := mysql.ParseDSN(dsn)
			if err != nil {
				return "", err
			}
			settings.Addr, settings.MultiStatements, settings.Timeout = address, false, 2*time.Second
			settings.User, settings.Passwd = process, ""
			return settings.FormatDSN() + "&@chaos_session=%27${" + worker.SessionVariable + "}%27", nil
		},
		drop:  "DROP DATABASE %s",
		user:  "CREATE USER '%s'; GRANT ALL ON %s.* TO '%[1]s'",
		peaks: "SELECT user, count(*) FROM information_schema.processlist WHERE db = DATABASE() GROUP BY 1",
		left:  "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()",
	},
	{
		driver: string(outbox.SQLServer), variable: testservers.SQLServerVariable,
		business: sqlserverBusiness, watch: sqlserverWatch, watchNotKept: sqlserverWatchNotKept,
		pool: "sqlserver", gorm: sqlserver.Open,
		inside: func(server, name string) string {
			return changed(server, func(u *url.URL) {
				query := u.Query()
				query.Set("database", name)
				u.RawQuery = query.Encode()
			})
		},
		address: host,
		through: func(dsn, address, _ string) (string, error) {
			return behind(dsn, address, "dial timeout=2") + "&app+name=${" + worker.SessionVariable + "}", nil
		},
		drop: "ALTER DATABASE %s SET SINGLE_USER WITH ROLLBACK IMMEDIATE; DROP DATABASE %[1]s",
		id:   "CONVERT(char(36), message_id)",
		peaks: `SELECT LEFT(program_name, CHARINDEX('/', program_name + '/') - 1), COUNT(*) FROM sys.dm_exec_sessions
			WHERE database_id = DB_ID() GROUP BY LEFT(program_name, CHARINDEX('/', program_name + '/') - 1)`,
		left: "SELECT COUNT(*) FROM sys.dm_exec_sessions WHERE database_id = DB_ID() AND session_id <> @@SPID",
	},
}

// databaseOf finds a kind of database by its driver.
func databaseOf(driver string) (*database, error) {
	var known []string
	for _, d := range databases {
		if d.driver == driver {
			return d, nil
		}
		known = append(known, d.driver)
	}
	return nil, fmt.Errorf("chaos: there is no database %q; there are %s", driver, strings.Join(known, ", "))
}

// makeDatabase makes a database for the run on a server; tearDown removes it.
func (s *fixture) makeDatabase(ctx context.Context) error {
	kind, server := s.database, s.servers.database.url
	name := "fanout_chaos_" + strings.ToLower(rand.Text()[:8])
	administer := func(statement string) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		pool, err := sql.Open(kind.pool, server)
		if err != nil {
			return err
		}
		_, err = pool.ExecContext(ctx, statement)
		return errors.Join(err, pool.Close())
	}
	if err := administer("CREATE DATABASE " + name); err != nil {
		return fmt.Errorf("chaos: create a database: %w", err)
	}
	s.servers.database.url, s.databaseName = kind.inside(server, name), name
	if !s.servers.database.ours() { // the others end with their server
		s.closers = append(s.closers, func() error { return administer(fmt.Sprintf(kind.drop, name)) })
	}
	return nil
}

// makeUser makes the user of a process, where there is one for each.
func (s *fixture) makeUser(ctx context.Context, process string) error {
	if s.database.user == "" {
		return nil
	}
	return s.ask(ctx, func(ctx context.Context, db *sql.DB) error {
		_, err := db.ExecContext(ctx, fmt.Sprintf(s.database.user, process, s.databaseName))
		return err
	})
}

// ask queries the database over a connection of its own, which no fault of the network hits.
func (s *fixture) ask(ctx context.Context, question func(context.Context, *sql.DB) error) error {
	ctx, cancel := context.WithTimeout(ctx, questionPatience)
	defer cancel()
	db, err := sql.Open(s.database.pool, s.servers.database.url)
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	return errors.Join(question(ctx, db), db.Close())
}

// questionPatience bounds a question, which may be for all that a run has written.
const questionPatience = 30 * time.Second

// batches are the parts of a script that SQL Server's dialect separates, since some statements are
// to be the first of their batch.
func batches(script string) []string { return strings.Split(script, "\nGO\n") }

// each calls f for each row of an answer, which is scanned into targets.
func each(ctx context.Context, db *sql.DB, query string, targets []any, f func() error) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close() // Err tells
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		if err := f(); err != nil {
			return err
		}
	}
	return rows.Err()
}

func changed(text string, change func(*url.URL)) string {
	parsed, err := url.Parse(text)
	if err != nil {
		return text
	}
	change(parsed)
	return parsed.String()
}
