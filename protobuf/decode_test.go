package protobuf_test

import (
	"encoding/base64"
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/protobuf"
	"github.com/gorm-fanout/fanout/protobuf/internal/shop"
)

func flat(more map[string]string) map[string]string {
	all := map[string]string{
		"id": "0199c0de-0000-7000-8000-000000000001", "type": "Ordering.OrderPlaced.v1", "content-type": placedType, "time": "2026-11-27T19:30:01Z",
	}
	maps.Copy(all, more)
	return all
}

// event is a CloudEvent in structured mode.
func event(attributes string) []byte {
	return []byte(`{"specversion":"1.0","id":"1","source":"/x","type":"Ordering.OrderPlaced.v1",` + attributes + `}`)
}

// Flat fields that cannot be understood are an error of the message.
func TestMalformedFlatFields(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change map[string]string
		says   string
	}{
		"id":             {map[string]string{"id": "42"}, `the flat field id is "42", not a UUID`},
		"id in braces":   {map[string]string{"id": "{0199c0de-0000-7000-8000-000000000001}"}, "not a UUID"},
		"id of zeros":    {map[string]string{"id": "00000000-0000-0000-0000-000000000000"}, "not a UUID"},
		"time":           {map[string]string{"time": "yesterday"}, `the flat field time is "yesterday", not a time of RFC 3339`},
		"year 0":         {map[string]string{"time": "0000-11-27T19:30:01Z"}, "not a time of RFC 3339"},
		"correlation id": {map[string]string{"correlation_id": "\xff"}, "the flat field correlation_id is not valid UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := inbox.Decode([]byte("\x0a\x0242"), flat(c.change))
			var decode *envelope.DecodeError
			require.ErrorAs(t, err, &decode)
			assert.ErrorContains(t, err, c.says)
		})
	}
	m, err := inbox.Decode(nil, flat(map[string]string{"time": "", "content-type": "application/x-protobuf", "sequence_id": "7.1", "ordering_key": "k"}))
	require.NoError(t, err)
	assert.True(t, m.Envelope.Metadata.Headers.Time.IsZero())
	assert.Equal(t, "7.1", m.Envelope.Metadata.Domain.SequenceID)
	assert.Equal(t, "k", m.OrderingKey)
	_, err = inbox.Decode([]byte("{}"), flat(map[string]string{"time": "", "content-type": "text/plain"}))
	require.ErrorContains(t, err, "member data is missing", "it is an envelope of another content type")
}

// Data that does not fit becomes a dead letter, and costs no more than its message.
func TestDataThatDoesNotFit(t *testing.T) {
	t.Parallel()
	nested := []byte{}
	for range 20_000 {
		nested = protowire.AppendBytes(protowire.AppendTag(nil, 17, protowire.BytesType), nested)
		if len(nested) > 400_000 {
			break
		}
	}
	promise := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.BytesType), 100<<20)
	for name, c := range map[string]struct {
		payload    []byte
		attributes map[string]string
		says       string
	}{
		"cut short":         {[]byte("\x0a\x05ab"), flat(nil), "cannot parse invalid wire-format data"},
		"promise of 100 MB": {promise, flat(nil), "cannot parse invalid wire-format data"},
		"no Protobuf":       {[]byte("{not a message}"), flat(nil), "protobuf: decode Ordering.OrderPlaced.v1, of 15 bytes, as shop.v1.OrderPlaced"},
		"no UTF-8":          {[]byte("\x12\x01\xff"), flat(nil), "invalid UTF-8"},
		"another message":   {[]byte("\x0a\x0242"), flat(map[string]string{"content-type": "application/protobuf; proto=shop.v1.Line"}), `the message is a "shop.v1.Line"`},
		"another encoding":  {[]byte("\x0a\x0242"), flat(map[string]string{"content-type": "avro/binary"}), `the content type is "avro/binary", not one of Protobuf or JSON`},
		"JSON of another":   {event(`"data":{"orderId":7}`), nil, "invalid value for string field orderId"},
		"JSON that is cut":  {event(`"data":[]`), nil, "unexpected token ["},
		"no data":           {event(`"subject":"x"`), nil, "there is no data"},
		"a picture":         {event(`"datacontenttype":"image/png","data_base64":"AP8="`), nil, `the content type is "image/png"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := c
			k := newConsumer(t, "Ordering.OrderPlaced.v1")
			assert.Equal(t, inbox.DeadLettered, k.handle(t, name, c.payload, c.attributes))
			letters, err := inbox.DeadLetters(t.Context(), k.db, inbox.DeadLetterFilter{Consumer: "billing"})
			require.NoError(t, err)
			require.Len(t, letters, 1)
			assert.Contains(t, letters[0].LastError.Message, c.says)
			assert.Equal(t, string(c.payload), string(letters[0].Payload))
			assert.Empty(t, k.got)
		})
	}
	_, err := protobuf.Decode[*shop.Everything](&inbox.Message{Payload: nested, Attributes: map[string]string{"content-type": "application/protobuf"}, Envelope: new(envelope.Message)})
	require.ErrorContains(t, err, "recursion")
}

// What others write is read as well.
func TestForeignForms(t *testing.T) {
	t.Parallel()
	want := &shop.OrderPlaced{OrderId: "42"}
	for name, c := range map[string]struct {
		payload    []byte
		attributes map[string]string
		want       *shop.OrderPlaced
	}{
		"x-protobuf":     {[]byte("\x0a\x0242"), flat(map[string]string{"content-type": "application/x-protobuf; messageType=shop.v1.OrderPlaced"}), want},
		"no name":        {[]byte("\x0a\x0242"), flat(map[string]string{"content-type": "application/protobuf"}), want},
		"bytes as JSON":  {event(`"datacontenttype":"application/protobuf","data_base64":"` + base64.StdEncoding.EncodeToString([]byte("80")) + `"`), nil, &shop.OrderPlaced{}},
		"no type":        {event(`"data_base64":"CgI0Mg=="`), nil, want},
		"unknown fields": {event(`"data":{"orderId":"42","later":{"a":[1]}}`), nil, want},
		"binary mode": {[]byte("\x0a\x0242"), map[string]string{
			"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/x", "ce-type": "Ordering.OrderPlaced.v1", "content-type": "application/protobuf",
		}, want},
		"binary mode, empty": {nil, map[string]string{
			"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/x", "ce-type": "Ordering.OrderPlaced.v1", "content-type": "application/protobuf",
		}, &shop.OrderPlaced{}},
		"empty": {nil, flat(nil), &shop.OrderPlaced{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newConsumer(t, "Ordering.OrderPlaced.v1")
			require.Equal(t, inbox.Handled, k.handle(t, name, c.payload, c.attributes))
			if name == "bytes as JSON" { // field 7, of which "0" is no map entry: unknown
				assert.Equal(t, "80", string(k.got[0].ProtoReflect().GetUnknown()))
				return
			}
			protoEqual(t, c.want, k.got[0])
		})
	}
}

// A message without a handler is skipped, and one with a handler for JSON is a dead letter that says what to do.
func TestHandlersForOtherThings(t *testing.T) {
	t.Parallel()
	k := newConsumer(t, "Ordering.Other.v1")
	assert.Equal(t, inbox.Skipped, k.handle(t, "skipped", []byte("\x0a\x0242"), flat(nil)))
	inbox.On(k.handlers, "Ordering.OrderPlaced.v1", func(*gorm.DB, Placed, *inbox.Message) error { return nil })
	assert.Equal(t, inbox.DeadLettered, k.handle(t, "for JSON", []byte("\x0a\x0242"), flat(nil)))
	letters, err := inbox.DeadLetters(t.Context(), k.db, inbox.DeadLetterFilter{Consumer: "billing"})
	require.NoError(t, err)
	require.Len(t, letters, 1)
	assert.Contains(t, letters[0].LastError.Message, "is not JSON: handle the type with protobuf.On in place of inbox.On")
}

// Events of an older version go to the handler of the newer one, whichever of the two is Protobuf.
func TestUpcasts(t *testing.T) {
	t.Parallel()
	k := newConsumer(t, "Ordering.OrderPlaced.v2")
	inbox.DecodeAs(k.handlers, protobuf.Decode[*shop.Line])
	inbox.Upcast(k.handlers, "Ordering.OrderPlaced.v1", "Ordering.OrderPlaced.v2", func(old *shop.Line) (*shop.OrderPlaced, error) {
		return &shop.OrderPlaced{OrderId: old.GetSku()}, nil
	})
	inbox.Upcast(k.handlers, "Ordering.OrderPlaced.v0", "Ordering.OrderPlaced.v2", func(old Placed) (*shop.OrderPlaced, error) {
		return &shop.OrderPlaced{OrderId: old.OrderID}, nil
	})
	require.NoError(t, k.handlers.Err())
	require.Equal(t, inbox.Handled, k.handle(t, "v1", []byte("\x0a\x0242"), flat(map[string]string{"content-type": "application/protobuf"})))
	require.Equal(t, inbox.Handled, k.handle(t, "v0", []byte(`{"specversion":"1.0","id":"1","source":"/x","type":"Ordering.OrderPlaced.v0","data":{"OrderID":"42"}}`), nil))
	for _, got := range k.got {
		protoEqual(t, &shop.OrderPlaced{OrderId: "42"}, got)
	}
	assert.Len(t, k.got, 2)
}
