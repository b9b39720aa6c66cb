package outbox_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
)

var (
	errPlain = errors.New("no luck")
	noon     = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
)

func decider() outbox.Decider {
	retry := outbox.Retry{MaxAttempts: 3, BaseDelay: time.Minute, Jitter: -1}.WithDefaults(outbox.DefaultRetry())
	return outbox.Decider{Retry: retry}
}

func good() outbox.Message {
	return outbox.Message{ID: 7, MessageID: "m", Stream: "s", Type: "T", ContentType: "application/json", Payload: []byte("{}")}
}

func lastError(t *testing.T, outcome outbox.Outcome) outbox.LastError {
	t.Helper()
	var last outbox.LastError
	require.NoError(t, json.Unmarshal([]byte(outcome.LastError), &last))
	return last
}

func TestAfterSend(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		attempts int
		err      error
		status   outbox.Status
		spent    bool
		delay    time.Duration
		class    string
	}{
		"retryable":               {0, brokers.Retryable(errPlain), outbox.StatusFailed, true, time.Minute, "retryable"},
		"unclassified":            {1, errPlain, outbox.StatusFailed, true, 2 * time.Minute, "retryable"},
		"the last attempt":        {2, errPlain, outbox.StatusAbandoned, true, 0, "retryable"},
		"permanent":               {0, brokers.Permanent(errPlain), outbox.StatusAbandoned, true, 0, "permanent"},
		"broker unavailable":      {0, brokers.Unavailable(brokers.ScopeBroker, errPlain), outbox.StatusPending, false, 0, "unavailable"},
		"destination unavailable": {1, brokers.Unavailable(brokers.ScopeDestination, errPlain), outbox.StatusFailed, false, 0, "unavailable"},
		"closed":                  {0, brokers.ErrClosed, outbox.StatusPending, false, 0, "unavailable"},
		"not sent":                {0, brokers.NotSentBecause(brokers.Permanent(errPlain)), outbox.StatusPending, false, 0, ""},
		"not sent, tried before":  {1, brokers.ErrNotSent, outbox.StatusFailed, false, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := good()
			m.Attempts = test.attempts
			outcome := decider().AfterSend(&m, test.err, noon)
			assert.Equal(t, test.status, outcome.Status)
			assert.Equal(t, test.spent, outcome.Spent)
			assert.Equal(t, test.delay, outcome.Delay)
			if test.class == "" {
				assert.Empty(t, outcome.LastError, "what happened before still stands")
				return
			}
			last := lastError(t, outcome)
			assert.Equal(t, test.class, last.Class)
			assert.Equal(t, test.attempts+1, last.Attempt)
			assert.Equal(t, noon, last.At)
		})
	}
}

func TestBeforeSend(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(m *outbox.Message)
		class  string
		says   string
	}{
		"empty stream":          {func(m *outbox.Message) { m.Stream = "" }, "malformed", "column stream is empty"},
		"empty type":            {func(m *outbox.Message) { m.Type = "" }, "malformed", "column type is empty"},
		"unknown content type":  {func(m *outbox.Message) { m.ContentType = "jason" }, "malformed", `"jason" is not a media type`},
		"broken headers":        {func(m *outbox.Message) { m.Headers = `{"a":` }, "malformed", "not valid JSON at byte"},
		"headers of numbers":    {func(m *outbox.Message) { m.Headers = `{"a":1}` }, "malformed", "not a JSON object of strings"},
		"headers that shadow":   {func(m *outbox.Message) { m.Headers = `{"id":"x"}` }, "malformed", `holds "id", which has a column of its own`},
		"expired":               {func(m *outbox.Message) { m.Expired = true }, "expired", "time to live"},
		"crashed too often":     {func(m *outbox.Message) { m.Attempts, m.Crashes = 3, 12 }, "crashed", "12 times"},
		"the maximum was lower": {func(m *outbox.Message) { m.Attempts = 4 }, "attempts", "max_attempts is now 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := good()
			test.change(&m)
			_, outcome, ok := decider().BeforeSend(&m, noon)
			require.False(t, ok)
			assert.Equal(t, outbox.StatusAbandoned, outcome.Status)
			assert.False(t, outcome.Spent)
			assert.Equal(t, test.class, lastError(t, outcome).Class)
			assert.Contains(t, lastError(t, outcome).Message, test.says)
		})
	}
	m := good()
	m.Headers, m.ContentType = `{"tracestate":"b","traceparent":"a"}`, "application/cloudevents+json; charset=utf-8"
	out, _, ok := decider().BeforeSend(&m, noon)
	require.True(t, ok)
	assert.Equal(t, []brokers.Attribute{{Name: "traceparent", Value: "a"}, {Name: "tracestate", Value: "b"}}, out.Attributes)
}

func TestLongErrorsAreCut(t *testing.T) {
	t.Parallel()
	m := good()
	last := lastError(t, decider().AfterSend(&m, errors.New(strings.Repeat("ü", 5000)+"\x00\xff"), noon))
	assert.LessOrEqual(t, len(last.Message), 2010)
	assert.NotContains(t, last.Message, "\uFFFD")
}

func FuzzParseHeaders(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":"b"}`, `[]`, `null`, `{"a":null}`, "{\"\xff\":\"\"}", `{"id":""}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		attributes, err := outbox.ParseHeaders(text)
		var malformed *outbox.MalformedError
		if err != nil && !errors.As(err, &malformed) {
			t.Fatalf("%q: %v is no *MalformedError", text, err)
		}
		for _, attribute := range attributes {
			if attribute.Name == brokers.FieldID || attribute.Name == brokers.FieldType {
				t.Fatalf("%q: %s got through", text, attribute.Name)
			}
		}
	})
}
