package rabbitmq

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
)

func small(t *testing.T, settings ...Settings) *Broker {
	t.Helper()
	var s Settings
	if len(settings) > 0 {
		s = settings[0]
	}
	s.URL = "amqp://127.0.0.1:1"
	b, err := Open(s)
	require.NoError(t, err)
	return b
}

func TestPriority(t *testing.T) {
	t.Parallel()
	for given, want := range map[int]uint8{-101: 0, -100: 0, -78: 0, -77: 1, -1: 4, 0: 4, 12: 5, 50: 6, 99: 8, 100: 9, 1 << 40: 9} {
		assert.Equal(t, want, priority(given), "%d", given)
	}
}

func TestExpiration(t *testing.T) {
	t.Parallel()
	for want, given := range map[string][2]time.Duration{
		"": {}, "1500": {0, 1500 * time.Millisecond}, "2": {2 * time.Millisecond, 0},
		"3": {3 * time.Millisecond, time.Hour}, "4": {time.Hour, 4 * time.Millisecond}, "1": {time.Microsecond, 0},
		"5": {math.MaxInt64, 5 * time.Millisecond}, "315360000000": {maxExpiration + time.Millisecond - 1, 0},
	} {
		assert.Equal(t, want, expiration(given[0], given[1]), "%v", given)
	}
	assert.Empty(t, expiration(maxExpiration+time.Millisecond, math.MaxInt64))
}

func TestProperties(t *testing.T) {
	t.Parallel()
	m := brokers.Message{
		ID: "id", Destination: "ordering::order", Type: "T.v1", OrderingKey: "k", Priority: 100, ContentType: "text/plain",
		Payload: []byte("p"), CorrelationID: "c", Attributes: []brokers.Attribute{{Name: "tenant", Value: "acme"}},
	}
	got, omitted, err := small(t, Settings{Expiration: 1500 * 1e6}).encode(&m, "ordering::order", 0)
	require.NoError(t, err)
	assert.Empty(t, omitted)
	assert.Equal(t, amqp.Publishing{
		MessageId: "id", Type: "T.v1", ContentType: "text/plain", CorrelationId: "c", Priority: 9, DeliveryMode: amqp.Persistent,
		Expiration: "1500", Headers: amqp.Table{"ordering_key": "k", "tenant": "acme"}, Body: []byte("p"),
	}, got)

	got, omitted, err = small(t).encode(&brokers.Message{ID: "id", Destination: "d", Type: "T.v1"}, "d", 0)
	require.NoError(t, err)
	assert.Empty(t, omitted)
	assert.Equal(t, amqp.Publishing{
		MessageId: "id", Type: "T.v1", ContentType: "application/json", Priority: 4, DeliveryMode: amqp.Persistent,
	}, got)
}

// What a message can do without is left out where AMQP or RabbitMQ does not take it, and named.
func TestOmitted(t *testing.T) {
	t.Parallel()
	m := brokers.Message{
		ID: "id", Destination: "d", Type: "T.v1", OrderingKey: "k", CorrelationID: strings.Repeat("c", 256),
		Attributes: []brokers.Attribute{
			{Name: strings.Repeat("n", 128), Value: "fits"},
			{Name: strings.Repeat("n", 129), Value: "x"},
			{Name: "", Value: "x"},
			{Name: "CC", Value: "other"},
			{Name: "BCC", Value: "other"},
			{Name: "cc", Value: "fits"},
			{Name: "twice", Value: "first"},
			{Name: "twice", Value: "second"},
			{Name: "ordering_key", Value: "other"},
			{Name: "large", Value: strings.Repeat("v", 5000)},
			{Name: "after", Value: "fits"},
		},
	}
	const frame = 4096
	got, omitted, err := small(t).encode(&m, "d", frame)
	require.NoError(t, err)
	assert.Equal(t, []string{"correlation_id", strings.Repeat("n", 129), "", "CC", "BCC", "twice", "ordering_key", "large"}, omitted)
	assert.Equal(t, amqp.Table{"ordering_key": "k", strings.Repeat("n", 128): "fits", "cc": "fits", "twice": "first", "after": "fits"}, got.Headers)
}

func TestNeverSent(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 256)
	for want, m := range map[string]brokers.Message{
		"the destination is empty": {ID: "id", Type: "T"},
		"the payload has 11 bytes": {ID: "id", Type: "T", Destination: "d", Payload: make([]byte, 11)},
		"the routing key \"xxx":    {ID: "id", Type: "T", Destination: long},
		"the id \"xxx":             {ID: long, Type: "T", Destination: "d"},
		"the type \"xxx":           {ID: "id", Type: long, Destination: "d"},
		"the content type \"xxx":   {ID: "id", Type: "T", Destination: "d", ContentType: long},
		"the ordering key has":     {ID: "id", Type: "T", Destination: "d", OrderingKey: strings.Repeat("k", 4096)},
	} {
		_, _, err := small(t, Settings{MaxMessageBytes: 10}).encode(&m, m.Destination, 4096)
		require.ErrorContains(t, err, want)
		assert.Less(t, len(err.Error()), 200)
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	b := small(t)
	for said, want := range map[*amqp.Error]string{
		{Code: 404, Reason: "NOT_FOUND - no exchange 'fanout' in vhost '/'"}:                                                            "broker create_destinations",
		{Code: 403, Reason: "ACCESS_REFUSED - write access to exchange 'fanout' in vhost '/' refused for user 'u'"}:                     "broker permission to write to the exchange",
		{Code: 403, Reason: "ACCESS_REFUSED - configure access to exchange 'fanout' in vhost '/' refused for user 'u'"}:                 "broker create_destinations to configure it",
		{Code: 403, Reason: "ACCESS_REFUSED - access to topic 'd' in exchange 'fanout' in vhost '/' refused for user 'u'"}:              "destination set_topic_permissions",
		{Code: 403, Reason: "ACCESS_REFUSED - cannot publish to internal exchange 'fanout' in vhost '/'"}:                               "broker internal exchange",
		{Code: 403, Reason: "username or password not allowed"}:                                                                         "broker check user and password",
		{Code: 530, Reason: "NOT_ALLOWED - vhost v not found"}:                                                                          "broker check the virtual host",
		{Code: 530, Reason: "NOT_ALLOWED - access to vhost 'v' refused for user 'u': connection limit (1) is reached"}:                  "broker raise the limit",
		{Code: 406, Reason: "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'e': received 'topic' but current is 'fanout'"}: "broker leave create_destinations out",
		{Code: 320, Reason: "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"}:                              "broker passes by itself",
		{Code: 501, Reason: "EOF"}:                          "broker the connection broke",
		{Code: 504, Reason: "channel id space exhausted"}:   "broker channel_max",
		{Code: 541, Reason: "INTERNAL_ERROR - what now"}:    "broker ",
		{Code: 406, Reason: "PRECONDITION_FAILED - who?"}:   "broker ",
		{Code: 404, Reason: "NOT_FOUND - something else"}:   "broker ",
		{Code: 504, Reason: "CHANNEL_ERROR - what channel"}: "broker ",
	} {
		scope, advice, _ := strings.Cut(want, " ")
		v := b.judge(fmt.Errorf("publish: %w", said))
		assert.Equal(t, brokers.Scope(scope), v.scope, "%v", said)
		assert.Contains(t, v.advice, advice, "%v", said)
		assert.Equal(t, advice == "", v.advice == "", "%v", said)
	}
	assert.Contains(t, b.judge(&alarm{"low on memory"}).advice, "free memory or disk")
}
