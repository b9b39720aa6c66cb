package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
)

const (
	// mostPause is what is made of a Retry-After that asks for more.
	mostPause = time.Hour
	// mostQuoted is how much of an answer stands in an error; mostRead is how much is read, so that the
	// connection can be used again.
	mostQuoted = 200
	mostRead   = 64 << 10
)

// Publish implements [brokers.Broker]. Messages of a key are sent one after the other, those of other
// keys, and without one, beside them. The first answer that speaks of an outage ends the call: what is
// not under way then is not sent.
func (b *Broker) Publish(ctx context.Context, msgs []brokers.Message) []brokers.Result {
	p := &publication{Broker: b, msgs: msgs, results: make([]brokers.Result, len(msgs))}
	if !b.gate.Enter() {
		for i := range p.results {
			p.results[i].Err = brokers.ErrClosed
		}
		return p.results
	}
	defer b.gate.Leave()
	chains := p.chains()
	next := make(chan []int, len(chains))
	for _, chain := range chains {
		next <- chain
	}
	close(next)
	var workers sync.WaitGroup
	for range min(b.options.concurrency, len(chains)) {
		workers.Go(func() {
			for chain := range next {
				p.send(ctx, chain)
			}
		})
	}
	workers.Wait()
	return p.results
}

// publication is one call of Publish. Its results are written by the worker that has the message.
type publication struct {
	*Broker

	msgs    []brokers.Message
	results []brokers.Result

	mu  sync.Mutex
	out error // set when the endpoint is out
}

// chains are the indexes of messages that go one after the other.
func (p *publication) chains() [][]int {
	chains, ofKey := make([][]int, 0, len(p.msgs)), map[string]int{}
	for i := range p.msgs {
		key := p.msgs[i].OrderingKey
		chain, known := ofKey[key]
		if key == "" || !known {
			ofKey[key] = len(chains)
			chains = append(chains, []int{i})
			continue
		}
		chains[chain] = append(chains[chain], i)
	}
	return chains
}

// send sends the messages of a chain, until one fails.
func (p *publication) send(ctx context.Context, chain []int) {
	var failed error
	for _, i := range chain {
		if failed == nil {
			failed = p.enter(ctx)
		}
		if failed != nil {
			p.results[i].Err = brokers.NotSentBecause(failed)
			continue
		}
		p.results[i] = p.one(ctx, &p.msgs[i])
		<-p.slots
		failed = p.results[i].Err
	}
}

// enter waits until another request may be under way. An error is why there must be none.
func (p *publication) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out != nil {
		<-p.slots
	}
	return p.out
}

// one sends one message.
func (p *publication) one(ctx context.Context, m *brokers.Message) brokers.Result {
	if until := p.paused(); !until.IsZero() {
		return p.failure(brokers.Unavailable(brokers.ScopeBroker, p.saidf("it has asked for a pause until %s (Retry-After)", until.UTC().Format(time.RFC3339))))
	}
	patient, cancel := context.WithTimeout(ctx, p.options.timeout)
	defer cancel()
	request, omitted, err := p.request(patient, m)
	if err != nil {
		return brokers.Result{Err: brokers.Permanent(p.saidf("%w", err))}
	}
	answer, err := p.client.Do(request)
	if err != nil {
		err = p.unreachable(err)
		if errors.Is(ctx.Err(), context.Canceled) { // the caller has stopped waiting: the endpoint need not be ill
			return brokers.Result{Err: brokers.Retryable(err)}
		}
		return p.failure(err)
	}
	defer answer.Body.Close()
	quoted, n := make([]byte, mostQuoted), 0
	if answer.StatusCode != http.StatusSwitchingProtocols { // whose body is the connection, which no context ends
		n, _ = io.ReadFull(answer.Body, quoted)
		_, _ = io.CopyN(io.Discard, answer.Body, mostRead)
	}
	if answer.StatusCode >= 200 && answer.StatusCode < 300 {
		return brokers.Result{Omitted: omitted}
	}
	said := p.saidf("it answered %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	if n > 0 {
		said = fmt.Errorf("%w: %q", said, quoted[:n])
	}
	if d := retryAfter(answer); d > 0 {
		p.pause(d)
		said = fmt.Errorf("%w (it asks for a pause of %v)", said, d)
	}
	return p.failure(judge(answer.StatusCode, said))
}

// failure is the result of a message that failed, and notes an outage.
func (p *publication) failure(err error) brokers.Result {
	if class, _ := brokers.Classify(err); class == brokers.ClassUnavailable {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.out = err
	}
	return brokers.Result{Err: err}
}

// retryAfter is how long an endpoint that is busy wants to be left alone, 0 = it does not say.
func retryAfter(answer *http.Response) time.Duration {
	if answer.StatusCode != http.StatusTooManyRequests && answer.StatusCode != http.StatusServiceUnavailable {
		return 0
	}
	said := answer.Header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(said, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, mostPause)
	}
	if at, err := http.ParseTime(said); err == nil {
		return min(max(time.Until(at), 0), mostPause)
	}
	return 0
}
