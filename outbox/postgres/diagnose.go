package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gorm-fanout/fanout/internal/schemacheck"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// oldestVersion is PostgreSQL 14, in the server's way to number versions.
const oldestVersion = 140000

// Diagnose implements admin.Administration.
func (s *Store) Diagnose(ctx context.Context) (admin.Diagnosis, error) {
	var d admin.Diagnosis
	want, err := s.wanted()
	if err != nil {
		return d, err
	}
	err = s.conn(ctx, func(conn *pgx.Conn) error {
		var found settings
		if err := found.read(ctx, conn, s.sql.diagnose, want); err != nil {
			return err
		}
		found.judge(&d)
		before := s.now()
		var clock time.Time
		err := conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&clock)
		d.Clock(before, clock, s.now())
		return err
	})
	if err != nil {
		return d, fmt.Errorf("postgres: diagnose %s: %w", s.table, err)
	}
	holders, err := s.Watch(ctx)
	d.Findings = append(d.Findings, holders...)
	return d, err
}

// settings are the answers of sql/diagnose.sql.
type settings struct {
	messages                                               string // the table's name
	version                                                string
	number                                                 int
	replica                                                bool
	readOnly, isolation                                    string
	synchronousCommit, fsync, fullPageWrites, autovacuum   string
	unvacuumed, hidden, forbidden, required, hotUnfriendly []string
}

func (f *settings) read(ctx context.Context, conn *pgx.Conn, text string, want schemacheck.Facts) error {
	f.messages = want.Tables()[0]
	return conn.QueryRow(ctx, text, want.Tables(), want.Owned("column "), want.Owned("index ")).Scan(
		&f.version, &f.number, &f.replica, &f.readOnly, &f.isolation, &f.synchronousCommit, &f.fsync, &f.fullPageWrites, &f.autovacuum,
		&f.unvacuumed, &f.hidden, &f.forbidden, &f.required, &f.hotUnfriendly)
}

func (f *settings) judge(d *admin.Diagnosis) {
	d.Server = "PostgreSQL " + f.version
	d.Set("default_transaction_isolation", f.isolation)
	d.Set("default_transaction_read_only", f.readOnly)
	d.Set("synchronous_commit", f.synchronousCommit)
	d.Set("fsync", f.fsync)
	d.Set("full_page_writes", f.fullPageWrites)
	d.Set("autovacuum", f.autovacuum)
	if f.number < oldestVersion {
		d.Refuse("version", d.Server+" is too old: PostgreSQL 14 is the oldest that works")
	}
	switch {
	case f.replica:
		d.Refuse("read-only", errReplica.Error())
	case f.readOnly == "on":
		d.Refuse("read-only", "default_transaction_read_only is on, so nothing can be claimed: set it to off for the relay's role, or point the relay at the primary")
	}
	f.judgeServer(d)
	f.judgeTables(d)
}

func (f *settings) judgeServer(d *admin.Diagnosis) {
	if f.isolation != "read committed" {
		d.Warn("isolation", fmt.Sprintf("default_transaction_isolation is %q: the relay sets its own, but transactions of writers "+
			"that do not can lose against each other at their commit (SQLSTATE 40001); set it to \"read committed\", or run them with uow.WithRetry", f.isolation))
	}
	if f.synchronousCommit == "off" {
		d.Warn("durability", "synchronous_commit is off: a crash of the server can undo transactions that were committed just before, and their messages with them; "+
			"set it to on for the roles that write")
	}
	for _, setting := range []admin.Setting{{Name: "fsync", Value: f.fsync}, {Name: "full_page_writes", Value: f.fullPageWrites}} {
		if setting.Value == "off" {
			d.Warn("durability", setting.Name+" is off: a crash of the machine can corrupt the database, and the outbox with it; set it to on")
		}
	}
	if f.autovacuum != "on" {
		d.Warn("autovacuum", "autovacuum is off on this server: the outbox is rewritten all the time, and claims get slower and slower; set it to on")
	}
}

func (f *settings) judgeTables(d *admin.Diagnosis) {
	for _, table := range f.unvacuumed {
		d.Warn("autovacuum", fmt.Sprintf("autovacuum is off for %s, so claims get slower and slower: ALTER TABLE %s RESET (autovacuum_enabled)", table, table))
	}
	for _, table := range f.hidden {
		d.Warn("row security", fmt.Sprintf("row level security is active on %s: what its policies hide from this role is never delivered; "+
			"give the role BYPASSRLS or a policy that shows it all rows", table))
	}
	if len(f.forbidden) > 0 {
		note := d.Warn
		if slices.Contains(f.forbidden, "DELETE ON "+f.messages) { // a relay that delivers would not get rid of rows
			note = d.Refuse
		}
		note("rights", "this role lacks rights that a relay needs: GRANT "+strings.Join(f.forbidden, ", "))
	}
	for _, column := range f.required {
		d.Warn("column", fmt.Sprintf("column %s is not ours, may not be NULL and has no default, so no message can be written: give it a default", column))
	}
	for _, index := range f.hotUnfriendly {
		d.Warn("index", fmt.Sprintf("index %s is not ours and names a column that every claim changes, so claims are no HOT updates and write to all indexes: "+
			"drop it, and look at rows by the indexes that are there", index))
	}
}
