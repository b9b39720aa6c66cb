package outbox

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/gorm-fanout/fanout/internal/dbtable"
)

// keySlots is the number of locks that the ordering keys of one table share. A key's slot is its
// hash modulo this.
//
// The number is fixed because a lock is not free: PostgreSQL keeps the locks of all sessions of a
// server in one table, of 64 x max_connections entries by default, and a transaction with 100,000
// keys would fill it and make others fail. Since a slot is held by one transaction at a time, this
// is also the most that all transactions together hold: a seventh of the default, and little enough
// for a server with 20 connections. Two keys in one slot only wait for each other, for the time of
// an INSERT and a commit; with 50 transactions of one key each at that point, one in 20 meets
// another's slot.
//
// Every writer must agree on it: changing it, or the hash, needs all writers stopped.
// docs/plain-sql.md names both.
const keySlots = 1024

// Both texts take the slots as one parameter, "3,14,159": a text is bound alike by every driver in
// every mode. The table's id sets the locks of tables apart, and is the same however the table's
// name is spelled.
const (
	// The subquery with ORDER BY is not merged into the outer one, and locks are taken as its rows
	// come out; beside FROM unnest(...) alone, SQL would promise no order. A lock of one bigint
	// never meets one of two integers, as the store's are.
	lockKeysPostgres = `SELECT pg_advisory_xact_lock('{{table}}'::regclass::oid::bigint << 32 | slot)
  FROM (SELECT listed::bigint AS slot
          FROM unnest(string_to_array($1, ',')) AS listed
         ORDER BY slot) AS sorted`

	// It waits as long as the session waits for any lock; by default forever, as PostgreSQL does.
	// A deadlock comes back as a number, not as error 1205, which only the server can raise: 51205
	// stands for it, and uow.IsConflict knows it.
	lockKeysSQLServer = `SET NOCOUNT ON;
DECLARE @slot int, @resource nvarchar(255), @patience int = @@LOCK_TIMEOUT, @granted int, @number int, @problem nvarchar(400);
DECLARE @slots TABLE (slot int NOT NULL PRIMARY KEY);
INSERT INTO @slots (slot) SELECT CONVERT(int, value) FROM STRING_SPLIT(@p1, N',');
SET @slot = (SELECT MIN(slot) FROM @slots);
WHILE @slot IS NOT NULL
BEGIN
    SET @resource = CONCAT(N'fanout:', OBJECT_ID(N'{{table}}'), N':key:', @slot);
    EXEC @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = @patience;
    IF @granted < 0
    BEGIN
        SET @problem = CONCAT(N'the lock of ordering keys of {{table}} was not granted: sp_getapplock returned ', @granted,
            CASE @granted WHEN -1 THEN N' (timeout)' WHEN -2 THEN N' (cancelled)' WHEN -3 THEN N' (deadlock victim)' END);
        SET @number = CASE @granted WHEN -3 THEN 51205 ELSE 50122 END;
        THROW @number, @problem, 1;
    END;
    SET @slot = (SELECT MIN(slot) FROM @slots WHERE slot > @slot);
END;`

	// MySQL has no lock of a name that ends with the transaction (those of GET_LOCK do not), so each
	// slot is a row, which is locked and never written: in the order of the list, which ascends,
	// and by primary key, so that no gap is locked. MySQL locks no rows of
	// JSON_TABLE itself, only of a table derived from it.
	lockKeysMySQL = `SELECT COUNT(s.slot)
  FROM (SELECT slot FROM JSON_TABLE(CONCAT('[', ?, ']'), '$[*]' COLUMNS (slot SMALLINT PATH '$')) AS list) AS listed
 STRAIGHT_JOIN {{table}}_key_slots AS s FORCE INDEX (PRIMARY) ON s.slot = listed.slot
   FOR UPDATE`
)

// lockKeysSQL is empty where nothing needs to be locked: SQLite lets one transaction write at a
// time, from its first INSERT to its end.
func (d Dialect) lockKeysSQL(table string) string {
	switch d {
	case Postgres:
		return dbtable.Render(lockKeysPostgres, table)
	case SQLServer:
		return dbtable.Render(lockKeysSQLServer, table)
	case MySQL:
		return dbtable.Render(lockKeysMySQL, table)
	default:
		return ""
	}
}

// LockKeys takes the locks of the ordering keys of rows, and waits for transactions that hold them.
// Call it in the transaction that inserts the rows, right before the insert: the locks last until
// the transaction ends, so that rows of one key get their ids in the order in which their
// transactions commit. See [Routing].SerializeKeys.
//
// It is one statement, whatever the number of rows; none for rows without a key, nor on SQLite,
// whose writers take turns anyway. Locks are always taken in the same order, so that two
// transactions that call it once do not block each other forever. One that calls it several times,
// or goes on to lock other things, can end in a deadlock, which the database breaks off with an
// error, as with any lock. Waiting is bounded by ctx and by the session's own limit (lock_timeout
// on PostgreSQL, LOCK_TIMEOUT on SQL Server, innodb_lock_wait_timeout on MySQL). After an error the transaction must be rolled back.
// [ErrSchema]: the table does not exist, which SQL Server says at the insert.
func (i *Inserter) LockKeys(ctx context.Context, db Execer, rows []Row) error {
	if i.lockKeys == "" {
		return nil
	}
	slots := slotsOf(rows)
	if slots == "" {
		return nil
	}
	if i.dialect == SQLServer {
		slots = padded(slots)
	}
	if _, err := db.ExecContext(ctx, i.lockKeys, slots); err != nil {
		if i.dialect != SQLServer { // where it is not the table that this statement can miss
			err = i.explain(err)
		}
		return fmt.Errorf("outbox: lock the ordering keys of %d rows of %s: %w", len(rows), i.table, err)
	}
	return nil
}

// slotsOf lists the slots of the rows' keys, each once and in order, as in "3,14,159".
func slotsOf(rows []Row) string {
	var (
		wanted [keySlots]bool
		last   string
	)
	for r := range rows {
		if key := rows[r].OrderingKey; key != "" && key != last { // rows of one message follow each other
			wanted[keySlot(key)] = true
			last = key
		}
	}
	var list []byte
	for slot := range wanted {
		if !wanted[slot] {
			continue
		}
		if len(list) > 0 {
			list = append(list, ',')
		}
		list = strconv.AppendInt(list, int64(slot), 10)
	}
	return string(list)
}

// padded makes a list of slots as long as one of few lengths: SQL Server's driver declares a text by
// its length, and each declaration is a plan.
func padded(slots string) string {
	length := 4
	for length < len(slots) {
		length *= 4
	}
	return slots + strings.Repeat(" ", length-len(slots))
}

// CountsFoundRows reports whether an UPDATE that leaves a row as it is counts it. On MySQL that is
// up to the connection (clientFoundRows in the DSN), and asked for by such an UPDATE of the rows that
// are the locks of ordering keys: one at random, so that none waits for it. The others count it.
func (i *Inserter) CountsFoundRows(ctx context.Context, db Execer) (bool, error) {
	if i.dialect != MySQL {
		return true, nil
	}
	slots := dbtable.Render("UPDATE {{table}}_key_slots SET slot = slot WHERE slot = ?", i.table)
	result, err := db.ExecContext(ctx, slots, rand.N(keySlots))
	if err != nil {
		return false, fmt.Errorf("outbox: ask how rows of %s are counted: %w", i.table, i.explain(err))
	}
	n, err := result.RowsAffected()
	return n > 0, err //nolint:wrapcheck // it has none
}

// keySlot is the first two bytes of the key's SHA-256, as a number, modulo keySlots: something that
// every language and every database can compute.
func keySlot(key string) int {
	sum := sha256.Sum256([]byte(key))
	return int(binary.BigEndian.Uint16(sum[:])) % keySlots
}
