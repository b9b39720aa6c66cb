package contract

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/jsonschema"
)

// AsyncAPI returns the document in the form of AsyncAPI 3.0, as indented JSON, for all brokers or
// those that are named: what one partner gets is not for another. version is that of the
// application's contract, such as "1.2.0", which AsyncAPI requires. Servers are not in it, for a
// contract knows none. The error names a broker that the document does not have, or is
// about a size of more than 64 MiB.
//
// Source of the form: https://www.asyncapi.com/docs/reference/specification/v3.0.0
func (d *Document) AsyncAPI(version string, brokers ...string) ([]byte, error) {
	if len(brokers) == 0 {
		brokers = slices.Sorted(maps.Keys(d.file.Brokers))
	}
	size := 0 // of what each message repeats
	out := asyncAPI{
		AsyncAPI: "3.0.0", Info: info{Title: d.title(), Version: version},
		Channels: map[string]*channel{}, Operations: map[string]operation{},
		Components: components{Messages: map[string]message{}, Schemas: map[string]*jsonschema.Schema{}},
	}
	for _, name := range brokers {
		b, known := d.file.Brokers[name]
		if !known {
			return nil, fmt.Errorf("contract: write AsyncAPI: there is no broker %q: the document has %q", name, slices.Sorted(maps.Keys(d.file.Brokers)))
		}
		repeated, err := json.Marshal([]any{b.Headers, b.BareHeaders, b.Envelope, b.Extensions})
		if size += len(repeated) * len(b.Types); err == nil && size > maxAsyncAPIBytes {
			err = fmt.Errorf("the document would have more than %d bytes: name fewer brokers", maxAsyncAPIBytes)
		}
		if err != nil {
			return nil, fmt.Errorf("contract: write AsyncAPI: %w", err)
		}
		out.add(name, b)
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("contract: write AsyncAPI: %w", err)
	}
	return append(text, '\n'), nil
}

type (
	asyncAPI struct {
		AsyncAPI   string               `json:"asyncapi"`
		Info       info                 `json:"info"`
		Channels   map[string]*channel  `json:"channels"`
		Operations map[string]operation `json:"operations"`
		Components components           `json:"components"`
	}
	info struct {
		Title   string `json:"title"`
		Version string `json:"version"`
	}
	ref struct {
		Ref string `json:"$ref"`
	}
	channel struct {
		Address    string               `json:"address"`
		Title      string               `json:"title"`
		Parameters map[string]parameter `json:"parameters,omitempty"`
		Messages   map[string]ref       `json:"messages"`
	}
	parameter struct {
		Description string `json:"description"`
	}
	operation struct {
		Action  string `json:"action"`
		Channel ref    `json:"channel"`
	}
	message struct {
		Name          string             `json:"name"`
		Title         string             `json:"title"`
		Description   string             `json:"description,omitempty"`
		ContentType   string             `json:"contentType"`
		CorrelationID *correlation       `json:"correlationId,omitempty"`
		Headers       *jsonschema.Schema `json:"headers"`
		Payload       *jsonschema.Schema `json:"payload"`
		OrderingKey   string             `json:"x-ordering-key"`
		Layout        layout             `json:"x-layout,omitempty"`
	}
	correlation struct {
		Location string `json:"location"`
	}
	components struct {
		Messages map[string]message            `json:"messages"`
		Schemas  map[string]*jsonschema.Schema `json:"schemas,omitempty"`
	}
)

// maxAsyncAPIBytes bounds a document: each of its messages has the headers and the envelope.
const maxAsyncAPIBytes = 64 << 20

// placeholders of a destination that depend on what raises an event.
var placeholders = map[string]string{
	"stream":      "The context, and the aggregate where an event has one: ordering::order",
	"destination": "What a function of the event type says",
	"aggregate":   "The aggregate that raised the event, in snake_case; the context where there is none",
}

func (out *asyncAPI) add(name string, b *broker) {
	ids := map[string]string{} // of channels, by their addresses
	for _, wireType := range slices.Sorted(maps.Keys(b.Types)) {
		t := b.Types[wireType]
		id, known := ids[t.Destination]
		if !known {
			id = out.addChannel(name, t.Destination)
			ids[t.Destination] = id
		}
		key := out.freeKey(plain(name) + "." + plain(wireType))
		out.Channels[id].Messages[plain(wireType)] = ref{"#/components/messages/" + key}
		m := message{
			Name: wireType, Title: wireType, ContentType: b.ContentType, OrderingKey: t.Key,
			Headers: b.headers(t), Layout: t.Layout,
		}
		data := out.hoist(key, t.Data)
		switch {
		case t.ContentType == "":
			m.Payload = b.payload(wireType, "data", data)
		case b.Format == envelope.FormatCloudEvents:
			m.Payload = b.payload(wireType, "data_base64", &jsonschema.Schema{Type: jsonschema.Types{jsonschema.String}, ContentEncoding: "base64"})
			typeOf, _ := json.Marshal(t.ContentType) //nolint:errchkjson // a string
			m.Payload = m.Payload.With("datacontenttype", &jsonschema.Schema{Type: jsonschema.Types{jsonschema.String}, Const: typeOf}, true)
		default:
			m.ContentType, m.Payload = t.ContentType, data
		}
		if t.ContentType != "" {
			m.Description = encodedDescription
		}
		if b.Headers.Properties["correlation_id"] != nil {
			m.CorrelationID = &correlation{"$message.header#/correlation_id"}
		}
		out.Components.Messages[key] = m
	}
}

// headers are the flat fields of messages of a type.
func (b *broker) headers(t *eventType) *jsonschema.Schema {
	own := b.Headers
	if t.ContentType != "" && b.BareHeaders != nil {
		own = b.BareHeaders
	}
	if len(t.Headers) == 0 {
		return own
	}
	all := *own
	all.Properties = maps.Clone(all.Properties)
	if all.Properties == nil {
		all.Properties = map[string]*jsonschema.Schema{}
	}
	for _, name := range t.Headers {
		all.Properties[name] = &jsonschema.Schema{Type: jsonschema.Types{"string"}}
	}
	return &all
}

func (out *asyncAPI) addChannel(broker, destination string) string {
	id := plain(broker)
	for n := 2; out.Channels[id] != nil; n++ {
		id = plain(broker) + "-" + strconv.Itoa(n)
	}
	c := &channel{Address: destination, Title: broker + ": " + destination, Messages: map[string]ref{}}
	for name, description := range placeholders {
		if strings.Contains(destination, "{"+name+"}") {
			if c.Parameters == nil {
				c.Parameters = map[string]parameter{}
			}
			c.Parameters[name] = parameter{description}
		}
	}
	out.Channels[id] = c
	out.Operations["send-"+id] = operation{Action: "send", Channel: ref{"#/channels/" + id}}
	return id
}

func (out *asyncAPI) freeKey(base string) string {
	key := base
	for n := 2; out.Components.Messages[key].Name != ""; n++ {
		key = base + "-" + strconv.Itoa(n)
	}
	return key
}

// plain is a name as keys in AsyncAPI can be.
func plain(name string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_' {
			return c
		}
		return '_'
	}, name)
}

// hoist puts the definitions of a schema under components: AsyncAPI's own schemas are a superset of
// draft 07, which has no $defs, and references start from the document.
func (out *asyncAPI) hoist(key string, data *jsonschema.Schema) *jsonschema.Schema {
	const components = "#/components/schemas/"
	rename := func(reference string) string {
		if name, isDef := strings.CutPrefix(reference, "#/$defs/"); isDef {
			return components + key + "." + plain(name)
		}
		return components + key
	}
	for name, s := range data.Defs {
		out.Components.Schemas[key+"."+plain(name)] = s.Rewrite(rename)
	}
	whole := data.Rewrite(rename)
	whole.Dialect, whole.ID, whole.Defs = "", "", nil
	out.Components.Schemas[key] = whole
	return &jsonschema.Schema{Ref: components + key}
}

// payload is the schema of a whole message.
func (b *broker) payload(wireType, member string, data *jsonschema.Schema) *jsonschema.Schema {
	typeOf, _ := json.Marshal(wireType) //nolint:errchkjson // a string
	constant := &jsonschema.Schema{Type: jsonschema.Types{jsonschema.String}, Const: typeOf}
	whole := b.Envelope.With(member, data, true)
	if b.Format == envelope.FormatCloudEvents {
		for name, s := range b.Extensions {
			whole = whole.With(name, s, false)
		}
		return whole.With("type", constant, true)
	}
	metadata := whole.Properties["metadata"]
	if metadata == nil { // of a file that was written by hand
		return whole
	}
	if headers := metadata.Properties["headers"]; headers != nil {
		metadata = metadata.With("headers", headers.With("type", constant, true), true)
	}
	if len(b.Extensions) > 0 {
		extensions := &jsonschema.Schema{Type: jsonschema.Types{jsonschema.Object}, Properties: b.Extensions}
		metadata = metadata.With("extensions", extensions, false)
	}
	return whole.With("metadata", metadata, true)
}
