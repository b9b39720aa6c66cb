package shop_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/protobuf"
	"github.com/gorm-fanout/fanout/protobuf/internal/shop"
)

// It is here, and not beside the function, so that a fuzzing build has no database in it, which takes minutes to compile.

// FuzzDecode: whatever arrives, decoding ends with an event or an error, and an event survives being written again.
func FuzzDecode(f *testing.F) {
	binary, err := proto.Marshal(&shop.Everything{N: "a", Q: &shop.Everything{R: []int64{1, -1}}, S: map[int32]*shop.Line{1: {Sku: "b"}}})
	require.NoError(f, err)
	f.Add(binary, "application/protobuf", "")
	f.Add([]byte(`{"specversion":"1.0","id":"1","source":"/x","type":"t","data":`+`{"n":"42","q":{"p":7},"s":{"1":{}}}`+`}`), "", "")
	f.Add([]byte(`{"specversion":"1.0","id":"1","source":"/x","type":"t","datacontenttype":"application/protobuf","data_base64":"CgI0Mg=="}`), "", "")
	f.Add(binary, "application/protobuf", "1.0")
	f.Fuzz(func(t *testing.T, payload []byte, contentType, specVersion string) {
		attributes := map[string]string{
			"id": "0199c0de-0000-7000-8000-000000000001", "type": "Ordering.OrderPlaced.v1", "content-type": contentType, "time": "2026-11-27T19:30:01Z",
		}
		if specVersion != "" {
			attributes["ce-specversion"], attributes["ce-id"], attributes["ce-source"], attributes["ce-type"] = specVersion, "1", "/x", "t"
		}
		m, err := inbox.Decode(payload, attributes)
		if err != nil {
			return
		}
		event, err := protobuf.Decode[*shop.Everything](m)
		if err != nil {
			return
		}
		again, err := proto.Marshal(event)
		require.NoError(t, err, event.String())
		back := new(shop.Everything)
		require.NoError(t, proto.Unmarshal(again, back))
	})
}
