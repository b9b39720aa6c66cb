package redisconsumer

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// deadPrefix begins the names of the fields that a dead letter has beside those of the message:
// [inbox.FieldDeadLetterReason] and its like.
const deadPrefix = "dead_letter_"

// deadLetter writes the dead letter of a message and acknowledges the message: in one step where both
// streams are on one server, else one after the other. One that is no longer ours has none.
func (r *run) deadLetter(ctx context.Context, e *consumer.Entry) error {
	d := deliveryOf(e)
	f := d.feed
	written, err := r.writeDeadLetter(ctx, d, e)
	if err != nil {
		return explained("write the dead letter of", f.name, err)
	}
	if !written {
		r.surrender(ctx, f, []*delivery{d})
		return errOver
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(d) // so that it is not acknowledged again
	return nil
}

// writeDeadLetter is false where the message is another's.
func (r *run) writeDeadLetter(ctx context.Context, d *delivery, e *consumer.Entry) (written bool, err error) {
	f := d.feed
	r.mu.Lock()
	gone, count := d.gone, d.count
	r.mu.Unlock()
	var extra []any
	for _, added := range consumer.DeadLetterAttributes(e, f.name) {
		extra = append(extra, added.Name, added.Value)
	}
	if !gone && (!r.sharded || together(f.name, f.dead)) {
		answer, err := deadScript.run(ctx, r.client, []string{f.name, f.dead}, append([]any{r.group, r.config.Name, d.position, count}, extra...)...)
		if err != nil || answer != int64(2) {
			return answer == int64(1), err
		}
	}
	if err := r.ensureOurs(ctx, f, []*delivery{d}, 0); err != nil {
		return false, err
	}
	r.mu.Lock()
	ours := d.state == claimed
	r.mu.Unlock()
	if !ours {
		return false, nil
	}
	fields := []any{dataField, e.Message.Payload}
	if e.Message.Payload == nil {
		fields = nil
	}
	for name, value := range e.Message.Attributes {
		fields = append(fields, name, value)
	}
	if err := r.client.XAdd(ctx, &redis.XAddArgs{Stream: f.dead, Values: append(fields, extra...)}).Err(); err != nil {
		return false, err
	}
	_, err = r.own(ctx, f, []*delivery{d}, func(*delivery) (any, int64) { return "ack", 0 })
	return true, err
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

// ResendDeadLetters moves up to n of the dead letters that there are back to the stream that they came
// from, oldest first, without what was added to them, and reports how many. Where to is not nil it
// names another stream instead. A dead letter that does not say where it came from is an error,
// unless to says it; so is one that cannot be moved: those before it are moved then.
//
// All groups of the stream get the message again, not only the one that has abandoned it: they
// deduplicate. [inbox.Redrive] is something else: it lets one consumer try again what is a dead letter
// in its inbox table. Where the two streams cannot be changed in one step (a cluster, and no common
// hash tag), a crash in between leaves the dead letter where it is, and the next call delivers the
// message once more. It is safe to call at the same time as everything else.
func ResendDeadLetters(ctx context.Context, client redis.UniversalClient, dead string, to func(stream string) string, n int) (moved int, err error) {
	newest, err := client.XRevRangeN(ctx, dead, "+", "-", 1).Result()
	if err != nil {
		return 0, explained("resend the dead letters of", dead, err)
	}
	if len(newest) == 0 {
		return 0, nil
	}
	for moved < n { // what comes back meanwhile is not moved again
		letters, err := client.XRangeN(ctx, dead, "-", newest[0].ID, int64(min(n-moved, page))).Result()
		if err != nil {
			return moved, explained("resend the dead letters of", dead, err)
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
				return moved, fmt.Errorf("redisconsumer: resend the dead letters of %q: the dead letter %s has no stream to go to: name one", dead, letter.ID)
			}
			done, err := resend(ctx, client, dead, stream, letter, !isSharded(client) || together(dead, stream))
			if err != nil {
				return moved, explained("resend the dead letters of", dead, err)
			}
			if done {
				moved++
			}
		}
	}
	return moved, nil
}

// resend moves one dead letter. It reports whether it was there.
func resend(ctx context.Context, client redis.UniversalClient, dead, stream string, letter redis.XMessage, inOneStep bool) (bool, error) {
	if inOneStep {
		answer, err := resendScript.run(ctx, client, []string{dead, stream}, letter.ID, deadPrefix)
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
