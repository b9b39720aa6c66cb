package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// note is what every message of this scenario carries.
type note struct {
	Seq  int64  `json:"seq"`
	Text string `json:"text"`
}

// stamp is when a transaction was committed.
type stamp struct{ at time.Time }

type stampKey struct{}

// commitClock stamps the moment at which the server's answer to a commit is there, the same way for
// all that use pgx. What is done afterwards, before the one who commits goes on, counts as latency.
type commitClock struct{}

// TraceQueryStart implements pgx.QueryTracer.
func (commitClock) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (commitClock) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if s, wanted := ctx.Value(stampKey{}).(*stamp); wanted && data.CommandTag.String() == "COMMIT" {
		s.at = time.Now()
	}
}

// write commits so many transactions, at random moments, so that none keeps step with another's
// polling. It returns when each was committed.
func (t *turn) write(ctx context.Context, total int, write writer, random *rand.Rand) ([]time.Time, error) {
	commits := make([]time.Time, total)
	pause := time.NewTimer(0)
	defer pause.Stop()
	next := time.Now()
	for n := range commits {
		next = next.Add(time.Duration(random.Float64() * 2 * float64(time.Second) / float64(t.Rate)))
		pause.Reset(time.Until(next))
		select {
		case <-pause.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		var s stamp
		if err := write(context.WithValue(ctx, stampKey{}, &s), int64(n)); err != nil {
			return nil, err
		}
		if s.at.IsZero() {
			return nil, errors.New("scenario: a transaction was over, and no commit was seen")
		}
		commits[n] = s.at
	}
	return commits, nil
}

// readBlock is how long one command waits for messages.
const readBlock = time.Second

// read waits at the stream, and returns when each message was there.
func (t *turn) read(ctx context.Context, total int) (arrived []time.Time, err error) {
	options, err := redis.ParseURL(t.redis)
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(options)
	defer func() { err = errors.Join(err, client.Close()) }()
	arrived = make([]time.Time, total)
	for got, last := 0, "0"; got < total; {
		answers, err := client.XRead(ctx, &redis.XReadArgs{Streams: []string{t.stream, last}, Block: readBlock}).Result()
		at := time.Now()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, entry := range answers[0].Messages {
			last = entry.ID
			n, err := seqOf(entry.Values)
			if err == nil && (n < 0 || n >= int64(total) || !arrived[n].IsZero()) {
				err = fmt.Errorf("scenario: message %d is in the stream twice, or was never written", n)
			}
			if err != nil {
				return nil, err
			}
			arrived[n] = at
			got++
		}
	}
	return arrived, nil
}

// seqOf reads the number of a message.
func seqOf(values map[string]any) (int64, error) {
	payload, found := values["data"].(string)
	if !found {
		payload, _ = values["payload"].(string) // Watermill's own encoding
	}
	var n struct {
		note

		Data *note `json:"data"` // of Fanout's events, which have metadata beside it
	}
	if err := json.Unmarshal([]byte(payload), &n); err != nil {
		return 0, fmt.Errorf("scenario: read a message: %w", err)
	}
	if n.Data != nil {
		return n.Data.Seq, nil
	}
	return n.Seq, nil
}

// payload of the n-th message.
func (t *turn) payload(n int64) ([]byte, error) { return json.Marshal(note{Seq: n, Text: t.text}) }
