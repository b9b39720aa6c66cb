package envelope_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
)

// avro is an encoding of a program's own: a byte that no text has, and the text. It counts its calls for one text: an event is encoded for
// each catalog that has its type, those of other tests included.
func avro[E any](text func(E) string, counted string, calls *int) envelope.Encoding {
	return envelope.Encoding{ContentType: "avro/binary", Marshal: func(event any) ([]byte, error) {
		text := text(event.(E))
		if text == counted {
			*calls++
		}
		switch text {
		case "refused":
			return nil, errors.New("there is no schema for it")
		case "panics":
			panic("no such field")
		default:
			return []byte("\xff" + text), nil
		}
	}}
}

// The bytes are made when the event is raised, beside the JSON, once, and only where they leave. What fails is said with the place of
// the Raise.
func TestEncoding(t *testing.T) {
	t.Parallel()
	type (
		measured struct{ Text string }
		reported struct{ Text string }
	)
	ofEvent, ofContract := func(e measured) string { return e.Text }, func(e *reported) string { return e.Text }
	for name, c := range map[string]struct {
		register func(c *envelope.Catalog, name string, calls *int)
		leaves   bool
		says     string // of an event that is refused
	}{
		"published": {func(c *envelope.Catalog, name string, calls *int) {
			envelope.Register[measured](c, envelope.Name("Measured"), envelope.Published(), avro(ofEvent, name, calls))
		}, true, "as avro/binary, raised at "},
		"a contract": {func(c *envelope.Catalog, name string, calls *int) {
			envelope.Register[measured](c, envelope.Name("Measured"), envelope.Published(envelope.As(func(e measured) *reported { return &reported{e.Text} }, avro(ofContract, name, calls))))
		}, true, "as *envelope_test.reported (Ordering.Measured.v1), raised at "},
		"inside": {func(c *envelope.Catalog, name string, calls *int) {
			envelope.Register[measured](c, envelope.Name("Measured"), avro(ofEvent, name, calls))
		}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			events := envelope.NewCatalog("ordering")
			c.register(events, name, &calls)
			require.NoError(t, events.Err())
			raise := func(text string) (*envelope.Message, error) {
				return events.Seal(envelope.NewEvent(measured{text}), envelope.Source{}, envelope.Context{})
			}
			m, err := raise(name)
			require.NoError(t, err)
			assert.JSONEq(t, `{"Text":"`+name+`"}`, string(m.Data))
			if !c.leaves {
				assert.Zero(t, calls)
				_, err := raise("refused")
				require.NoError(t, err)
				return
			}
			assert.Equal(t, 1, calls)
			left := m.AppendExternal(nil, "partner")
			require.Len(t, left, 1)
			data, contentType, err := left[0].MarshalData()
			require.NoError(t, err)
			assert.Equal(t, "\xff"+name, string(data))
			assert.Equal(t, "avro/binary", contentType)
			for text, cause := range map[string]string{"refused": "there is no schema for it", "panics": "panic: no such field"} {
				_, err = raise(text)
				var failed *envelope.EncodeError
				require.ErrorAs(t, err, &failed)
				for _, part := range []string{"encode Ordering.Measured.v1", c.says, "encoding_test.go:", cause} {
					require.ErrorContains(t, err, part)
				}
			}
		})
	}
}
