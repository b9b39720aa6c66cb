package sqlserver

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/outbox/admin"
)

const (
	// oldestVersion is SQL Server 2016. Services have versions of their own.
	oldestVersion = 13
	// lastInstalled is the last of the editions that are in use and can be too old.
	lastInstalled = 4
	// oldestLevel is the compatibility level of 2016, which knows OPENJSON.
	oldestLevel = 130
)

// Diagnose implements admin.Administration.
func (s *Store) Diagnose(ctx context.Context) (admin.Diagnosis, error) {
	var d admin.Diagnosis
	err := s.diagnose(ctx, &d)
	if err != nil {
		return d, fmt.Errorf("sqlserver: diagnose %s: %w", s.table, explain(err))
	}
	return d, nil
}

func (s *Store) diagnose(ctx context.Context, d *admin.Diagnosis) error {
	want, err := s.wanted()
	if err != nil {
		return err
	}
	var found settings
	if err := s.query(ctx, s.sql.diagnose, nil, resultSets{"fanout_version": found.scan}); err != nil {
		return err
	}
	found.judge(d)
	before := s.now()
	if err := s.query(ctx, s.sql.clock, nil, resultSets{"fanout_clock": func(rows *sql.Rows) error {
		var clock time.Time
		err := rows.Scan(&clock)
		d.Clock(before, clock, s.now())
		return err
	}}); err != nil {
		return err
	}
	if found.level < oldestLevel { // it does not know what the next batch is written in
		return nil
	}
	var forbidden []string
	err = s.query(ctx, s.sql.rights, tablesArg(want), resultSets{"fanout_forbidden": func(rows *sql.Rows) error {
		var right string
		err := rows.Scan(&right)
		forbidden = append(forbidden, right)
		return err
	}})
	if len(forbidden) > 0 {
		note := d.Warn
		if slices.Contains(forbidden, "DELETE ON "+s.table) { // a relay that delivers would not get rid of rows
			note = d.Refuse
		}
		note("rights", "this user lacks rights that a relay needs: GRANT "+strings.Join(forbidden, ", "))
	}
	return err
}

// settings is what sql/diagnose.sql tells.
type settings struct {
	version, updateability, durability string
	edition, level                     int
	rowVersions                        bool
}

func (f *settings) scan(rows *sql.Rows) error {
	var (
		version, updateability, durability sql.NullString
		edition, level                     sql.NullInt64
		rowVersions                        sql.NullBool
	)
	err := rows.Scan(&version, &edition, &level, &updateability, &rowVersions, &durability)
	*f = settings{
		version: version.String, updateability: updateability.String, durability: durability.String,
		edition: int(edition.Int64), level: int(level.Int64), rowVersions: rowVersions.Bool,
	}
	return err
}

func (f *settings) judge(d *admin.Diagnosis) {
	d.Server = "SQL Server " + f.version
	d.Set("compatibility_level", strconv.Itoa(f.level))
	d.Set("read_committed_snapshot", map[bool]string{true: "on", false: "off"}[f.rowVersions])
	d.Set("delayed_durability", f.durability)
	number, _, _ := strings.Cut(f.version, ".")
	if major, err := strconv.Atoi(number); err == nil && major < oldestVersion && f.edition <= lastInstalled {
		d.Refuse("version", d.Server+" is too old: SQL Server 2016 (13.0) is the oldest that works")
	}
	if f.level < oldestLevel {
		d.Refuse("compatibility level", fmt.Sprintf("the database has compatibility level %d, which does not know OPENJSON: "+
			"ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL = %d, or higher", f.level, oldestLevel))
	}
	if f.updateability == "READ_ONLY" {
		d.Refuse("read-only", errReplica.Error())
	}
	if f.durability == "FORCED" {
		d.Warn("durability", "DELAYED_DURABILITY is FORCED: a crash of the server can undo transactions that were committed just before, and their messages with them; "+
			"set it to ALLOWED, which makes claims cheaper and nothing less durable")
	}
}

// Watch implements driver.Delivery: nothing of this database's is known to come and go.
func (*Store) Watch(context.Context) ([]admin.Finding, error) { return nil, nil }
