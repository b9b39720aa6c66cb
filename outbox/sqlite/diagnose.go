package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/outbox/admin"
)

// oldestVersion of SQLite that knows all that the store's SQL uses.
const oldestVersion = "3.38.0"

// Diagnose implements admin.Administration. It looks at one connection of the pool: the others are
// set up by the same DSN.
func (s *Store) Diagnose(ctx context.Context) (admin.Diagnosis, error) {
	var (
		d     admin.Diagnosis
		found settings
	)
	before := s.now()
	err := s.read(ctx, func(rows *sql.Rows) error {
		var millis int64
		err := rows.Scan(&found.version, &found.file, &found.journal, &found.synchronous, &found.timeout, &found.queryOnly, &millis)
		d.Clock(before, time.UnixMilli(millis), s.now())
		return err
	}, s.sql.diagnose)
	if err == nil {
		found.judge(&d)
	}
	if err == nil && !found.queryOnly {
		err = s.tryToWrite(ctx, &d)
	}
	if err != nil {
		return d, fmt.Errorf("sqlite: diagnose %s: %w", s.table, err)
	}
	return d, nil
}

// settings is what sql/diagnose.sql tells.
type settings struct {
	version, journal     string
	file                 sql.NullString
	synchronous, timeout int
	queryOnly            bool
}

func (f *settings) judge(d *admin.Diagnosis) {
	d.Server = "SQLite " + f.version
	d.Set("journal_mode", f.journal)
	d.Set("synchronous", strconv.Itoa(f.synchronous))
	d.Set("busy_timeout", strconv.Itoa(f.timeout))
	if olderThan(f.version, oldestVersion) {
		d.Refuse("version", d.Server+" is too old: "+oldestVersion+" is the oldest that works")
	}
	if f.queryOnly {
		d.Refuse("read-only", "query_only is on, so nothing can be claimed: leave it out of the DSN")
	}
	if f.file.String == "" { // in memory it belongs to one connection, and to none after a crash
		return
	}
	if f.journal != "wal" {
		d.Warn("journal mode", fmt.Sprintf("journal_mode is %s: readers and the writer wait for each other; set it to WAL, "+
			"in the DSN with _pragma=journal_mode(WAL) for the pure Go driver", f.journal))
	}
	if f.timeout == 0 {
		d.Warn("busy timeout", "busy_timeout is 0: whoever meets another writer fails at once with \"database is locked\"; set it for all who write, "+
			"in the DSN with _pragma=busy_timeout(10000) for the pure Go driver")
	}
	if f.synchronous == 0 {
		d.Warn("durability", "synchronous is OFF: a crash of the machine can corrupt the database, and the outbox with it; set it to NORMAL or FULL")
	}
}

// tryToWrite asks whether this process may write at all. The lock alone does not tell: on a
// read-only database SQLite makes BEGIN IMMEDIATE a transaction that reads. That another process
// has the lock is no finding, and it is not waited for longer than the connection does by itself.
func (s *Store) tryToWrite(ctx context.Context, d *admin.Diagnosis) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close() // it goes back into the pool
	defer rollback(ctx, conn)
	_, err = conn.ExecContext(ctx, "BEGIN IMMEDIATE")
	if err == nil {
		_, err = conn.ExecContext(ctx, "CREATE TABLE fanout_tries_to_write (n INTEGER)")
	}
	switch {
	case err == nil || isBusy(err):
		return nil
	case strings.Contains(err.Error(), "readonly"):
		d.Refuse("read-only", "the database is read-only, so nothing can be claimed: let this process write to the file and its folder, and leave mode=ro out of the DSN")
		return nil
	default:
		return err
	}
}

// olderThan compares versions like 3.46.1 number by number.
func olderThan(version, other string) bool {
	a, b := strings.Split(version, "."), strings.Split(other, ".")
	for i := range min(len(a), len(b)) {
		x, errX := strconv.Atoi(a[i])
		y, errY := strconv.Atoi(b[i])
		if errors.Join(errX, errY) != nil || x != y {
			return x < y
		}
	}
	return false
}

// Watch implements driver.Delivery: nothing of this database's is known to come and go.
func (*Store) Watch(context.Context) ([]admin.Finding, error) { return nil, nil }
