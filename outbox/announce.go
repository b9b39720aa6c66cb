package outbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Announcements tell relays in other processes of arrivals, by PostgreSQL's NOTIFY. Their texts are versioned: whoever gets one
// that it cannot read looks for rows of all brokers.
//
//	1 default:3 partner:800    rows of two brokers, with their shards as a hexadecimal ShardSet
//	1 default                  rows of a broker, in shards that are not known
//	1                          rows of brokers that are not known
//	1 ?0192a1b2                a relay finds out whether it hears itself
const announcementVersion = "1"

// longestAnnouncement bounds the text, which PostgreSQL keeps in memory for all listeners, to at most 8,000 bytes.
const longestAnnouncement = 512

// Channel is the PostgreSQL channel on which arrivals in a table are announced: "fanout:" and the table's name as it is configured,
// or a hash of it where that would be longer than the 63 bytes of an identifier.
func Channel(table string) string {
	const prefix, longest = "fanout:", 63
	if len(prefix+table) <= longest {
		return prefix + table
	}
	sum := sha256.Sum256([]byte(table))
	return prefix + hex.EncodeToString(sum[:16])
}

// Announcement is the text that tells of arrivals; none stand for rows of brokers that are not known.
func Announcement(arrivals []Arrival) string {
	text := []byte(announcementVersion)
	for _, arrival := range arrivals {
		if !plainName(arrival.Broker) {
			return announcementVersion
		}
		text = append(append(text, ' '), arrival.Broker...)
		if arrival.Shards != UnknownShards {
			text = strconv.AppendUint(append(text, ':'), uint64(arrival.Shards), 16)
		}
		if len(text) > longestAnnouncement {
			return announcementVersion
		}
	}
	return string(text)
}

// ParseAnnouncement reads what [Announcement] wrote. ok is false for what it cannot read, and for rows of brokers that are not known.
func ParseAnnouncement(text string) (arrivals []Arrival, ok bool) {
	version, rest, _ := strings.Cut(text, " ")
	if version != announcementVersion {
		return nil, false
	}
	for entry := range strings.FieldsSeq(rest) {
		broker, shards, known := strings.Cut(entry, ":")
		arrival := Arrival{Broker: broker}
		if known {
			set, err := strconv.ParseUint(shards, 16, shardSetBits)
			if err != nil {
				return nil, false
			}
			arrival.Shards = ShardSet(set)
		}
		if !plainName(broker) {
			return nil, false
		}
		arrivals = append(arrivals, arrival)
	}
	return arrivals, len(arrivals) > 0
}

// plainName reports whether a broker's name can stand in an announcement. All names that a configuration takes can.
func plainName(name string) bool {
	for _, c := range []byte(name) {
		if c <= ' ' || c == ':' || c == '?' || c >= 0x7f {
			return false
		}
	}
	return name != ""
}

// ProbeText is the text of a notification by which a listener finds out whether it hears its own.
func ProbeText(nonce string) string { return announcementVersion + " ?" + nonce }

// ParseProbe reads the text of a probe; ok is false for any other.
func ParseProbe(text string) (nonce string, ok bool) {
	return strings.CutPrefix(text, announcementVersion+" ?")
}

// announceSQL is a transaction of its own, which must not make the disk of the writers write one time more: a notification that is lost
// with the server is of no use anyway.
const announceSQL = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"

// Announce tells relays in other processes of arrivals. It is meant for after the commit, on a connection of its own: within a
// transaction, NOTIFY makes all transactions that use it commit one after the other. PostgreSQL only.
func (i *Inserter) Announce(ctx context.Context, db Execer, arrivals []Arrival) error {
	if i.dialect != Postgres {
		return errors.New("outbox: only PostgreSQL announces rows to other processes")
	}
	if _, err := db.ExecContext(ctx, announceSQL, Channel(i.table), Announcement(arrivals)); err != nil {
		return fmt.Errorf("outbox: announce rows in %s: %w", i.table, err)
	}
	return nil
}
