// Package protobuf lets events, and what partners get of them, travel as Protobuf messages beside JSON.
//
// An event can be a generated message itself, a pointer, added to the catalog with [Register]; or a Go type whose contract
// for partners is a message, which [As] makes of it. Consumers handle messages with [On].
//
//	envelope.Register[OrderPlaced](events, envelope.Published(
//		protobuf.As(func(e OrderPlaced) *partnerpb.OrderPlaced { ... }),
//	))
//
// Such a message leaves to external brokers in one of these forms:
//
//   - format native: the payload is the message, in deterministic binary encoding, and its content type names it:
//     application/protobuf; proto=shop.v1.OrderPlaced. Beside it are the flat fields of each message (id, type,
//     ordering_key, correlation_id, traceparent), and time, sequence_id and causation_id;
//   - format cloudevents: structured JSON, with the message in data_base64, and that content type as datacontenttype;
//   - with encoding: json, which is a setting of the broker: the JSON mapping of Protobuf (package protojson) as the data
//     of the usual JSON forms.
//
// Inside, for the application's own broker, the data is always the JSON mapping: fields have their JSON names
// (lowerCamelCase), enums their names, unset fields are absent, and fields that the program does not know are left out. The
// white space that protojson puts at random is removed, so that equal messages have equal bytes.
//
// All functions are safe for concurrent use.
package protobuf
