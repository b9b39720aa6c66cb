package postgres

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// wireRow makes of a message what the server would send.
func wireRow(m *driver.Message) [][]byte {
	four := func(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(int32(n))) }
	eight := func(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
	text := func(s string) []byte { return append([]byte{}, s...) } // never nil, which is NULL
	id := uuid.MustParse(m.MessageID)
	var unread []byte
	if m.Unread > 0 {
		unread = four(int(m.Unread))
	}
	return [][]byte{
		eight(m.ID), id[:], text(m.Stream), text(m.Type), text(m.OrderingKey), four(m.Priority), text(m.ContentType), text(string(m.Payload)), text(m.Headers),
		text(m.CorrelationID), four(m.Attempts), four(m.Crashes), eight(m.CreatedAt.Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).Microseconds()),
		eight(m.ExpiresIn.Microseconds()), unread,
	}
}

func drawMessages(t *rapid.T) []driver.Message {
	some := rapid.OneOf(rapid.SampledFrom([]string{"", "orders", "käse\x00"}), rapid.String())
	numbers := rapid.Int32()
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) driver.Message {
		return driver.Message{
			ID: rapid.Int64().Draw(t, "id"), MessageID: uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "message id")).String(),
			Stream: some.Draw(t, "stream"), Type: some.Draw(t, "type"), OrderingKey: some.Draw(t, "key"), ContentType: some.Draw(t, "content type"),
			Headers: some.Draw(t, "headers"), CorrelationID: some.Draw(t, "correlation id"),
			Payload:  slices.Repeat([]byte{rapid.Byte().Draw(t, "byte")}, rapid.OneOf(rapid.IntRange(0, 9), rapid.SampledFrom([]int{500, maxBlock / 4, maxBlock/4 + 1})).Draw(t, "size")),
			Priority: int(numbers.Draw(t, "priority")), Attempts: int(numbers.Draw(t, "attempts")), Crashes: int(numbers.Draw(t, "crashes")),
			CreatedAt: time.UnixMicro(rapid.Int64Range(-1e15, 1e16).Draw(t, "created")), ExpiresIn: time.Duration(rapid.Int64Range(-1, 1e15).Draw(t, "expires in")) * time.Microsecond,
			Unread: rapid.SampledFrom([]int64{0, 0, 1, 1 << 30}).Draw(t, "unread"),
		}
	}), 1, 50).Draw(t, "messages")
}

// What is decoded is what was sent, however many rows were expected, also after the connection has
// used its buffer again and a caller has appended to a payload.
func TestDecode(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := drawMessages(t)
		d, before := decoder{left: rapid.IntRange(1, 60).Draw(t, "expected")}, &driver.Message{}
		got := make([]driver.Message, len(want))
		for i := range want {
			row := wireRow(&want[i])
			require.NoError(t, d.decode(&got[i], before, row))
			for _, value := range row {
				clear(value)
			}
			before = &got[i]
		}
		for i := range got {
			_ = append(got[i].Payload, "overwritten"...)
		}
		assert.Equal(t, want, got)
	})
}

// A row that no server sends is an error, and never a panic or a message.
func TestDecodeGarbage(t *testing.T) {
	t.Parallel()
	fixed := map[int]int{0: 8, 1: 16, 5: 4, 10: 4, 11: 4, 12: 8, 13: 8}
	rapid.Check(t, func(t *rapid.T) {
		m := drawMessages(t)[0]
		row, column := wireRow(&m), rapid.IntRange(0, messageColumns-1).Draw(t, "column")
		switch size, is := fixed[column]; {
		case is && rapid.Bool().Draw(t, "length"):
			row[column] = rapid.SliceOfN(rapid.Byte(), 0, 40).Filter(func(b []byte) bool { return len(b) != size }).Draw(t, "value")
		case column == messageColumns-1 || rapid.Bool().Draw(t, "cut off"): // the last one may be NULL
			row = row[:column]
		default:
			row[column] = nil
		}
		got := driver.Message{}
		require.ErrorContains(t, (&decoder{left: 1}).decode(&got, &driver.Message{}, row), "column")
		assert.Empty(t, got.MessageID)
	})
	for _, infinite := range []uint64{1<<63 - 1, 1 << 63} {
		row := wireRow(&driver.Message{MessageID: uuid.NewString(), CreatedAt: time.Now()})
		row[12] = binary.BigEndian.AppendUint64(nil, infinite)
		require.ErrorContains(t, (&decoder{left: 1}).decode(&driver.Message{}, &driver.Message{}, row), "column 13 of a claimed row is an infinite time")
	}
}
