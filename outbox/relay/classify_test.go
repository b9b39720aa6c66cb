package relay

import (
	"encoding/json"
	"slices"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// threeAttempts backs off without chance.
func threeAttempts() outbox.Retry {
	return outbox.Retry{MaxAttempts: 3, BaseDelay: time.Minute, Jitter: -1}.WithDefaults(outbox.DefaultRetry())
}

// afterSend is the outcome of a message that was alone in its call and failed with err.
func afterSend(m *driver.Message, err error) driver.Outcome {
	call := Call{Messages: []*driver.Message{m}, Results: []brokers.Result{{Err: err}}, Began: noon}
	c := classify(&call, evidence{}, threeAttempts().MaxAttempts, nil)
	return c.messages[0].outcome(m, threeAttempts(), noon)
}

func lastError(t *testing.T, outcome driver.Outcome) outbox.LastError {
	t.Helper()
	var last outbox.LastError
	require.NoError(t, json.Unmarshal([]byte(outcome.LastError), &last))
	return last
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		attempts int
		err      error
		status   outbox.Status
		spent    bool
		delay    time.Duration
		class    string
	}{
		"retryable":               {0, brokers.Retryable(errNoLuck), outbox.StatusFailed, true, time.Minute, "retryable"},
		"again":                   {1, brokers.Retryable(errNoLuck), outbox.StatusFailed, true, 2 * time.Minute, "retryable"},
		"unclassified":            {1, errNoLuck, outbox.StatusFailed, false, 0, "unavailable"},
		"the last attempt":        {2, brokers.Retryable(errNoLuck), outbox.StatusAbandoned, true, 0, "retryable"},
		"permanent":               {0, brokers.Permanent(errNoLuck), outbox.StatusAbandoned, true, 0, "permanent"},
		"broker unavailable":      {0, brokers.Unavailable(brokers.ScopeBroker, errNoLuck), outbox.StatusPending, false, 0, "unavailable"},
		"destination unavailable": {1, brokers.Unavailable(brokers.ScopeDestination, errNoLuck), outbox.StatusFailed, false, 0, "unavailable"},
		"closed":                  {0, brokers.ErrClosed, outbox.StatusPending, false, 0, "unavailable"},
		"not sent":                {0, brokers.NotSentBecause(brokers.Permanent(errNoLuck)), outbox.StatusPending, false, 0, ""},
		"not sent, tried before":  {1, brokers.ErrNotSent, outbox.StatusFailed, false, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := message(7)
			m.Attempts = test.attempts
			outcome := afterSend(&m, test.err)
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

func TestPrepare(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(m *driver.Message)
		class  string
		says   string
	}{
		"empty stream":          {func(m *driver.Message) { m.Stream = "" }, "malformed", "column stream is empty"},
		"empty type":            {func(m *driver.Message) { m.Type = "" }, "malformed", "column type is empty"},
		"unknown content type":  {func(m *driver.Message) { m.ContentType = "jason" }, "malformed", `"jason" is not a media type`},
		"broken headers":        {func(m *driver.Message) { m.Headers = `{"a":` }, "malformed", "not valid JSON at byte"},
		"headers of numbers":    {func(m *driver.Message) { m.Headers = `{"a":1}` }, "malformed", "not a JSON object of strings"},
		"headers that shadow":   {func(m *driver.Message) { m.Headers = `{"id":"x"}` }, "malformed", `holds "id", which has a column of its own`},
		"too large":             {func(m *driver.Message) { m.Payload, m.Unread, m.Stream = nil, 101, "" }, "permanent", "has 101 bytes, and this relay reads no more than 100: raise outbox.max_payload_bytes"},
		"expired":               {func(m *driver.Message) { m.ExpiresIn = -1 }, "expired", "time to live"},
		"expired while claimed": {func(m *driver.Message) { m.ExpiresIn = time.Second }, "expired", "time to live"},
		"crashed too often":     {func(m *driver.Message) { m.Attempts, m.Crashes = 3, 12 }, "crashed", "12 times"},
		"the maximum was lower": {func(m *driver.Message) { m.Attempts = 4 }, "attempts", "max_attempts is now 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := message(7)
			test.change(&m)
			_, outcome, ok := prepare(&m, &outbox.Policy{MaxPayloadBytes: 100, Retry: threeAttempts()}, noon, noon.Add(-time.Second))
			require.False(t, ok)
			assert.Equal(t, outbox.StatusAbandoned, outcome.Status)
			assert.False(t, outcome.Spent)
			assert.Equal(t, test.class, lastError(t, outcome).Class)
			assert.Contains(t, lastError(t, outcome).Message, test.says)
		})
	}
	m := message(7)
	m.Headers, m.ContentType = `{"tracestate":"b","traceparent":"a"}`, "application/cloudevents+json; charset=utf-8"
	out, _, ok := prepare(&m, &outbox.Policy{MaxPayloadBytes: 100, Retry: threeAttempts()}, noon, noon.Add(-time.Second))
	require.True(t, ok)
	assert.Equal(t, []brokers.Attribute{{Name: "traceparent", Value: "a"}, {Name: "tracestate", Value: "b"}}, out.Attributes)
	assert.Zero(t, out.ExpiresIn)
	m.ExpiresIn = time.Minute
	out, _, ok = prepare(&m, &outbox.Policy{MaxPayloadBytes: 100, Retry: threeAttempts()}, noon, noon.Add(-time.Second))
	require.True(t, ok)
	assert.Equal(t, 59*time.Second, out.ExpiresIn)
}

// TestClassify says what a call means, by the class of each result: a letter for each message, of
// which those in capitals go to destination B and the others to a.
//
//	p passed   r retryable   x permanent   d destination unavailable   n not sent
//	o outage of the broker, unanswered   s the same, by the server's own word
//	q partition unavailable   w refused by the broker, retryable   v by the destination, permanent
func TestClassify(t *testing.T) {
	t.Parallel()
	const (
		published   = "published "
		retry       = "retry message"
		abandon     = "abandon message"
		release     = "release "
		destination = "release destination"
		broker      = "release broker"
	)
	before, after := noon.Add(-time.Second), noon.Add(time.Second)
	for name, test := range map[string]struct {
		results  string
		past     evidence // of the first message
		attempts int
		want     []string

		reached, unavailable bool
		alone                int // 0 stands for -1, n for message n-1
		charged              bool
	}{
		"all pass":                    {results: "ppp", want: []string{published, published, published}, reached: true},
		"one fails":                   {results: "prp", want: []string{published, retry, published}, reached: true},
		"its last attempt":            {results: "r", attempts: 2, want: []string{abandon}, reached: true},
		"beyond its last attempt":     {results: "r", attempts: 7, want: []string{abandon}, reached: true},
		"one is refused":              {results: "x", want: []string{abandon}, reached: true},
		"nothing was sent":            {results: "nn", want: []string{release, release}},
		"a follower of a failed one":  {results: "rn", want: []string{retry, release}, reached: true},
		"a destination is missing":    {results: "dpP", want: []string{destination, published, published}, reached: true},
		"and holds up what follows":   {results: "dnN", want: []string{destination, destination, release}, reached: true},
		"but not what came before":    {results: "nd", want: []string{release, destination}, reached: true},
		"its attempts do not matter":  {results: "d", attempts: 7, want: []string{destination}, reached: true},
		"an outage of all":            {results: "ooo", want: []string{broker, broker, broker}, unavailable: true},
		"an outage of two":            {results: "opo", want: []string{broker, published, broker}, reached: true, unavailable: true},
		"an outage of one":            {results: "o", want: []string{broker}, unavailable: true, alone: 1},
		"an outage, attempts used up": {results: "o", attempts: 7, want: []string{broker}, unavailable: true, alone: 1},
		"an outage beside another":    {results: "po", want: []string{published, broker}, reached: true, unavailable: true, alone: 2},
		"an outage, others not sent":  {results: "onn", want: []string{broker, release, release}, unavailable: true, alone: 1},
		"met before, nothing passed":  {results: "o", past: met(before, time.Time{}), want: []string{broker}, unavailable: true, alone: 1},
		"met before, passed then":     {results: "o", past: met(before, before), want: []string{broker}, unavailable: true, alone: 1},
		"met before, passed since":    {results: "o", past: met(before, noon), want: []string{retry}, reached: true, alone: 1, charged: true},
		"the server's own word":       {results: "s", past: met(before, noon), attempts: 2, want: []string{broker}, unavailable: true, alone: 1},
		"charged with its last":       {results: "o", past: met(before, noon), attempts: 2, want: []string{abandon}, reached: true, alone: 1, charged: true},
		"passed in this very call":    {results: "op", past: met(before, time.Time{}), want: []string{broker, published}, reached: true, unavailable: true, alone: 1},
		"met after this call began":   {results: "op", past: met(after, time.Time{}), want: []string{broker, published}, reached: true, unavailable: true, alone: 1},
		"another one had met it":      {results: "po", past: met(before, noon), want: []string{published, broker}, reached: true, unavailable: true, alone: 2},
		"met before, two do now":      {results: "oo", past: met(before, noon), want: []string{broker, broker}, unavailable: true},
		"a partition is out":          {results: "qp", want: []string{"release partition", published}, reached: true},
		"and nothing else was sent":   {results: "qn", want: []string{"release partition", release}, reached: true},
		"refused, as all are":         {results: "ww", want: []string{broker, broker}, unavailable: true},
		"refused beside another":      {results: "wp", want: []string{"release message", published}, reached: true},
		"refused by a destination":    {results: "vvP", want: []string{destination, destination, published}, reached: true},
		"beside another there":        {results: "vp", want: []string{"release message", published}, reached: true},
		"refused again, others too":   {results: "ww", past: refusedBefore(refused{since: before, lone: true, passed: noon.Add(-2 * time.Second), quiet: true}), want: []string{broker, broker}, unavailable: true},
		"refused again, others were":  {results: "wn", past: refusedBefore(refused{since: before, lone: true, passed: noon, quiet: true}), want: []string{retry, release}},
		"among others, then passed":   {results: "wn", past: refusedBefore(refused{since: before, passed: noon, quiet: true}), want: []string{broker, release}, unavailable: true},
		"and others are refused now":  {results: "ww", past: refusedBefore(refused{since: before, proven: true, quiet: true}), want: []string{broker, broker}, unavailable: true},
		"or were since":               {results: "w", past: refusedBefore(refused{since: before, proven: true}), want: []string{broker}, unavailable: true},
		"refused again, others are":   {results: "wp", past: refusedBefore(refused{since: before, quiet: true}), want: []string{"release message", published}, reached: true},
		"proven, beside others":       {results: "wp", past: refusedBefore(refused{since: before, proven: true}), want: []string{retry, published}, reached: true},
		"proven, in a later call":     {results: "wp", past: refusedBefore(refused{since: after, proven: true}), want: []string{"release message", published}, reached: true},
		"proven, and final":           {results: "vp", past: refusedBefore(refused{since: before, proven: true}), want: []string{abandon, published}, reached: true},
		"proven, but nothing passed":  {results: "v", past: refusedBefore(refused{since: before, proven: true, quiet: true}), want: []string{retry}},
		"others are at another place": {results: "vP", past: refusedBefore(refused{since: before, proven: true}), want: []string{destination, published}, reached: true},
		"refused alone":               {results: "w", past: refusedBefore(refused{since: before, alone: true}), want: []string{retry}},
		"while another waits":         {results: "w", past: refusedBefore(refused{since: before, quiet: true}), want: []string{broker}, unavailable: true},
		"with its last attempt":       {results: "v", past: refusedBefore(refused{since: before, alone: true}), attempts: 2, want: []string{abandon}},
		"a later call passed":         {results: "op", past: met(before, after), want: []string{retry, published}, reached: true, alone: 1, charged: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := lettered(test.results, test.attempts)
			c := classify(call, test.past, 3, nil)
			got := make([]string, len(c.messages))
			for i, one := range c.messages {
				got[i] = string(one.verdict) + " " + string(one.scope)
			}
			assert.Equal(t, test.want, got)
			assert.Equal(t, test.reached, c.reached, "reached")
			assert.Equal(t, test.unavailable, c.unavailable != nil, "unavailable")
			assert.Equal(t, test.alone-1, c.alone, "alone")
			assert.Equal(t, test.charged, c.charged, "charged")
		})
	}
}

// met is the evidence that message 0 met an outage, and of when messages passed.
func met(since, passed time.Time) evidence {
	return evidence{known: true, since: since, passed: passed}
}

// refusedBefore is the evidence of what is known of message 0.
func refusedBefore(what refused) evidence { return evidence{refused: map[int64]refused{0: what}} }

// lettered is a call at noon whose results are as in TestClassify.
func lettered(results string, attempts int) *Call {
	errs := map[rune]error{
		'p': nil, 'r': brokers.Retryable(errNoLuck), 'x': brokers.Permanent(errNoLuck), 'n': brokers.NotSentBecause(errNoLuck),
		'd': brokers.Unavailable(brokers.ScopeDestination, errNoLuck), 'o': brokers.Unreachable(brokers.ScopeBroker, errNoLuck),
		's': brokers.Unavailable(brokers.ScopeBroker, errNoLuck), 'q': brokers.Unreachable(brokers.ScopePartition, errNoLuck),
		'w': brokers.Refused(brokers.ScopeBroker, errNoLuck), 'v': brokers.Refused(brokers.ScopeDestination, brokers.Permanent(errNoLuck)),
	}
	call := &Call{Began: noon}
	for i, letter := range results {
		m := &driver.Message{ID: int64(i), Stream: "a", Attempts: attempts}
		if unicode.IsUpper(letter) {
			m.Stream = "B"
		}
		call.Messages = append(call.Messages, m)
		call.Results = append(call.Results, brokers.Result{Err: errs[unicode.ToLower(letter)]})
	}
	return call
}

// TestClassifyHolds draws calls and evidence, and says of each what must be so whatever they are.
func TestClassifyHolds(t *testing.T) {
	t.Parallel()
	moment := rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "never") {
			return time.Time{}
		}
		return noon.Add(time.Duration(rapid.IntRange(-2, 2).Draw(t, "seconds")) * time.Second)
	})
	rapid.Check(t, func(t *rapid.T) {
		call := lettered(rapid.StringMatching(`[prxdosnqPRXDOSNQ]{1,8}`).Draw(t, "results"), rapid.IntRange(0, 3).Draw(t, "attempts"))
		past := evidence{known: rapid.Bool().Draw(t, "known"), since: moment.Draw(t, "since"), passed: moment.Draw(t, "passed")}
		results := slices.Clone(call.Results)
		c := classify(call, past, 3, nil)
		require.Equal(t, c, classify(call, past, 3, make([]classified, 5)), "the same question has the same answer")
		require.Equal(t, results, call.Results, "it changes nothing")
		require.Len(t, c.messages, len(results))

		outages, taken := 0, false
		for i := range results {
			class, scope := brokers.Classify(results[i].Err)
			one := c.messages[i]
			switch {
			case class == "":
				require.Equal(t, classified{verdict: verdictPublished}, one)
				taken = true
			case class == brokers.ClassNotSent:
				require.Equal(t, verdictRelease, one.verdict)
				require.NoError(t, one.err)
			case scope == brokers.ScopeBroker:
				outages++
			case scope == brokers.ScopeDestination, scope == brokers.ScopePartition:
				require.Equal(t, classified{verdict: verdictRelease, scope: scope, err: results[i].Err}, one)
				taken = true
			default:
				lasts := class == brokers.ClassPermanent || call.Messages[i].Attempts >= 2
				require.Equal(t, lasts, one.verdict == verdictAbandon)
				require.Equal(t, !lasts, one.verdict == verdictRetry)
				require.Equal(t, scopeMessage, one.scope)
				taken = true
			}
		}
		require.Equal(t, outages == 1, c.alone >= 0)
		require.Equal(t, taken || c.charged, c.reached)
		require.Equal(t, outages > 0 && !c.charged, c.unavailable != nil, "an outage is the broker's or a message's")
		require.Equal(t, c.alone == 0 && past.known && past.passed.After(past.since) && brokers.Unanswered(results[0].Err), c.charged, "no message is charged without evidence")
		if c.charged {
			require.Equal(t, scopeMessage, c.messages[c.alone].scope)
		}
	})
}
