package envelope_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/envelope"
)

// mayLeave are the fields of a sealed message whose values may reach a partner, for each external
// format. It is the list that docs/guarantees.md gives. A field of [envelope.Message] that is not
// here, such as one that is added tomorrow, must not be found in what is encoded. Extensions are
// the user's, tenant and actor among them: they leave where they are listed.
var mayLeave = map[envelope.Format][]string{
	envelope.FormatNative: {
		"Metadata.Domain.CausationID", "Metadata.Domain.CorrelationID", "Metadata.Domain.Kind",
		"Metadata.Domain.SequenceID", "Metadata.Domain.StreamCategory", "Metadata.Domain.Version", "Metadata.Envelope.SpecVersion",
		"Metadata.Headers.Deadline", "Metadata.Headers.ID", "Metadata.Headers.Stream",
		"Metadata.Headers.Time", "Metadata.Headers.TraceParent.ParentID", "Metadata.Headers.TraceParent.TraceID", "Metadata.Headers.Type",
	},
	envelope.FormatCloudEvents: {
		"Metadata.Domain.CausationID", "Metadata.Domain.CorrelationID", "Metadata.Domain.SequenceID",
		"Metadata.Domain.StreamCategory", // in the source, unless the configuration names another one
		"Metadata.Headers.ID", "Metadata.Headers.Time", "Metadata.Headers.Type",
		"Routing.AggregateID", "Routing.OrderingKey", "Routing.TraceParent",
	},
}

// whereListed are the fields whose values leave, too, for a broker that lists them. The origin is not
// among them where it is unknown whether the cause was published.
var whereListed = map[envelope.Format][]string{
	envelope.FormatNative:      {"Metadata.Domain.FQN", "Metadata.Domain.OriginStream", "Metadata.Extensions", "Metadata.Headers.IdempotencyKey"},
	envelope.FormatCloudEvents: {"Metadata.Extensions", "Routing.TraceState"},
}

// marks puts a value that occurs nowhere else into each field of a message, and remembers how it
// looks when it is encoded.
type marks struct {
	seed int64
	seen map[string]string // path -> text
}

func (m *marks) fill(v reflect.Value, path string) {
	m.seed++
	number := 7_000_000_000_000 + m.seed*1009 // no year, no offset, no length looks like it
	switch field := v.Addr().Interface().(type) {
	case *time.Time:
		*field = time.UnixMicro(1_700_000_000_000_000 + number).UTC()
		m.seen[path] = field.Format("2006-01-02T15:04:05.000000")
		return
	case *uuid.UUID:
		*field = uuid.NewSHA1(uuid.NameSpaceURL, fmt.Append(nil, path, number))
		m.seen[path] = field.String()
		return
	case *envelope.Extensions:
		m.seen[path] = fmt.Sprintf("mark%d", number)
		*field = envelope.Extensions{"e": m.seen[path]}
		return
	case **envelope.EventType:
		return // what was registered; its parts are in the metadata
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				continue // of contracts, whose messages are marked themselves
			}
			m.fill(v.Field(i), strings.TrimPrefix(path+"."+v.Type().Field(i).Name, "."))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		m.fill(v.Elem(), path)
	case reflect.String:
		m.seen[path] = fmt.Sprintf("mark%d", number)
		v.SetString(m.seen[path])
	case reflect.Int, reflect.Int64:
		m.seen[path] = fmt.Sprint(number)
		v.SetInt(number)
	case reflect.Slice:
		m.seen[path] = fmt.Sprintf("mark%d", number)
		v.Set(reflect.ValueOf([]string{m.seen[path]}))
	case reflect.Map:
		m.seen[path] = fmt.Sprintf("mark%d", number)
		v.Set(reflect.ValueOf(map[string]string{m.seen[path]: m.seen[path]}))
	case reflect.Bool: // has no value of its own: that its name does not occur is checked by checkLeaves
	default:
		panic("a message has a field of a kind that this test does not know: " + path)
	}
}

// Whatever a message holds in whatever field: what is encoded for partners holds the values of the
// listed fields, and no others.
func TestOnlyListedFieldsLeave(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := envelope.Message{Data: []byte(`{}`)}
		found := marks{seed: rapid.Int64Range(1, 1<<30).Draw(t, "seed"), seen: map[string]string{}}
		found.fill(reflect.ValueOf(&m.Metadata).Elem(), "Metadata")
		found.fill(reflect.ValueOf(&m.Routing).Elem(), "Routing")
		m.Routing.Published = true

		native, err := m.MarshalExternal(envelope.Include{})
		require.NoError(t, err)
		cloud, err := m.MarshalCloudEvent(envelope.CloudEventOptions{})
		require.NoError(t, err)
		internal, err := m.MarshalInternal()
		require.NoError(t, err)
		listed, err := m.MarshalExternal(everything, "e")
		require.NoError(t, err)
		m.Routing.CausePublished = true
		caused, err := m.MarshalExternal(everything, "e")
		require.NoError(t, err)
		leanest, err := m.MarshalExternal(envelope.Include{})
		require.NoError(t, err)
		assert.Equal(t, string(native), string(leanest))
		cloudListed, err := m.MarshalCloudEvent(envelope.CloudEventOptions{Extensions: []string{"e"}, TraceState: true})
		require.NoError(t, err)
		for _, form := range []struct {
			format  envelope.Format
			encoded []byte
			listed  bool
			but     string
		}{
			{envelope.FormatNative, native, false, ""},
			{envelope.FormatCloudEvents, cloud, false, ""},
			{envelope.FormatNative, listed, true, "Metadata.Domain.OriginStream"},
			{envelope.FormatNative, caused, true, ""},
			{envelope.FormatCloudEvents, cloudListed, true, ""},
		} {
			var left []string
			for _, path := range slices.Sorted(maps.Keys(found.seen)) {
				if strings.Contains(string(form.encoded), found.seen[path]) {
					left = append(left, path)
				}
			}
			want := slices.Clone(mayLeave[form.format])
			if form.listed {
				want = append(want, whereListed[form.format]...)
			}
			want = slices.DeleteFunc(want, func(path string) bool { return path == form.but })
			assert.ElementsMatch(t, want, left, "%s: %s", form.format, form.encoded)
			assert.Equal(t, form.listed && form.format == envelope.FormatNative, strings.Contains(string(form.encoded), `"extensions"`))
		}
		// The test would find what it looks for: the internal form has what the external ones must
		// not have.
		for _, path := range []string{
			"Metadata.Domain.ExpectedVersion", "Metadata.Domain.Priority", "Metadata.Envelope.Checksum", "Metadata.EventStore.GlobalPosition", "Metadata.EventStore.Position",
		} {
			assert.Contains(t, string(internal), found.seen[path], path)
		}
	})
}
