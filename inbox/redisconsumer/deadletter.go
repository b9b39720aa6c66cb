package redisconsumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/internal/session"
)

// deadPrefix begins the names of the fields that a dead letter has beside those of the message:
// [inbox.FieldDeadLetterReason] and its like.
const deadPrefix = "dead_letter_"

// forward puts an item among the dead letters. When that fails it stays pending and comes again.
func (k *keeper) forward(ctx context.Context, it *item) {
	st := it.stream
	begun := time.Now()
	err := k.writeDeadLetter(context.WithoutCancel(ctx), it)
	if err == nil {
		k.c.outages.end(ctx, st, "write the dead letter of", begun)
		st.counters.forwarded.Add(1)
		k.c.log.ErrorContext(ctx, "message forwarded to the dead letters", "stream", st.name, "group", k.c.group, "entry", it.position, "dead_letters", st.dead,
			"message_id", it.message.ID, "type", it.message.Type, "attempts", it.past.Failures, "error", it.abandoned)
		if k.c.observer != nil {
			k.c.observer.Forwarded(ctx, it.message, it.abandoned)
		}
		k.claims.mu.Lock()
		k.claims.forget(it)
		k.claims.mu.Unlock()
		return
	}
	if !errors.Is(err, errLost) && !isNoGroup(err) {
		k.c.outages.begin(ctx, st, "write the dead letter of", err)
	}
	k.claims.mu.Lock()
	defer k.claims.mu.Unlock()
	if errors.Is(err, errLost) || it.state == lost {
		if it.state != lost {
			st.counters.lost.Add(1)
		}
		k.claims.forget(it)
		return
	}
	it.forwards++
	if it.queue != nil {
		it.state = waiting
		k.claims.queues.again(it, time.Now().Add(pauseAfter(it.forwards)))
	}
}

// writeDeadLetter writes the dead letter and acknowledges the message: in one step where both
// streams are on one server, else one after the other.
func (k *keeper) writeDeadLetter(ctx context.Context, it *item) error {
	st := it.stream
	k.claims.mu.Lock()
	gone, count := it.gone, it.count
	k.claims.mu.Unlock()
	extra := deadFields(it)
	if !gone && (!k.c.sharded || together(st.name, st.dead)) {
		answer, err := deadScript.run(ctx, k.c.client, []string{st.name, st.dead}, append([]any{k.c.group, k.c.name, it.position, count}, extra...)...)
		switch {
		case err != nil:
			return err
		case answer == int64(1):
			return nil
		case answer == int64(0):
			return errLost
		}
	}
	if err := k.own(ctx, st, []*item{it}, 0, 0); err != nil {
		return err
	}
	k.claims.mu.Lock()
	taken := it.state == lost
	k.claims.mu.Unlock()
	if taken {
		return errLost
	}
	fields := []any{dataField, it.message.Payload}
	if errors.Is(it.abandoned, errNoData) {
		fields = nil
	}
	for name, value := range it.message.Attributes {
		fields = append(fields, name, value)
	}
	if err := k.c.client.XAdd(ctx, &redis.XAddArgs{Stream: st.dead, Values: append(fields, extra...)}).Err(); err != nil {
		return err
	}
	_, err := ackScript.numbers(ctx, k.c.client, 1, st.name, k.c.group, k.c.name, it.position, count)
	return err
}

// deadFields are the fields that are added to a dead letter, the same on all brokers.
func deadFields(it *item) (fields []any) {
	e := session.Entry{Message: it.message, History: session.History{Past: it.past, Why: it.abandoned}}
	for _, added := range session.DeadLetterAttributes(&e, it.stream.name) {
		fields = append(fields, added.Name, added.Value)
	}
	return fields
}

// together reports whether two keys are on one server for certain, because they have one hash tag.
func together(a, b string) bool { return hashTag(a) == hashTag(b) }

// hashTag is the part of a key that decides where it is.
// Source: https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags
func hashTag(key string) string {
	if _, rest, open := strings.Cut(key, "{"); open {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			return tag
		}
	}
	return key
}

// Redrive puts up to n of the dead letters that there are back on the stream that they came from,
// oldest first, without what was added to them, and says how many it were. Where to is not nil it
// names another stream instead. A dead letter that does not say where it came from is an error,
// unless to says it; so is one that cannot be moved: those before it are moved then.
//
// All groups of the stream get the message again, not only the one that has abandoned it: they
// deduplicate. Where the two streams cannot be changed in one step (a cluster, and no common hash
// tag), a crash in between leaves the dead letter where it is, and the message is delivered once
// more with the next Redrive. It is safe to call at the same time as everything else.
func Redrive(ctx context.Context, client redis.UniversalClient, dead string, to func(stream string) string, n int) (moved int, err error) {
	newest, err := client.XRevRangeN(ctx, dead, "+", "-", 1).Result()
	if err != nil {
		return 0, explained("redrive", dead, err)
	}
	if len(newest) == 0 {
		return 0, nil
	}
	for moved < n { // what comes back meanwhile is not moved again
		letters, err := client.XRangeN(ctx, dead, "-", newest[0].ID, int64(min(n-moved, page))).Result()
		if err != nil {
			return moved, explained("redrive", dead, err)
		}
		if len(letters) == 0 {
			return moved, nil
		}
		for _, letter := range letters {
			stream, _ := letter.Values[inbox.FieldDeadLetterSource].(string)
			if to != nil {
				stream = to(stream)
			}
			if stream == "" || stream == dead {
				return moved, fmt.Errorf("redisconsumer: redrive %q: the dead letter %s has no stream to go to: name one", dead, letter.ID)
			}
			done, err := redrive(ctx, client, dead, stream, letter, !isSharded(client) || together(dead, stream))
			if err != nil {
				return moved, explained("redrive", dead, err)
			}
			if done {
				moved++
			}
		}
	}
	return moved, nil
}

// redrive moves one dead letter. It reports whether it was there.
func redrive(ctx context.Context, client redis.UniversalClient, dead, stream string, letter redis.XMessage, inOneStep bool) (bool, error) {
	if inOneStep {
		answer, err := redriveScript.run(ctx, client, []string{dead, stream}, letter.ID, deadPrefix)
		if err != nil || answer != int64(2) {
			return answer == int64(1), err
		}
	}
	var fields []any
	for name, value := range letter.Values {
		if !strings.HasPrefix(name, deadPrefix) {
			fields = append(fields, name, value)
		}
	}
	if err := client.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: fields}).Err(); err != nil {
		return false, err
	}
	n, err := client.XDel(ctx, dead, letter.ID).Result()
	return n > 0, err
}
