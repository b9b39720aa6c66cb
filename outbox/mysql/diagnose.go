package mysql

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/outbox/admin"
)

// The oldest servers that work, as major, minor and patch.
var (
	oldestMySQL   = [3]int{8, 0, 22}
	oldestMariaDB = [3]int{10, 6, 0}
)

// smallPacket is the packet below which a message of a usual size may not be written.
const smallPacket = 16 << 20

// longIdle is the patience with silent sessions above which one that was cut off holds up a shard for
// too long.
const longIdle = time.Minute

// Diagnose implements admin.Administration.
func (s *Store) Diagnose(ctx context.Context) (admin.Diagnosis, error) {
	var d admin.Diagnosis
	found := map[string]string{}
	var err error
	for _, statement := range []string{"settings", "settings_global"} {
		err = errors.Join(err, s.query(ctx, s.db, statement, nil, func(scan scanner) error {
			var name, value string
			err := scan(&name, &value)
			found[strings.ToLower(name)] = value
			return err
		}))
	}
	if err == nil {
		judge(&d, found)
		err = s.readClock(ctx, &d)
	}
	if err == nil {
		err = s.readRight(ctx, &d)
	}
	if denied := s.query(ctx, s.db, "rights", nil, func(scanner) error { return nil }); numbered(denied, 1142) {
		d.Refuse("rights", "this user may not remove rows: GRANT DELETE ON "+s.table)
	}
	if err != nil {
		return d, fmt.Errorf("mysql: diagnose %s: %w", s.table, explain(err))
	}
	return d, nil
}

func (s *Store) readClock(ctx context.Context, d *admin.Diagnosis) error {
	before := s.now()
	clock, err := s.list(ctx, s.db, "clock", nil)
	if err == nil {
		d.Clock(before, time.UnixMicro(clock[0]).UTC(), s.now())
	}
	return err
}

// readRight notes whether the role may see other sessions, without which claims have no low-water marks.
func (s *Store) readRight(ctx context.Context, d *admin.Diagnosis) error {
	_, _, err := s.writers(ctx, s.db)
	if numbered(err, 1227) {
		d.Set("right PROCESS", "no")
		return nil
	}
	d.Set("right PROCESS", "yes")
	if notUTF8(err) {
		return nil
	}
	return err
}

func judge(d *admin.Diagnosis, found map[string]string) {
	for _, name := range []string{
		"sql_mode", "binlog_format", "log_bin", "sync_binlog", "innodb_flush_log_at_trx_commit", "max_allowed_packet", "time_zone",
		"transaction_isolation", "tx_isolation", "wsrep_on", "wait_timeout",
	} {
		if value, ok := found[name]; ok {
			d.Set(name, value)
		}
	}
	judgeVersion(d, found["version"])
	judgeSession(d, found)
	judgeServer(d, found)
}

// isOn reports whether a setting is switched on.
func isOn(found map[string]string, name string) bool {
	return found[name] == "ON" || found[name] == "1"
}

func judgeSession(d *admin.Diagnosis, found map[string]string) {
	if !isOn(found, "autocommit") {
		d.Refuse("autocommit", "sessions do not commit by themselves: leave autocommit=0 out of the DSN of the relay")
	}
	if charset := found["character_set_client"]; charset != "utf8mb4" {
		d.Refuse("character set", "sessions use "+charset+", in which keys and names can be other ones: set charset=utf8mb4 in the DSN")
	}
	if mode := found["sql_mode"]; !strings.Contains(mode, "STRICT_TRANS_TABLES") && !strings.Contains(mode, "STRICT_ALL_TABLES") {
		d.Warn("sql_mode", "sql_mode is not strict: a text of a writer that is too long is cut without an error; add STRICT_TRANS_TABLES")
	}
	judgeMeaning(d, found)
	if seconds, err := strconv.Atoi(found["wait_timeout"]); err == nil && time.Duration(seconds)*time.Second > longIdle {
		d.Warn("wait_timeout", fmt.Sprintf("sessions may say nothing for %d seconds: what a relay that is stopped in a transaction has locked stays locked for so long; "+
			"set wait_timeout=20 in its DSN", seconds))
	}
}

// judgeMeaning judges settings that change what statements mean. [Open] sets the relay's sessions, unless the DSN does, and
// writers get the server's setting.
func judgeMeaning(d *admin.Diagnosis, found map[string]string) {
	for _, setting := range []struct {
		name string
		odd  func(value string) bool
		does string
	}{
		{"completion_type", func(value string) bool { return value != "" && value != "NO_CHAIN" }, "a commit begins the next transaction, whose locks last, or ends the session"},
		{"sql_select_limit", func(value string) bool { return value != "" && value != noLimit }, "answers end after so many rows"},
		{"sql_mode", func(value string) bool { return strings.Contains(value, "EMPTY_STRING_IS_NULL") }, "an empty text is stored as NULL"},
	} {
		switch session, global := found[setting.name], found["global "+setting.name]; {
		case setting.odd(session):
			d.Refuse(setting.name, fmt.Sprintf("%s is %s in the relay's sessions: %s; leave it out of the DSN", setting.name, session, setting.does))
		case setting.odd(global):
			d.Warn(setting.name, fmt.Sprintf("%s is %s for writers: %s; the relay's sessions set it aside", setting.name, global, setting.does))
		}
	}
}

// noLimit is the default of sql_select_limit.
const noLimit = "18446744073709551615"

func judgeServer(d *admin.Diagnosis, found map[string]string) {
	if isOn(found, "read_only") || isOn(found, "innodb_read_only") {
		d.Refuse("read-only", errReplica.Error())
	}
	if isOn(found, "log_bin") && found["binlog_format"] == "STATEMENT" { // MIXED, MariaDB's default, writes rows where it must
		d.Refuse("binlog_format", "binlog_format is STATEMENT: the server writes nothing under READ COMMITTED then; set ROW, or MIXED")
	}
	if packet, err := strconv.Atoi(found["max_allowed_packet"]); err == nil && packet < smallPacket {
		d.Warn("max_allowed_packet", fmt.Sprintf("max_allowed_packet is %d bytes: writers fail with messages of about half of that; raise it to 64 MiB", packet))
	}
	if flush := found["innodb_flush_log_at_trx_commit"]; flush != "" && flush != "1" {
		d.Warn("durability", "innodb_flush_log_at_trx_commit is "+flush+": a crash of the server can undo what was committed in the last second, and its messages with it")
	}
	if isOn(found, "wsrep_on") || found["group_replication_single_primary_mode"] == "OFF" {
		d.Warn("cluster", "several nodes take writes, and row locks are those of one node: let all relays and the purge use the same node")
	}
}

// judgeVersion reads versions such as 8.4.3 and 10.11.6-MariaDB-1.
func judgeVersion(d *admin.Diagnosis, version string) {
	product, oldest := "MySQL", oldestMySQL
	if strings.Contains(version, "MariaDB") {
		product, oldest = "MariaDB", oldestMariaDB
		version = strings.TrimPrefix(version, "5.5.5-") // which some versions put in front for old clients
	}
	d.Server = product + " " + version
	number, _, _ := strings.Cut(version, "-")
	for i, part := range strings.SplitN(number, ".", len(oldest)) {
		n, err := strconv.Atoi(part)
		if err != nil || n > oldest[i] {
			return
		}
		if n < oldest[i] {
			d.Refuse("version", fmt.Sprintf("%s is too old: %s %d.%d.%d is the oldest that works", d.Server, product, oldest[0], oldest[1], oldest[2]))
			return
		}
	}
}
