package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

const (
	// mostPause is what is made of a Retry-After that asks for more.
	mostPause = time.Hour
	// mostQuoted is how much of an answer stands in an error; mostRead is how much is read, and
	// drainTime for how long, so that the connection can be used again. The text of an error is
	// worth a longer wait.
	mostQuoted = 200
	mostRead   = 64 << 10
	drainTime  = 100 * time.Millisecond
	quoteTime  = time.Second
)

// Publish implements [brokers.Broker]. Messages of a key are sent one after the other, those of other
// keys, and without one, beside them. The first answer that speaks of an outage ends the call: what is
// not in progress then is not sent.
func (b *Broker) Publish(ctx context.Context, msgs []brokers.Message) []brokers.Result {
	if !b.gate.Enter() {
		return adapter.Closed(msgs)
	}
	defer b.gate.Leave()
	p := &publication{Broker: b, msgs: msgs}
	p.Begin(msgs, func(int) string { return "" }) // one endpoint
	chains := p.Chains()
	next := make(chan []int, len(chains))
	for _, chain := range chains {
		next <- chain
	}
	close(next)
	var workers sync.WaitGroup
	for range min(b.settings.Concurrency, len(chains)) {
		workers.Go(func() {
			for chain := range next {
				for _, i := range chain {
					p.send(ctx, i)
				}
			}
		})
	}
	workers.Wait()
	return p.Results(ctx)
}

// publication is one call of Publish.
type publication struct {
	*Broker
	adapter.Call

	msgs []brokers.Message
}

// send sends a message as soon as another request may be made, unless something is in its way.
func (p *publication) send(ctx context.Context, i int) {
	if !p.Admit(ctx, i) {
		return
	}
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return // Results says so
	}
	defer func() { <-p.slots }()
	if !p.Admit(ctx, i) {
		return
	}
	if omitted, err := p.one(ctx, &p.msgs[i]); err != nil {
		p.Fail(i, err)
	} else {
		p.Omit(i, omitted)
		p.Confirm(i, "")
	}
}

// one sends one message. It returns the flat fields without which it went.
func (p *publication) one(ctx context.Context, m *brokers.Message) (omitted []string, err error) {
	if until := p.paused(); !until.IsZero() {
		return nil, brokers.Unavailable(brokers.ScopeBroker, p.saidf("it has asked for a pause until %s (Retry-After)", until.UTC().Format(time.RFC3339)))
	}
	patient, cancel := context.WithTimeout(ctx, p.settings.RequestTimeout)
	defer cancel()
	request, omitted, err := p.request(patient, m)
	if err != nil {
		return nil, brokers.Permanent(p.saidf("%w", err))
	}
	answer, err := p.client.Do(request)
	if err != nil {
		err = p.unreachable(err)
		if errors.Is(ctx.Err(), context.Canceled) { // the caller has stopped waiting: the endpoint need not be ill
			err = brokers.Retryable(err)
		}
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 200 && answer.StatusCode < 300 {
		drain(answer, drainTime, cancel)
		return omitted, nil
	}
	quoted := drain(answer, quoteTime, cancel)
	said := p.saidf("it answered %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	if len(quoted) > 0 {
		said = fmt.Errorf("%w: %q", said, quoted)
	}
	if d := retryAfter(answer); d > 0 {
		p.pause(d)
		said = fmt.Errorf("%w (it asks for a pause of %v)", said, d)
	}
	return nil, judge(answer.StatusCode, said)
}

// drain reads the body of an answer, and returns its beginning. The status has decided already: a
// body that is longer, or takes longer, is cut off, with its connection on HTTP/1.1 and with its
// stream on HTTP/2. cancel ends the request.
func drain(answer *http.Response, patience time.Duration, cancel func()) (beginning []byte) {
	if answer.Body == http.NoBody || answer.StatusCode == http.StatusSwitchingProtocols { // whose body is the connection, which no context ends
		return nil
	}
	defer time.AfterFunc(patience, cancel).Stop()
	beginning = make([]byte, mostQuoted)
	n, _ := io.ReadFull(answer.Body, beginning)
	_, _ = io.CopyN(io.Discard, answer.Body, mostRead)
	return beginning[:n]
}

// retryAfter is how long an endpoint that is busy wants to be left alone, 0 = it does not say. RFC
// 9110 has whole seconds; some send fractions, or more digits than an integer holds.
func retryAfter(answer *http.Response) time.Duration {
	if answer.StatusCode != http.StatusTooManyRequests && answer.StatusCode != http.StatusServiceUnavailable {
		return 0
	}
	said := answer.Header.Get("Retry-After")
	if strings.Trim(said, "0123456789.") == "" { // neither a sign nor an exponent
		if seconds, err := strconv.ParseFloat(said, 64); err == nil || errors.Is(err, strconv.ErrRange) {
			return time.Duration(min(seconds, mostPause.Seconds()) * float64(time.Second))
		}
	}
	if at, err := http.ParseTime(said); err == nil {
		return min(max(time.Until(at), 0), mostPause)
	}
	return 0
}
