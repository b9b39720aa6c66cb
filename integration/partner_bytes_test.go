package integration_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/apipb"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/protobuf"
	"github.com/gorm-fanout/fanout/uow"
)

// What partners get, and nothing else: the members of both forms in their order. A member that is
// added to what leaves, loses its omission or moves fails the test below until it is written here.
// Those that only leave where a broker lists them are in structs of their own.
type (
	nativeBytes[H, D any] struct {
		Data     json.RawMessage `json:"data"`
		Metadata struct {
			Headers  H `json:"headers"`
			Domain   D `json:"domain"`
			Envelope struct {
				SpecVersion string `json:"specversion"`
			} `json:"envelope"`
			Extensions *ownBytes `json:"extensions,omitempty"`
		} `json:"metadata"`
	}
	leanHeaders struct {
		ID          string      `json:"id"`
		Time        string      `json:"time"`
		Type        string      `json:"type"`
		Stream      string      `json:"stream"`
		TraceParent *traceBytes `json:"traceparent,omitempty"`
		Deadline    string      `json:"deadline,omitempty"`
	}
	leanDomain struct {
		Kind           string `json:"kind"`
		StreamCategory string `json:"stream_category"`
		Version        int    `json:"version"`
		SequenceID     string `json:"sequence_id,omitempty"`
		CorrelationID  string `json:"correlation_id,omitempty"`
		CausationID    string `json:"causation_id,omitempty"`
	}
	// With include: [fqn, origin_stream, idempotency_key, nulls].
	fullHeaders struct {
		ID             string      `json:"id"`
		Time           string      `json:"time"`
		Type           string      `json:"type"`
		Stream         string      `json:"stream"`
		TraceParent    *traceBytes `json:"traceparent"`
		IdempotencyKey *string     `json:"idempotency_key"`
		Deadline       *string     `json:"deadline"`
	}
	fullDomain struct {
		FQN            string  `json:"fqn"`
		Kind           string  `json:"kind"`
		OriginStream   *string `json:"origin_stream"`
		StreamCategory string  `json:"stream_category"`
		Version        int     `json:"version"`
		SequenceID     string  `json:"sequence_id,omitempty"`
		CorrelationID  *string `json:"correlation_id"`
		CausationID    *string `json:"causation_id"`
	}
	traceBytes struct {
		TraceID  string `json:"trace_id"`
		ParentID string `json:"parent_id"`
		Sampled  bool   `json:"sampled"`
	}
	ownBytes struct {
		Actor    string `json:"actor"`
		Own      string `json:"own"`
		TenantID string `json:"tenant_id"`
	}
	cloudBytes struct {
		SpecVersion     string          `json:"specversion"`
		ID              string          `json:"id"`
		Source          string          `json:"source"`
		Type            string          `json:"type"`
		Subject         string          `json:"subject,omitempty"`
		Time            string          `json:"time"`
		DataContentType string          `json:"datacontenttype"`
		TraceParent     string          `json:"traceparent,omitempty"`
		TraceState      string          `json:"tracestate,omitempty"` // where it is listed
		PartitionKey    string          `json:"partitionkey,omitempty"`
		Sequence        string          `json:"sequence,omitempty"`
		CorrelationID   string          `json:"correlationid,omitempty"`
		CausationID     string          `json:"causationid,omitempty"`
		Actor           string          `json:"actor,omitempty"`    // where it is listed
		Own             string          `json:"own,omitempty"`      // where it is listed
		TenantID        string          `json:"tenantid,omitempty"` // where it is listed
		Data            json.RawMessage `json:"data,omitempty"`
		Base64          []byte          `json:"data_base64,omitempty"` // in place of data, for a Protobuf message
	}
)

// A partnerForm is what a broker's configuration says of the messages, beside its place.
type partnerForm struct {
	name     string // its destination has it, too
	settings string
	cloud    bool // CloudEvents
	all      bool // lists all that can be listed
}

var partnerForms = []partnerForm{
	{name: "native"},
	{name: "cloudevents", settings: ", format: cloudevents", cloud: true},
	{
		name:     "native-all",
		settings: ", extensions: [tenant_id, actor, own], include: [fqn, origin_stream, idempotency_key, nulls, tracestate]", all: true,
	},
	{name: "cloudevents-all", settings: ", format: cloudevents, extensions: [tenant_id, actor, own], include: [tracestate]", cloud: true, all: true},
}

const inHouse = "never-to-be-seen-outside"

// Truck is an aggregate with a version: its events have a sequence.
type Truck struct {
	ID      string
	Version int64
	uow.Aggregate
}

// Departed and Idled go to partners, the former with whatever can be known of an event. Hauled does as a Protobuf message.
// Inspected stays inside.
type (
	Hauled    struct{ Name, Secret string }
	Departed  struct{ Name, Note string }
	Idled     struct{}
	Inspected struct{ Secret string }
)

// A partnerEvent is what the test itself knows of an event that goes to partners. What is empty
// the event does not have.
type partnerEvent struct {
	name                                          string
	data                                          []byte // inside
	message                                       []byte // a Protobuf message that leaves, in its encoding
	id                                            string
	at                                            time.Time
	eventType, fqn, category, stream, subject     string
	key, sequence, padded, correlation, causation string
	tenant, actor, own, idempotencyKey, origin    string
	trace                                         *traceBytes
	traceParent, traceState                       string
	ttl                                           time.Duration
	priority                                      int
	// What it has more where everything is listed: members, also those that are null, and attributes.
	listedNative, listedCloud []string
}

// Each adapter is given events of GORM by a real relay, in both forms, with all that can be listed
// and without. What lies at the partner's is compared with what this test makes of its own
// knowledge: the payload byte by byte, and each field beside it.
func TestOnlyTheseBytesReachPartners(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) *partner{
		"memory": memoryPartner, "redis": redisPartner, "webhook": webhookPartner, "rabbitmq": rabbitPartner,
		"kafka": kafkaPartner, "nats": natsPartner, "pubsub": pubsubPartner, "watermill": watermillPartner,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t)
			depot, dsn := newDepot(t, p)
			inside := memory.New()
			relay, err := fanout.Open(t.Context(), depot.cfg, slices.Concat([]fanout.Option{
				fanout.WithBroker("default", inside), fanout.WithLogger(slog.New(slog.DiscardHandler)), fanout.WithDB("default", depot.db),
			}, p.options)...)
			require.NoError(t, err, dsn)
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- relay.Run(ctx) }()
			t.Cleanup(func() {
				stop()
				assert.NoError(t, <-done)
			})
			eventually(t, func() bool {
				var open int64
				require.NoError(t, depot.db.Table("outbox_messages").Where("status <> 'published'").Count(&open).Error)
				return open == 0
			})
			depot.identify(inside)

			var payloads [4][]string // of each form, in the order of the events
			for i, form := range partnerForms {
				arrived := p.arrived(t, form)
				assert.Len(t, arrived, len(depot.events), form.name)
				for _, e := range depot.events {
					at := slices.IndexFunc(arrived, func(a arrival) bool {
						return strings.Contains(a.payload, e.id) || e.message != nil && a.payload == string(e.message)
					})
					require.GreaterOrEqual(t, at, 0, "%s: %s has not arrived", form.name, e.name)
					assert.Equal(t, e.bytes(t, form), arrived[at].payload, "%s: %s", form.name, e.name)
					assert.Equal(t, p.fields(t, e, form, arrived[at]), arrived[at].fields, "%s: %s", form.name, e.name)
					payloads[i] = append(payloads[i], arrived[at].payload)
				}
			}
			for i, e := range depot.events {
				if e.message == nil {
					assert.ElementsMatch(t, e.listedNative, addedMembers(t, payloads[0][i], payloads[2][i]), e.name)
				}
				assert.ElementsMatch(t, e.listedCloud, addedMembers(t, payloads[1][i], payloads[3][i]), e.name)
			}
		})
	}
}

// addedMembers are those that a second payload has, and the first has not.
func addedMembers(t *testing.T, lean, full string) []string {
	t.Helper()
	has := members(t, lean, "", "data")
	return slices.DeleteFunc(members(t, full, "", "data"), func(name string) bool { return slices.Contains(has, name) })
}

// A depot commits events, and remembers what is to be known of them.
type depot struct {
	*testing.T

	cfg    *config.Config
	db     *gorm.DB
	events []*partnerEvent
	number *rand.Rand
	seed   int
	begun  time.Time
}

// newDepot opens a database and has committed events for a partner.
func newDepot(t *testing.T, p *partner) (d *depot, dsn string) {
	t.Helper()
	dsn = filepath.Join(t.TempDir(), "depot.db")
	seed := testenv.Seed(t)
	d = &depot{
		T: t, number: rand.New(rand.NewPCG(uint64(seed), 0)), seed: int(seed % 1e9), begun: time.Now().Truncate(time.Microsecond),
	}
	var names, sections []string
	for _, form := range partnerForms {
		names = append(names, "partner-"+form.name)
		sections = append(sections, "  partner-"+form.name+": {"+p.settings(form)+form.settings+"}\n")
	}
	cfg, err := config.Parse(fmt.Appendf(nil, "databases: {default: {driver: sqlite, dsn: %q}}\noutbox: {external_brokers: [%s]}\nbrokers:\n  default: {type: memory}\n%s",
		dsn, strings.Join(names, ", "), strings.Join(sections, "")), "fanout.yaml")
	require.NoError(t, err)
	d.cfg = cfg
	migrate(t, cfg, dsn)
	db, err := gorm.Open(sqlite.Open(dsn+"?_pragma=busy_timeout(10000)"), &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	sqlDB, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, sqlDB.Close()) })
	require.NoError(t, db.AutoMigrate(&Truck{}))
	d.db = db
	events := envelope.NewCatalog("depot")
	envelope.Register[Departed](events, envelope.Published())
	envelope.Register[Idled](events, envelope.Published())
	envelope.Register[Hauled](events, envelope.Published(protobuf.As(func(e Hauled) *apipb.Mixin { return &apipb.Mixin{Name: e.Name} })))
	envelope.Register[Inspected](events)
	require.NoError(t, db.Use(gormplugin.New(events, cfg.Routing())))
	d.commitAll(events)
	return d, dsn
}

// text is one that every broker carries as it is, but for webhooks, which escape what is no ASCII.
func (d *depot) text() string {
	d.seed++
	return rapid.StringMatching(`[!-$&-~][ -$&-~]{0,8}(ß|☃|[!-$&-~])`).Example(d.seed)
}

func (d *depot) commitAll(events *envelope.Catalog) {
	d.Helper()
	listed := []string{"metadata.domain.fqn", "metadata.domain.origin_stream", "metadata.headers.idempotency_key"}
	own := append([]string{"metadata.extensions", "metadata.extensions.actor", "metadata.extensions.own", "metadata.extensions.tenant_id"}, listed...)
	cloud := []string{"actor", "own", "tenantid", "tracestate"}
	nulls := append([]string{"metadata.domain.causation_id", "metadata.headers.deadline"}, listed...)

	// All that a context can have. Whether its origin was published is not known.
	e := &partnerEvent{name: "known", correlation: d.text(), causation: d.text(), tenant: d.text(), actor: d.text(), listedNative: own, listedCloud: cloud}
	ctx := envelope.WithOriginStream(d.Context(), inHouse)
	ctx = envelope.WithCausationID(envelope.WithCorrelationID(ctx, e.correlation), e.causation)
	ctx = envelope.WithActor(envelope.WithTenantID(ctx, e.tenant), e.actor)
	key := d.text()
	d.depart(d.know(ctx, e), e, envelope.Key(func(Departed) string { return key }))
	e.key = key

	// A consumer's: of a message that partners may know, and of one that they may not.
	for _, cause := range []any{Departed{}, Inspected{inHouse}} {
		e := &partnerEvent{
			name: fmt.Sprintf("caused by %T", cause), correlation: d.text(), tenant: d.text(), actor: d.text(), listedNative: own, listedCloud: cloud,
		}
		consumed := d.consumed(events, cause, envelope.Context{
			CorrelationID: e.correlation, CausationID: inHouse, TenantID: e.tenant, Actor: e.actor, IdempotencyKey: inHouse, OriginStream: inHouse,
		})
		e.causation = consumed.Metadata.Headers.ID.String()
		if _, published := cause.(Departed); published {
			e.origin = "depot::truck-cause"
		}
		d.depart(d.know(envelope.WithCause(d.Context(), consumed), e), e)
	}

	// A contract that is a Protobuf message.
	e = &partnerEvent{name: "hauled", correlation: d.text(), causation: d.text(), tenant: d.text(), actor: d.text(), listedCloud: cloud}
	ctx = envelope.WithCausationID(envelope.WithCorrelationID(d.Context(), e.correlation), e.causation)
	ctx = d.know(envelope.WithActor(envelope.WithTenantID(ctx, e.tenant), e.actor), e)
	d.haul(ctx, e)

	// No order is asked for, and there is nothing but the trace.
	e = &partnerEvent{name: "unordered", listedNative: nulls, listedCloud: cloud[3:]}
	d.depart(d.traced(d.Context(), e), e, envelope.Unordered())
	e.key = ""

	// Nothing at all, not even an aggregate.
	d.events = append(d.events, &partnerEvent{
		name: "nothing", data: []byte(`{}`), eventType: "Depot.Idled.v1", fqn: "github.com/gorm-fanout/fanout/integration_test.Idled",
		category: "depot", stream: "depot", listedNative: append([]string{"metadata.headers.traceparent"}, nulls...),
	})
	require.NoError(d, d.db.Transaction(func(tx *gorm.DB) error { return uow.Publish(tx, Idled{}) }))
}

// consumed is a message as its consumer has it.
func (d *depot) consumed(events *envelope.Catalog, data any, cx envelope.Context) *envelope.Message {
	d.Helper()
	m, err := events.Seal(envelope.NewEvent(data), envelope.Source{Aggregate: "Truck", ID: "cause"}, cx)
	require.NoError(d, err)
	payload, err := m.MarshalInternal()
	require.NoError(d, err)
	m, err = envelope.DecodeInternal(payload)
	require.NoError(d, err)
	return m
}

// know adds what an event knows of a request beside those who caused it.
func (d *depot) know(ctx context.Context, e *partnerEvent) context.Context {
	e.idempotencyKey, e.own, e.priority = d.text(), d.text(), d.number.IntN(101) // of one class, as an aggregate's events should be
	ctx = envelope.WithIdempotencyKey(ctx, e.idempotencyKey)
	ctx = envelope.WithPriority(ctx, envelope.PriorityLevel(e.priority))
	ctx = envelope.WithExtension(envelope.WithExtension(ctx, "own", e.own), "secret", inHouse)
	return d.traced(ctx, e)
}

func (d *depot) traced(ctx context.Context, e *partnerEvent) context.Context {
	sampled := d.number.IntN(2)
	e.trace = &traceBytes{
		TraceID: fmt.Sprintf("%016x%016x", d.number.Uint64(), d.number.Uint64()|1), ParentID: fmt.Sprintf("%016x", d.number.Uint64()|1), Sampled: sampled == 1,
	}
	e.traceParent = fmt.Sprintf("00-%s-%s-%02d", e.trace.TraceID, e.trace.ParentID, sampled)
	e.traceState = fmt.Sprintf("vendor=a:%d", d.number.Uint32())
	return envelope.WithTrace(ctx, e.traceParent, e.traceState)
}

// depart commits a truck with an event that goes to partners, behind one that does not.
func (d *depot) depart(ctx context.Context, e *partnerEvent, opts ...envelope.Option) {
	d.Helper()
	truck := &Truck{ID: fmt.Sprint(len(d.events), d.text()), Version: 1 + d.number.Int64N(1000)}
	truck.Raise(Inspected{inHouse})
	event := Departed{e.name, d.text()}
	if e.own != "" {
		e.ttl = time.Hour + time.Duration(d.number.IntN(1e6))*time.Millisecond
		opts = append(opts, envelope.TTL(e.ttl))
	}
	truck.Raise(event, append(opts, envelope.Extension("secret", inHouse))...)
	e.data, e.eventType, e.fqn = compact(d.T, event), "Depot.Departed.v1", "github.com/gorm-fanout/fanout/integration_test.Departed"
	e.category, e.subject, e.stream = "depot::truck", truck.ID, "depot::truck-"+truck.ID
	e.key, e.sequence, e.padded = e.stream, fmt.Sprintf("%d.2", truck.Version), fmt.Sprintf("%019d.0000000002", truck.Version)
	d.events = append(d.events, e)
	require.NoError(d, d.db.WithContext(ctx).Create(truck).Error)
}

// haul commits a truck with an event of which partners get a Protobuf message.
func (d *depot) haul(ctx context.Context, e *partnerEvent) {
	d.Helper()
	truck := &Truck{ID: fmt.Sprint(len(d.events), d.text()), Version: 1 + d.number.Int64N(1000)}
	event := Hauled{e.name, inHouse}
	truck.Raise(event)
	e.data, e.eventType, e.fqn = compact(d.T, event), "Depot.Hauled.v1", ""
	e.message = append([]byte{1<<3 | 2, byte(len(e.name))}, e.name...) // the field 1, as text
	e.category, e.subject, e.stream = "depot::truck", truck.ID, "depot::truck-"+truck.ID
	e.key, e.sequence, e.padded = e.stream, fmt.Sprintf("%d.1", truck.Version), fmt.Sprintf("%019d.0000000001", truck.Version)
	d.events = append(d.events, e)
	require.NoError(d, d.db.WithContext(ctx).Create(truck).Error)
}

// identify takes from what the internal broker got what the library chooses for an event: its id
// its time, and the correlation id of one whose context had none: the id of the first of its unit of
// work, which for those of a truck is one that stays inside.
func (d *depot) identify(inside *memory.Broker) {
	d.Helper()
	first := map[string]string{}
	for _, destination := range inside.Destinations() {
		for _, m := range inside.Messages(destination) {
			var internal struct {
				Data     json.RawMessage
				Metadata struct {
					Headers struct {
						ID, Type, Stream string
						Time             time.Time
					}
				}
			}
			require.NoError(d, json.Unmarshal(m.Payload, &internal))
			h := internal.Metadata.Headers
			if h.Type == "Depot.Inspected.v1" {
				first[h.Stream] = h.ID
			}
			for _, e := range d.events {
				if e.eventType == h.Type && bytes.Equal(e.data, internal.Data) {
					e.id, e.at = h.ID, h.Time
				}
			}
		}
	}
	for _, e := range d.events {
		e.correlation = cmp.Or(e.correlation, first[e.stream], e.id)
		id, err := uuid.Parse(e.id)
		require.NoError(d, err, e.name)
		assert.EqualValues(d, 7, id.Version())
		assert.WithinRange(d, e.at, d.begun, time.Now())
	}
}

// compact is a value as the library writes JSON: without spaces, and without escapes for HTML.
func compact(t *testing.T, value any) []byte {
	t.Helper()
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	require.NoError(t, encoder.Encode(value))
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// bytes are the payload that a partner may get.
func (e *partnerEvent) bytes(t *testing.T, form partnerForm) string {
	t.Helper()
	const layout = "2006-01-02T15:04:05.000000Z"
	at, deadline := e.at.UTC().Format(layout), ""
	if e.ttl > 0 {
		deadline = e.at.UTC().Add(e.ttl).Format(layout)
	}
	switch {
	case form.cloud:
		cloud := cloudBytes{
			SpecVersion: "1.0", ID: e.id, Source: "/" + strings.ReplaceAll(e.category, "::", "/"), Type: e.eventType, Subject: e.subject, Time: at,
			DataContentType: cmp.Or(e.messageType(), "application/json"), TraceParent: e.traceParent, PartitionKey: e.key, Sequence: e.padded, CorrelationID: e.correlation,
			CausationID: e.causation, Data: e.data, Base64: e.message,
		}
		if e.message != nil {
			cloud.Data = nil
		}
		if form.all {
			cloud.TraceState, cloud.Actor, cloud.Own, cloud.TenantID = e.traceState, e.actor, e.own, e.tenant
		}
		return string(compact(t, cloud))
	case e.message != nil:
		return string(e.message)
	case form.all:
		var native nativeBytes[fullHeaders, fullDomain]
		native.Data = e.data
		native.Metadata.Headers = fullHeaders{
			ID: e.id, Time: at, Type: e.eventType, Stream: e.stream, TraceParent: e.trace, IdempotencyKey: orNull(e.idempotencyKey), Deadline: orNull(deadline),
		}
		native.Metadata.Domain = fullDomain{
			FQN: e.fqn, Kind: "EVENT", OriginStream: orNull(e.origin), StreamCategory: e.category, Version: 1, SequenceID: e.sequence,
			CorrelationID: orNull(e.correlation), CausationID: orNull(e.causation),
		}
		native.Metadata.Envelope.SpecVersion = "1.0"
		if e.own != "" {
			native.Metadata.Extensions = &ownBytes{Actor: e.actor, Own: e.own, TenantID: e.tenant}
		}
		return string(compact(t, native))
	default:
		var native nativeBytes[leanHeaders, leanDomain]
		native.Data = e.data
		native.Metadata.Headers = leanHeaders{ID: e.id, Time: at, Type: e.eventType, Stream: e.stream, TraceParent: e.trace, Deadline: deadline}
		native.Metadata.Domain = leanDomain{
			Kind: "EVENT", StreamCategory: e.category, Version: 1, SequenceID: e.sequence, CorrelationID: e.correlation, CausationID: e.causation,
		}
		native.Metadata.Envelope.SpecVersion = "1.0"
		return string(compact(t, native))
	}
}

// orNull is nil for a value that there is not.
func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// flat are the fields beside a message, by the names that most brokers have for them.
func (e *partnerEvent) flat(form partnerForm) fields {
	f := fields{}
	f.add("id", e.id)
	f.add("type", e.eventType)
	f.add("ordering_key", e.key)
	f.add("correlation_id", e.correlation)
	f.add("traceparent", e.traceParent)
	if contentType := e.contentType(form); contentType != "application/json" {
		f.add("content-type", contentType)
	}
	if e.message != nil && !form.cloud { // what else is in the envelope
		f.add("time", e.at.UTC().Format("2006-01-02T15:04:05.000000Z"))
		f.add("sequence_id", e.sequence)
		f.add("causation_id", e.causation)
	}
	if form.all {
		f.add("tracestate", e.traceState)
	}
	return f
}

// messageType is the content type of the message; empty where the data is JSON.
func (e *partnerEvent) messageType() string {
	if e.message == nil {
		return ""
	}
	return "application/protobuf; proto=google.protobuf.Mixin"
}

// contentType is for brokers that always have one.
func (e *partnerEvent) contentType(form partnerForm) string {
	return cmp.Or(map[bool]string{true: "application/cloudevents+json"}[form.cloud], e.messageType(), "application/json")
}

// members lists the names in an object, with those in objects in it but for the opaque ones.
func members(t *testing.T, text, path string, opaque ...string) []string {
	t.Helper()
	var (
		values map[string]json.RawMessage
		list   []string
	)
	require.NoError(t, json.Unmarshal([]byte(text), &values), "%s", text)
	for name, value := range values {
		list = append(list, path+name)
		if value[0] == '{' && !slices.Contains(opaque, name) {
			list = append(list, members(t, string(value), path+name+".", opaque...)...)
		}
	}
	return list
}
