package integration_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats-server/v2/server"
	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
	"github.com/gorm-fanout/fanout/brokers/kafka"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/brokers/nats"
	"github.com/gorm-fanout/fanout/brokers/watermill"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// A partner is a broker with a place for each form, and how messages lie there.
type partner struct {
	settings func(form partnerForm) string // in the configuration
	options  []fanout.Option
	arrived  func(t *testing.T, form partnerForm) []arrival
	// fields are those that a message may have. Of the arrival they have what differs from one
	// delivery to the next, such as the time, when that has been checked.
	fields func(t *testing.T, e *partnerEvent, form partnerForm, a arrival) fields
}

// An arrival is a message as a plain client of the broker finds it.
type arrival struct {
	payload string
	fields  fields
}

// fields are all that is beside a payload, by name. A name can be there more than once. What has
// no name on the wire is in brackets.
type fields map[string][]string

// add adds a field that has a value.
func (f fields) add(name, value string) {
	if value != "" {
		f[name] = append(f[name], value)
	}
}

// rename gives a field another name.
func (f fields) rename(name, to string) fields {
	if values, found := f[name]; found {
		delete(f, name)
		f[to] = values
	}
	return f
}

func memoryPartner(*testing.T) *partner {
	p := &partner{settings: func(partnerForm) string { return "type: memory" }}
	received := map[string]*memory.Broker{}
	for _, form := range partnerForms {
		received[form.name] = memory.New()
		p.options = append(p.options, fanout.WithBroker("partner-"+form.name, received[form.name]))
	}
	p.arrived = func(_ *testing.T, form partnerForm) (arrived []arrival) {
		for _, destination := range received[form.name].Destinations() {
			for _, m := range received[form.name].Messages(destination) {
				f := fields{}
				f.add("id", m.ID)
				f.add("(destination)", m.Destination)
				f.add("type", m.Type)
				f.add("ordering_key", m.OrderingKey)
				f.add("(priority)", strconv.Itoa(m.Priority))
				f.add("content-type", m.ContentType)
				f.add("correlation_id", m.CorrelationID)
				if m.ExpiresIn != 0 {
					f.add("(expires in)", m.ExpiresIn.String())
				}
				for _, attribute := range m.Attributes {
					f[attribute.Name] = append(f[attribute.Name], attribute.Value)
				}
				arrived = append(arrived, arrival{string(m.Payload), f})
			}
		}
		return arrived
	}
	p.fields = func(t *testing.T, e *partnerEvent, form partnerForm, a arrival) fields {
		t.Helper()
		f := e.flat(form)
		f.add("(destination)", e.category)
		f.add("(priority)", strconv.Itoa(e.priority))
		f["content-type"] = []string{e.contentType(form)}
		if e.ttl > 0 {
			left, err := time.ParseDuration(strings.Join(a.fields["(expires in)"], ""))
			require.NoError(t, err)
			f.add("(expires in)", left.String())
			assert.LessOrEqual(t, left, e.ttl)
			assert.Positive(t, left)
		}
		return f
	}
	return p
}

func redisPartner(t *testing.T) *partner {
	t.Helper()
	url, prefix := testenv.Redis(t), testenv.RedisPrefix(t)
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return &partner{
		settings: func(form partnerForm) string {
			return fmt.Sprintf("type: redis, url: %q, destination: %q", url, prefix+form.name)
		},
		arrived: func(t *testing.T, form partnerForm) (arrived []arrival) {
			t.Helper()
			// XRange would make a map of the fields, and lose those that are there twice.
			entries, err := client.Do(t.Context(), "XRANGE", prefix+form.name, "-", "+").Slice()
			require.NoError(t, err)
			for _, entry := range entries {
				pairs, f := entry.([]any)[1].([]any), fields{}
				for i := 0; i < len(pairs); i += 2 {
					f[pairs[i].(string)] = append(f[pairs[i].(string)], pairs[i+1].(string))
				}
				require.Len(t, f["data"], 1)
				arrived = append(arrived, arrival{f["data"][0], f})
				delete(f, "data")
			}
			return arrived
		},
		fields: func(_ *testing.T, e *partnerEvent, form partnerForm, _ arrival) fields { return e.flat(form) },
	}
}

func webhookPartner(t *testing.T) *partner {
	t.Helper()
	var (
		mu       sync.Mutex
		received = map[string][]arrival{} // by path
	)
	key, begun := []byte("a key of this test that has 32 b"), time.Now()
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		f := fields(r.Header.Clone())
		f.add("(request)", r.Method+" "+r.RequestURI+" "+r.Proto)
		f.add("(transfer encoding)", strings.Join(r.TransferEncoding, ","))
		mu.Lock()
		defer mu.Unlock()
		received[r.URL.Path] = append(received[r.URL.Path], arrival{string(body), f})
	}))
	t.Cleanup(endpoint.Close)
	return &partner{
		settings: func(form partnerForm) string {
			return fmt.Sprintf("type: webhook, url: %q, secrets: [%q], allow_http: true, allow_private_networks: true",
				endpoint.URL+"/"+form.name, "whsec_"+base64.StdEncoding.EncodeToString(key))
		},
		arrived: func(_ *testing.T, form partnerForm) []arrival {
			mu.Lock()
			defer mu.Unlock()
			return received["/"+form.name]
		},
		fields: func(t *testing.T, e *partnerEvent, form partnerForm, a arrival) fields {
			t.Helper()
			f := e.flat(form).rename("id", "Webhook-Id").rename("type", "Fanout-Type").rename("ordering_key", "Fanout-Ordering-Key").
				rename("correlation_id", "Fanout-Correlation-Id").rename("traceparent", "Traceparent").rename("tracestate", "Tracestate").
				rename("time", "Fanout-Time").rename("sequence_id", "Fanout-Sequence-Id").rename("causation_id", "Fanout-Causation-Id")
			delete(f, "content-type")
			f.add("Content-Type", e.contentType(form))
			f.add("Fanout-Destination", e.category)
			for _, values := range f {
				values[0] = percentEncoded(values[0])
			}
			f.add("(request)", "POST /"+form.name+" HTTP/1.1")
			f.add("User-Agent", "fanout-webhook/1")
			f.add("Content-Length", strconv.Itoa(len(a.payload)))
			sent := strings.Join(a.fields["Webhook-Timestamp"], ",")
			f.add("Webhook-Timestamp", sent)
			at, err := strconv.ParseInt(sent, 10, 64)
			require.NoError(t, err)
			assert.WithinRange(t, time.Unix(at, 0), begun.Truncate(time.Second), time.Now())
			mac := hmac.New(sha256.New, key)
			fmt.Fprintf(mac, "%s.%s.%s", e.id, sent, a.payload)
			f.add("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
			return f
		},
	}
}

// percentEncoded is a text as the value of a header.
func percentEncoded(text string) string {
	var out strings.Builder
	for i := range len(text) {
		if c := text[i]; c > '~' {
			fmt.Fprintf(&out, "%%%02X", c)
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}

func rabbitPartner(t *testing.T) *partner {
	t.Helper()
	url, prefix := testenv.RabbitMQ(t), testenv.RabbitMQPrefix(t)
	conn, err := amqp.Dial(url)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	channel, err := conn.Channel()
	require.NoError(t, err)
	exchange := prefix + "partners"
	require.NoError(t, channel.ExchangeDeclare(exchange, amqp.ExchangeTopic, true, false, false, false, nil))
	t.Cleanup(func() { assert.NoError(t, channel.ExchangeDelete(exchange, false, false)) })
	for _, form := range partnerForms { // exclusive queues end with the connection
		_, err = channel.QueueDeclare(prefix+form.name, false, false, true, false, nil)
		require.NoError(t, err)
		require.NoError(t, channel.QueueBind(prefix+form.name, form.name, exchange, false, nil))
	}
	return &partner{
		settings: func(form partnerForm) string {
			return fmt.Sprintf("type: rabbitmq, url: %q, exchange: %q, destination: %q", url, exchange, form.name)
		},
		arrived: func(t *testing.T, form partnerForm) (arrived []arrival) {
			t.Helper()
			for {
				m, more, err := channel.Get(prefix+form.name, true)
				require.NoError(t, err)
				if !more {
					return arrived
				}
				f := fields{}
				for name, value := range m.Headers {
					f[name] = append(f[name], fmt.Sprint(value))
				}
				for name, value := range map[string]any{
					"content type": m.ContentType, "content encoding": m.ContentEncoding, "delivery mode": m.DeliveryMode, "priority": m.Priority,
					"correlation id": m.CorrelationId, "reply to": m.ReplyTo, "expiration": m.Expiration, "message id": m.MessageId, "type": m.Type,
					"user id": m.UserId, "app id": m.AppId, "exchange": m.Exchange, "routing key": m.RoutingKey,
				} {
					f.add("("+name+")", fmt.Sprint(value))
				}
				if !m.Timestamp.IsZero() {
					f.add("(timestamp)", m.Timestamp.String())
				}
				arrived = append(arrived, arrival{string(m.Body), f})
			}
		},
		fields: func(t *testing.T, e *partnerEvent, form partnerForm, a arrival) fields {
			t.Helper()
			f := e.flat(form).rename("id", "(message id)").rename("type", "(type)").rename("correlation_id", "(correlation id)")
			delete(f, "content-type")
			f.add("(content type)", e.contentType(form))
			f.add("(delivery mode)", "2") // persistent
			f.add("(priority)", strconv.Itoa((e.priority+100)*9/200))
			f.add("(exchange)", exchange)
			f.add("(routing key)", form.name)
			if e.ttl > 0 {
				left := strings.Join(a.fields["(expiration)"], ",")
				f.add("(expiration)", left)
				milliseconds, err := strconv.Atoi(left)
				require.NoError(t, err)
				assert.LessOrEqual(t, milliseconds, int(e.ttl.Milliseconds()))
			}
			return f
		},
	}
}

func kafkaPartner(t *testing.T) *partner {
	t.Helper()
	topics := make([]string, len(partnerForms))
	for i, form := range partnerForms {
		topics[i] = form.name
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topics...))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	begun := time.Now().Truncate(time.Millisecond)
	return &partner{
		options: []fanout.Option{fanout.WithBrokerType(kafka.Type())},
		settings: func(form partnerForm) string {
			return fmt.Sprintf("type: kafka, bootstrap_servers: %q, destination: %q", strings.Join(cluster.ListenAddrs(), ","), form.name)
		},
		arrived: func(t *testing.T, form partnerForm) (arrived []arrival) {
			t.Helper()
			client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics(form.name))
			require.NoError(t, err)
			defer client.Close()
			offsets, err := kadm.NewClient(client).ListEndOffsets(t.Context(), form.name)
			require.NoError(t, err)
			end, found := offsets.Lookup(form.name, 0)
			require.True(t, found)
			for int64(len(arrived)) < end.Offset {
				fetches := client.PollFetches(t.Context())
				require.NoError(t, fetches.Err())
				for _, record := range fetches.Records() {
					f := fields{}
					f.add("(topic)", record.Topic)
					f.add("(key)", string(record.Key))
					for _, header := range record.Headers {
						f[header.Key] = append(f[header.Key], string(header.Value))
					}
					assert.WithinRange(t, record.Timestamp, begun, time.Now())
					arrived = append(arrived, arrival{string(record.Value), f})
				}
			}
			return arrived
		},
		fields: func(_ *testing.T, e *partnerEvent, form partnerForm, _ arrival) fields {
			f := e.flat(form)
			f.add("(topic)", form.name)
			f.add("(key)", e.key)
			return f
		},
	}
}

func natsPartner(t *testing.T) *partner {
	t.Helper()
	node, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	require.NoError(t, err)
	node.Start()
	t.Cleanup(func() {
		node.Shutdown()
		node.WaitForShutdown()
	})
	require.True(t, node.ReadyForConnections(time.Minute))
	conn, err := natsclient.Connect(node.ClientURL())
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	return &partner{
		options: []fanout.Option{fanout.WithBrokerType(nats.Type())},
		settings: func(form partnerForm) string {
			return fmt.Sprintf("type: nats, url: %q, create_destinations: true, destination: %q", node.ClientURL(), form.name)
		},
		arrived: func(t *testing.T, form partnerForm) (arrived []arrival) {
			t.Helper()
			stream, err := js.Stream(t.Context(), form.name)
			require.NoError(t, err)
			for i := range stream.CachedInfo().State.Msgs {
				m, err := stream.GetMsg(t.Context(), i+1)
				require.NoError(t, err)
				f := fields(m.Header)
				f.add("(subject)", m.Subject)
				arrived = append(arrived, arrival{string(m.Data), f})
			}
			return arrived
		},
		fields: func(_ *testing.T, e *partnerEvent, form partnerForm, _ arrival) fields {
			f := e.flat(form)
			f.add("(subject)", form.name)
			f.add("Nats-Msg-Id", e.id+"@"+form.name)
			return f
		},
	}
}

func pubsubPartner(t *testing.T) *partner {
	t.Helper()
	fake := pstest.NewServer()
	t.Cleanup(func() { assert.NoError(t, fake.Close()) })
	const topics = "projects/acme/topics/"
	for _, form := range partnerForms {
		_, err := fake.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topics + form.name})
		require.NoError(t, err)
	}
	return &partner{
		options: []fanout.Option{fanout.WithBrokerType(gcppubsub.Type())},
		settings: func(form partnerForm) string {
			return fmt.Sprintf("type: pubsub, project: acme, endpoint: %q, destination: %q", fake.Addr, form.name)
		},
		arrived: func(_ *testing.T, form partnerForm) (arrived []arrival) {
			for _, m := range fake.Messages() {
				if m.Topic != topics+form.name {
					continue
				}
				f := fields{}
				f.add("(ordering key)", m.OrderingKey)
				for name, value := range m.Attributes {
					f[name] = append(f[name], value)
				}
				arrived = append(arrived, arrival{string(m.Data), f})
			}
			return arrived
		},
		fields: func(_ *testing.T, e *partnerEvent, form partnerForm, _ arrival) fields {
			f := e.flat(form).rename("ordering_key", "(ordering key)")
			if form.cloud {
				f.add("Content-Type", e.contentType(form))
			}
			return f
		},
	}
}

// A recordedPublisher is a publisher of Watermill's that keeps what it is given.
type recordedPublisher struct {
	mu       sync.Mutex
	received []arrival
}

func (p *recordedPublisher) Publish(topic string, messages ...*message.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range messages {
		f := fields{}
		f.add("(topic)", topic)
		f.add("(uuid)", m.UUID)
		for name, value := range m.Metadata {
			f[name] = append(f[name], value)
		}
		p.received = append(p.received, arrival{string(m.Payload), f})
	}
	return nil
}

func (p *recordedPublisher) Close() error { return nil }

func watermillPartner(*testing.T) *partner {
	p := &partner{settings: func(partnerForm) string { return "type: watermill" }}
	publishers := map[string]*recordedPublisher{}
	for _, form := range partnerForms {
		publishers[form.name] = &recordedPublisher{}

		p.options = append(p.options, fanout.WithBroker("partner-"+form.name, watermill.New(publishers[form.name])))
	}
	p.arrived = func(_ *testing.T, form partnerForm) []arrival {
		publisher := publishers[form.name]
		publisher.mu.Lock()
		defer publisher.mu.Unlock()
		return publisher.received
	}
	p.fields = func(_ *testing.T, e *partnerEvent, form partnerForm, _ arrival) fields {
		f := e.flat(form)
		f.add("(topic)", e.category)
		f.add("(uuid)", e.id)
		return f
	}
	return p
}
