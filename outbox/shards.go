package outbox

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"unicode/utf16"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/internal/wakeup"
)

// A Class of rows by their priority. Each class has shards of its own, so that a backlog of one
// does not hold up the others, and the order of a key is kept within each class: between a key's rows
// in two classes there is none. Shards of a higher class go first, and those of a lower one keep a
// share: where urgent, normal and backfill rows wait all the time, they get about 65, 22 and 13 of
// 100 turns, of up to 8 batches each. A shard that waits always gets its turn.
type Class int

const (
	// ClassNormal holds rows with a key and a priority of 0 and above, and rows without a key and
	// the priority 0.
	ClassNormal Class = iota
	// ClassBackfill holds rows of a priority below 0. Those of an ordering key keep their order among
	// themselves, and may come after later ones of the key in ClassNormal, or before earlier ones.
	ClassBackfill
	// ClassUrgent holds rows of a priority above 0 that have no ordering key: there is nothing they
	// could overtake.
	ClassUrgent
)

// Classes is the number of classes.
const Classes = 3

// String is the name of a class: normal, backfill or urgent.
func (c Class) String() string {
	switch c {
	case ClassNormal:
		return "normal"
	case ClassBackfill:
		return "backfill"
	case ClassUrgent:
		return "urgent"
	}
	return "class " + strconv.Itoa(int(c))
}

// Shard is the shard in which the database puts a row: the same as the expression of its column
// shard in the migrations. On PostgreSQL it holds for databases in UTF-8, and in others for keys in
// ASCII.
func (d Dialect) Shard(row *Row) int {
	return d.Shards()*int(row.Class()) + d.share(row.OrderingKey, row.MessageID)
}

// WakeUps adds to wakeUps what these rows call for once they are committed, with one entry per
// broker. It allocates nothing if wakeUps has the capacity.
func (i *Inserter) WakeUps(wakeUps []wakeup.WakeUp, rows []Row) []wakeup.WakeUp {
	var (
		known *Row // whose shard is known: rows of one message follow each other
		shard int
	)
	for r := range rows {
		row := &rows[r]
		if known == nil || row.OrderingKey == "" || row.OrderingKey != known.OrderingKey || row.Class() != known.Class() {
			known, shard = row, i.dialect.Shard(row)
		}
		wakeUps = wakeup.Merge(wakeUps, wakeup.WakeUp{Broker: row.TargetBroker, Shards: wakeup.SetOf(shard)})
	}
	return wakeUps
}

// Shards is the number of shards of one class.
func (d Dialect) Shards() int {
	if d == SQLite {
		return 1 // there is one writer
	}
	return Shards
}

// Class is the priority class of a row.
func (r *Row) Class() Class {
	switch {
	case r.Priority < 0:
		return ClassBackfill
	case r.Priority > 0 && r.OrderingKey == "":
		return ClassUrgent
	default:
		return ClassNormal
	}
}

// share is the shard within a class: by the first byte of a hash of the key or, without one, of the
// message's id. SHA-256 is what all databases have that need it, and FIPS 140 allows.
func (d Dialect) share(key string, id uuid.UUID) int {
	if d == SQLite {
		return 0
	}
	var (
		room [128]byte // keys are seldom longer, and then nothing is allocated
		text [36]byte
	)
	hashed := room[:0]
	if key == "" {
		writeUUID(&text, id)
		if d == SQLServer { // which writes them in capitals
			for i, c := range text {
				if c >= 'a' {
					c -= 'a' - 'A'
				}
				text[i] = c
			}
		}
	}
	switch {
	case d == SQLServer && key == "":
		for _, c := range text {
			hashed = append(hashed, c, 0)
		}
	case d == SQLServer: // nvarchar holds UTF-16, least byte first
		for _, r := range key {
			hashed = appendUTF16(hashed, r)
		}
	case d == MySQL && key == "":
		hashed = append(hashed, id[:]...)
	case key == "":
		hashed = append(hashed, text[:]...)
	default:
		hashed = append(hashed, key...)
	}
	sum := sha256.Sum256(hashed)
	return int(sum[0]) % Shards
}

func appendUTF16(dst []byte, r rune) []byte {
	if high, low := utf16.EncodeRune(r); utf16.IsSurrogate(high) {
		dst = binary.LittleEndian.AppendUint16(dst, uint16(high)) //nolint:gosec // half of a surrogate pair
		r = low
	}
	return binary.LittleEndian.AppendUint16(dst, uint16(r)) //nolint:gosec // what needs more was taken apart
}

// writeUUID is id.String() without an allocation.
func writeUUID(dst *[36]byte, id uuid.UUID) {
	hex.Encode(dst[0:8], id[0:4])
	hex.Encode(dst[9:13], id[4:6])
	hex.Encode(dst[14:18], id[6:8])
	hex.Encode(dst[19:23], id[8:10])
	hex.Encode(dst[24:36], id[10:16])
	dst[8], dst[13], dst[18], dst[23] = '-', '-', '-', '-'
}
