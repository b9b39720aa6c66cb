package envelope_test

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/envelope"
)

// TestSequenceOrder: whoever compares the attribute sequence as a text, as the extension says, gets
// the order of the aggregate's versions; and so does CompareSequence, of either form. A consumer
// that reads a message gets the sequence id as it was.
func TestSequenceOrder(t *testing.T) {
	t.Parallel()
	c := newCatalog(t)
	rapid.Check(t, func(t *rapid.T) {
		type id struct {
			version int64
			number  int
		}
		draw := func(label string) id {
			return id{
				rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, math.MaxInt64), rapid.SampledFrom([]int64{9, 10, 99, 100, math.MaxInt64})).Draw(t, label+" version"),
				rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(1, math.MaxInt32)).Draw(t, label+" number"),
			}
		}
		ids := []id{draw("a"), draw("b")}
		var padded, plain []string
		for _, id := range ids {
			m, err := c.Seal(placed(), envelope.Source{Aggregate: "Order", ID: "42", Version: id.version, Sequence: id.number}, envelope.Context{})
			require.NoError(t, err)
			b, err := m.MarshalCloudEvent(envelope.CloudEventOptions{})
			require.NoError(t, err)
			ce, err := envelope.DecodeCloudEvent(b)
			require.NoError(t, err)
			_, decoded, err := envelope.Decode(b)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("%d.%d", id.version, id.number), decoded.Metadata.Domain.SequenceID)
			padded, plain = append(padded, ce.Sequence), append(plain, m.Metadata.Domain.SequenceID)
		}
		want := cmp.Or(cmp.Compare(ids[0].version, ids[1].version), cmp.Compare(ids[0].number, ids[1].number))
		require.Equal(t, want, strings.Compare(padded[0], padded[1]), "%q", padded)
		for _, a := range []string{padded[0], plain[0]} {
			for _, b := range []string{padded[1], plain[1]} {
				require.Equal(t, want, envelope.CompareSequence(a, b), "%s %s", a, b)
				require.Equal(t, -want, envelope.CompareSequence(b, a), "%s %s", a, b)
			}
		}
	})
}

func TestCompareSequence(t *testing.T) {
	t.Parallel()
	inOrder := []string{"0.0", "0.1", "0000000000000000007.0000000001", "7.2", "10.1", "99999999999999999999.1", "", "-1.1", "2026-01-01T00:00:00Z", "A", "a.b"}
	for i, a := range inOrder {
		for j, b := range inOrder {
			assert.Equal(t, cmp.Compare(i, j), envelope.CompareSequence(a, b), "%q %q", a, b)
		}
	}
	assert.Zero(t, envelope.CompareSequence("7.1", "0000000000000000007.0000000001"))
}

// Messages that were sent before the attribute was padded, and those of other producers, are read
// as they are.
func TestDecodeSequence(t *testing.T) {
	t.Parallel()
	for attribute, want := range map[string]string{
		"7.1": "7.1", "0000000000000000007.0000000001": "7.1", "0000000000000000000.0000000002": "0.2", "00042": "00042", "a.b": "a.b", "": "",
	} {
		_, m, err := envelope.Decode(fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"/s","type":"T","sequence":%q,"data":1}`, fixedID, attribute))
		require.NoError(t, err)
		assert.Equal(t, want, m.Metadata.Domain.SequenceID)
	}
}
