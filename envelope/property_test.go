package envelope_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/envelope"
)

// tree draws data as deep as events get.
func tree() *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Just[any](nil),
		rapid.Bool().AsAny(),
		rapid.String().AsAny(),
		rapid.Int64().AsAny(),
		rapid.Float64().AsAny(),
	)
	return rapid.Deferred(func() *rapid.Generator[any] {
		return rapid.OneOf(
			leaf,
			rapid.SliceOfN(leaf, 0, 4).AsAny(),
			rapid.MapOfN(rapid.String(), leaf, 0, 6).AsAny(),
			rapid.MapOfN(rapid.StringMatching(`[a-z_]{1,8}`), rapid.SliceOfN(leaf, 0, 3).AsAny(), 0, 6).AsAny(),
		)
	})
}

type document struct{ Body any }

// Whatever an event holds and a request knows: the message says the same in every
// form, its routing agrees with its metadata, and rewriting its JSON does not
// change the checksum.
func TestMessageProperties(t *testing.T) {
	t.Parallel()
	c := envelope.NewCatalog("ordering")
	envelope.Register[document](c, envelope.Published(), envelope.Priority(envelope.PriorityLow))
	require.NoError(t, c.Err())

	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[a-zA-Z0-9 ._-]{0,12}`)
		ctx := envelope.WithCorrelationID(t.Context(), word.Draw(t, "correlation"))
		ctx = envelope.WithTenantID(ctx, word.Draw(t, "tenant"))
		ctx = envelope.WithExtension(ctx, rapid.StringMatching(`[a-z]{1,10}`).Draw(t, "extension"), tree().Draw(t, "value"))
		var raised, inContext *envelope.PriorityLevel
		level := rapid.Custom(func(t *rapid.T) envelope.PriorityLevel {
			return envelope.PriorityLevel(rapid.IntRange(-100, 100).Draw(t, "level"))
		})
		if rapid.Bool().Draw(t, "priority in the context") {
			inContext = ptr(level.Draw(t, "context"))
			ctx = envelope.WithPriority(ctx, *inContext)
		}
		var opts []envelope.Option
		if rapid.Bool().Draw(t, "priority of the event") {
			raised = ptr(level.Draw(t, "raised"))
			opts = append(opts, envelope.Priority(*raised))
		}
		if rapid.Bool().Draw(t, "ttl") {
			opts = append(opts, envelope.TTL(time.Duration(rapid.Int64Range(1000, 1<<60).Draw(t, "duration"))))
		}
		source := envelope.Source{Sequence: rapid.IntRange(0, 9).Draw(t, "n")}
		if rapid.Bool().Draw(t, "aggregate") {
			source.Aggregate = rapid.StringMatching(`[A-Z][A-Za-z0-9]{0,10}`).Draw(t, "type")
			source.ID = rapid.StringMatching(`[a-z0-9,:-]{1,12}`).Draw(t, "id")
		}

		m, err := c.Seal(envelope.NewEvent(document{tree().Draw(t, "data")}, opts...), source, envelope.FromContext(ctx))
		if err != nil { // only numbers that JSON does not have
			var encode *envelope.EncodeError
			require.ErrorAs(t, err, &encode)
			t.Skip(err)
		}
		checkRouting(t, m, source)
		want := envelope.PriorityLow
		for _, p := range []*envelope.PriorityLevel{inContext, raised} {
			if p != nil {
				want = *p
			}
		}
		require.Equal(t, int(want), m.Routing.Priority)
		checkRewritten(t, m)
		checkForms(t, m)
	})
}

func checkRouting(t *rapid.T, m *envelope.Message, source envelope.Source) {
	h, d, r := m.Metadata.Headers, m.Metadata.Domain, m.Routing
	require.Equal(t, d.StreamCategory, r.Destination)
	require.Equal(t, d.Priority, r.Priority)
	require.Equal(t, d.CorrelationID, r.CorrelationID)
	require.Equal(t, h.Deadline, r.ExpiresAt)
	if source.Aggregate == "" {
		require.Equal(t, "ordering", h.Stream)
		require.Empty(t, r.OrderingKey)
		return
	}
	require.Equal(t, d.StreamCategory+"-"+source.ID, h.Stream)
	require.Equal(t, h.Stream, r.OrderingKey)
}

// checkRewritten sends the data through another JSON library, so to say: members
// in another order, blanks, other spellings.
func checkRewritten(t *rapid.T, m *envelope.Message) {
	var v any
	require.NoError(t, json.Unmarshal(m.Data, &v))
	rewritten, err := json.MarshalIndent(v, "", "  ")
	require.NoError(t, err)
	other := envelope.Message{Data: rewritten, Metadata: m.Metadata}
	require.NoError(t, other.VerifyChecksum())
}

func checkForms(t *rapid.T, m *envelope.Message) {
	internal, err := m.MarshalInternal()
	require.NoError(t, err)
	form, back, err := envelope.Decode(internal)
	require.NoError(t, err)
	require.Equal(t, envelope.FormatInternal, form)
	require.Equal(t, m.Metadata, back.Metadata)

	external, err := marshalWhole(m)
	require.NoError(t, err)
	form, _, err = envelope.Decode(external)
	require.NoError(t, err)
	require.Equal(t, envelope.FormatNative, form)
	a, err := envelope.DecodeExternal(external)
	require.NoError(t, err)
	b, err := envelope.DecodeExternal(internal)
	require.NoError(t, err)
	require.Equal(t, a, b)
}
