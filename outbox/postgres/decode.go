package postgres

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// messageTypes are the types of the columns of fetch.sql, in their order.
var messageTypes = [messageColumns]uint32{
	pgtype.Int8OID, pgtype.UUIDOID, pgtype.TextOID, pgtype.TextOID, pgtype.TextOID, pgtype.Int4OID, pgtype.TextOID, pgtype.ByteaOID, pgtype.TextOID,
	pgtype.TextOID, pgtype.Int4OID, pgtype.Int4OID, pgtype.TimestamptzOID, pgtype.Int8OID, pgtype.Int4OID,
}

// windowTypes are the types of the columns of window.sql, in their order.
var windowTypes = [windowColumns]uint32{
	pgtype.Int8OID, pgtype.BoolOID, pgtype.Int8OID, pgtype.Int8OID, pgtype.TextOID, pgtype.BoolOID, pgtype.BoolOID, pgtype.Int4OID, pgtype.Int4OID, pgtype.Int8OID,
	pgtype.UUIDOID,
}

// decodeWindow adds a row to a window of so many rows at most, and tells the session.
func decodeWindow(w *driver.Window, values [][]byte, size int) (session int64, err error) {
	r := rawRow{values: values}
	w.Version, w.Blocked, session = r.int8(0), r.bool(1), r.int8(2)
	if values[3] == nil { // the window is empty
		return session, r.err
	}
	if w.Rows == nil {
		w.Rows = make([]driver.Row, 0, size)
	}
	row := driver.Row{
		Ref: driver.Ref{ID: r.int8(3)}, Leased: r.bool(5), Waits: r.bool(6), Crashes: r.int4(7), Bytes: int64(r.int4(8)),
	}
	key := r.value(4)
	if n := len(w.Rows); n > 0 && string(key) == w.Rows[n-1].Key {
		row.Key = w.Rows[n-1].Key // a text for each row is not needed
	} else {
		row.Key = string(key)
	}
	if values[9] != nil {
		row.HasBlock, row.Block = true, r.int8(9)
	}
	copy(row.MessageID[:], r.fixed(10, len(row.MessageID)))
	w.Rows = append(w.Rows, row)
	return session, r.err
}

// raw reports whether rows come as a decoder reads them: texts are the same in both formats, all
// else must be binary. A pool that keeps no prepared statements gets text.
func raw(fields []pgconn.FieldDescription, types []uint32) bool {
	if len(fields) != len(types) {
		return false
	}
	for i := range fields {
		if f := &fields[i]; f.DataTypeOID != types[i] || f.DataTypeOID != pgtype.TextOID && f.Format != pgtype.BinaryFormatCode {
			return false
		}
	}
	return true
}

// A decoder makes messages of rows in the form in which the server sends them: without reflection,
// and with about one allocation for each message, of which all texts are parts. Payloads are parts
// of blocks, which live as long as any message in them.
type decoder struct {
	left  int    // how many rows are expected still, the one at hand included
	text  []byte // of the row at hand
	block []byte // for payloads; what is in use is never written again
}

// maxBlock is how much one payload can keep in memory for the sake of others, in bytes.
const maxBlock = 64 << 10

// decode fills a message. before is the message of the row before, or an empty one: many of their
// texts are the same, and are shared. A row that is not as the server makes it is an error.
func (d *decoder) decode(m, before *driver.Message, row [][]byte) error {
	r := rawRow{values: row}
	id := r.fixed(1, len(pgtype.UUID{}.Bytes))
	m.ID, m.Priority, m.Attempts, m.Crashes = r.int8(0), r.int4(5), r.int4(10), r.int4(11)
	m.CreatedAt, m.ExpiresIn = r.time(12), time.Duration(r.int8(13))*time.Microsecond
	if len(row) < messageColumns || row[messageColumns-1] != nil {
		m.Unread = int64(r.int4(messageColumns - 1))
	}
	payload := r.value(7)
	texts := [...]struct {
		field *string
		value []byte
		old   string
	}{
		{&m.Stream, r.value(2), before.Stream},
		{&m.Type, r.value(3), before.Type},
		{&m.OrderingKey, r.value(4), before.OrderingKey},
		{&m.ContentType, r.value(6), before.ContentType},
		{&m.Headers, r.value(8), before.Headers},
		{&m.CorrelationID, r.value(9), before.CorrelationID},
	}
	if r.err != nil {
		return r.err
	}
	d.text = appendUUID(d.text[:0], id)
	for i := range texts {
		if t := &texts[i]; string(t.value) != t.old {
			d.text = append(d.text, t.value...)
		}
	}
	all := string(d.text)
	m.MessageID, all = all[:uuidText], all[uuidText:]
	for i := range texts {
		if t := &texts[i]; string(t.value) == t.old {
			*t.field = t.old
		} else {
			*t.field, all = all[:len(t.value)], all[len(t.value):]
		}
	}
	m.Payload = d.keep(payload)
	return nil
}

// keep copies a payload, which the connection's buffer holds only until the next row.
func (d *decoder) keep(payload []byte) []byte {
	defer func() { d.left-- }()
	if len(payload) == 0 || len(payload) > maxBlock/4 || d.left <= 1 {
		return append([]byte{}, payload...)
	}
	if cap(d.block)-len(d.block) < len(payload) {
		d.block = make([]byte, 0, min(maxBlock, d.left*len(payload)))
	}
	at := len(d.block)
	d.block = append(d.block, payload...)
	return d.block[at:len(d.block):len(d.block)] // whoever appends to it gets a copy
}

// uuidText is the length of a UUID as text.
const uuidText = 36

func appendUUID(text, id []byte) []byte {
	for i, part := range [...][]byte{id[:4], id[4:6], id[6:8], id[8:10], id[10:]} {
		if i > 0 {
			text = append(text, '-')
		}
		text = hex.AppendEncode(text, part)
	}
	return text
}

// rawRow reads the values of a row. The first thing that is wrong stays as its error; what is read
// from then on is zero.
type rawRow struct {
	values [][]byte
	err    error
}

// value is a column of any length.
func (r *rawRow) value(column int) []byte {
	switch {
	case column >= len(r.values):
		r.failf("column %d of a claimed row is missing: it has %d", column+1, len(r.values))
	case r.values[column] == nil:
		r.failf("column %d of a claimed row is NULL", column+1)
	default:
		return r.values[column]
	}
	return nil
}

// fixed is a column of this many bytes.
func (r *rawRow) fixed(column, size int) []byte {
	value := r.value(column)
	if len(value) != size {
		r.failf("column %d of a claimed row has %d bytes instead of %d", column+1, len(value), size)
		return make([]byte, size)
	}
	return value
}

func (r *rawRow) failf(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *rawRow) int8(column int) int64 {
	return int64(binary.BigEndian.Uint64(r.fixed(column, 8))) //nolint:gosec // the same bits
}

func (r *rawRow) int4(column int) int {
	return int(int32(binary.BigEndian.Uint32(r.fixed(column, 4)))) //nolint:gosec // the same bits
}

func (r *rawRow) bool(column int) bool { return r.fixed(column, 1)[0] != 0 }

// year2000 is the server's epoch.
var year2000 = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

func (r *rawRow) time(column int) time.Time {
	micros := r.int8(column)
	if micros == math.MaxInt64 || micros == math.MinInt64 {
		r.failf("column %d of a claimed row is an infinite time", column+1)
	}
	return time.UnixMicro(micros + year2000)
}
