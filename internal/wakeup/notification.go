package wakeup

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Notifications carry wake-ups to relays in other processes, by PostgreSQL's NOTIFY. Their texts
// are versioned: a relay that cannot read one polls for rows of all brokers.
//
//	1 default:3 partner:800    rows of two brokers; shards are a hexadecimal Set
//	1 default                  rows of a broker in unknown shards
//	1                          rows of unknown brokers
//	1 ?0192a1b2                a probe: a listener checks that it receives notifications
const notificationVersion = "1"

// longestNotification bounds the text, which PostgreSQL keeps in memory for all listeners and
// limits to 8,000 bytes.
const longestNotification = 512

// Channel is the PostgreSQL channel for a table's notifications: "fanout:" and the table's name as
// configured, or a hash of it if that would exceed the 63 bytes of an identifier.
func Channel(table string) string {
	const prefix, longest = "fanout:", 63
	if len(prefix+table) <= longest {
		return prefix + table
	}
	sum := sha256.Sum256([]byte(table))
	return prefix + hex.EncodeToString(sum[:16])
}

// Text is the text that carries wake-ups; none stand for rows of unknown brokers.
func Text(wakeUps []WakeUp) string {
	text := []byte(notificationVersion)
	for _, wakeUp := range wakeUps {
		if !plainName(wakeUp.Broker) {
			return notificationVersion
		}
		text = append(append(text, ' '), wakeUp.Broker...)
		if wakeUp.Shards != Unknown {
			text = strconv.AppendUint(append(text, ':'), uint64(wakeUp.Shards), 16)
		}
		if len(text) > longestNotification {
			return notificationVersion
		}
	}
	return string(text)
}

// Parse reads what [Text] wrote. ok is false for a text that it cannot read,
// and for rows of unknown brokers.
func Parse(text string) (wakeUps []WakeUp, ok bool) {
	version, rest, _ := strings.Cut(text, " ")
	if version != notificationVersion {
		return nil, false
	}
	for entry := range strings.FieldsSeq(rest) {
		broker, shards, known := strings.Cut(entry, ":")
		wakeUp := WakeUp{Broker: broker}
		if known {
			set, err := strconv.ParseUint(shards, 16, setBits)
			if err != nil {
				return nil, false
			}
			wakeUp.Shards = Set(set)
		}
		if !plainName(broker) {
			return nil, false
		}
		wakeUps = append(wakeUps, wakeUp)
	}
	return wakeUps, len(wakeUps) > 0
}

// plainName reports whether a notification can carry a broker's name. It can carry all names that a
// configuration accepts.
func plainName(name string) bool {
	for _, c := range []byte(name) {
		if c <= ' ' || c == ':' || c == '?' || c >= 0x7f {
			return false
		}
	}
	return name != ""
}

// ProbeText is the text of a notification that a listener sends to itself.
func ProbeText(nonce string) string { return notificationVersion + " ?" + nonce }

// ParseProbe reads the text of a probe; ok is false for any other.
func ParseProbe(text string) (nonce string, ok bool) {
	return strings.CutPrefix(text, notificationVersion+" ?")
}

// notifySQL is a transaction of its own. It must not cost a flush to disk: notifications do not
// survive the server anyway.
const notifySQL = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"

// Execer is what a notification needs of a database: the same as outbox.Execer, which this package
// cannot name, since writers are in outbox.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Notify sends wake-ups to relays in other processes, by the PostgreSQL database of a table. Call it
// after the commit, on another connection: transactions that contain a NOTIFY commit one after the
// other.
func Notify(ctx context.Context, db Execer, table string, wakeUps []WakeUp) error {
	if _, err := db.ExecContext(ctx, notifySQL, Channel(table), Text(wakeUps)); err != nil {
		return fmt.Errorf("outbox: notify relays of rows in %s: %w", table, err)
	}
	return nil
}
