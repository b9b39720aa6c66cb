package redisconsumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// backfillSuffix is what producers add to the name of a stream for messages of low priority; a
// contract with them.
const backfillSuffix = ":backfill"

// backfillPause is how long a backfill that has nothing to do, or has to wait, is left alone.
const backfillPause = 100 * time.Millisecond

// errNoBackfill says that nobody has published anything of low priority.
var errNoBackfill = errors.New("redisconsumer: there is no backfill")

// addBackfills adds the backfill of each stream, unless it is read as a stream of its own.
func (c *Consumer) addBackfills() {
	for _, st := range slices.Clone(c.streams) {
		backfill := st.name + backfillSuffix
		if !strings.HasSuffix(st.name, backfillSuffix) && !slices.ContainsFunc(c.streams, func(other *stream) bool { return other.name == backfill }) {
			c.streams = append(c.streams, &stream{name: backfill, dead: st.dead, source: st.source, primary: st})
		}
	}
}

// createGroup creates the group, and its stream where there is none; but no backfill, which most
// streams do not have.
func (c *Consumer) createGroup(ctx context.Context, st *stream, from string) error {
	if st.primary == nil {
		return c.client.XGroupCreateMkStream(ctx, st.name, c.group, from).Err()
	}
	n, err := c.client.Exists(ctx, st.name).Result()
	if err != nil {
		return err
	}
	if n == 0 {
		return errNoBackfill
	}
	err = c.client.XGroupCreate(ctx, st.name, c.group, from).Err()
	if err != nil && redis.HasErrorPrefix(err, "ERR The XGROUP subcommand requires the key to exist") {
		return errNoBackfill
	}
	return err
}

// open creates the groups. Only what does not pass by itself is an error; the rest is tried again
// later.
func (c *Consumer) open(ctx context.Context) error {
	var refused []error
	for _, st := range c.streams {
		err := c.ensure(ctx, st)
		if err == nil || ctx.Err() != nil || st.primary != nil { // a backfill may be missing, and is tried again
			continue
		}
		if r, known := ruleFor(err); known && r.settled {
			refused = append(refused, explained("join the group "+c.group+" of", st.name, err))
			continue
		}
		c.outages.begin(ctx, st, "join", err)
	}
	return errors.Join(refused...)
}

// ensure creates stream and group where they do not exist.
func (c *Consumer) ensure(ctx context.Context, st *stream) error {
	from := st.start
	if from == "" {
		from = "0"
		if c.fromNow {
			from = "$"
		}
	}
	err := c.createGroup(ctx, st, from)
	if errors.Is(err, errNoBackfill) {
		st.start = "0" // whatever there will be is new
		return err
	}
	if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		return err
	}
	if err == nil { // a stream whose name is misspelt is created, too, and stays empty: so it is said
		c.log.InfoContext(ctx, "consumer group created", "stream", st.name, "group", c.group, "from", from)
	}
	if st.start == "" {
		st.start = "0"
		if c.fromNow {
			if st.start, err = c.position(ctx, st); err != nil {
				st.start = ""
				return err
			}
		}
	}
	st.ready = true
	st.joined.Store(true)
	return nil
}

// position is the id that the group was handed last.
func (c *Consumer) position(ctx context.Context, st *stream) (string, error) {
	groups, err := c.client.XInfoGroups(ctx, st.name).Result()
	if err != nil {
		return "", err
	}
	for _, group := range groups {
		if group.Name == c.group {
			return group.LastDeliveredID, nil
		}
	}
	return "", fmt.Errorf("NOGROUP the group %q is gone again", c.group)
}

// claimRows makes entries ours that are as rows has them. Where charge is set it counts as a
// delivery, unless it is only the answer to one that was lost.
func (c *Consumer) claimRows(ctx context.Context, st *stream, idle time.Duration, rows []row, charge bool) ([]*item, error) {
	groups := map[int][]row{} // by what the delivery count grows by
	for _, r := range rows {
		growth := 1
		if !charge || r.Consumer == c.name && !c.named {
			growth = 0
		}
		groups[growth] = append(groups[growth], r)
	}
	var items []*item
	for growth, rows := range groups {
		args := []any{c.group, c.name, idle.Milliseconds(), growth}
		for _, r := range rows {
			args = append(args, r.ID, r.Consumer, r.RetryCount)
		}
		answer, err := claimScript.run(context.WithoutCancel(ctx), c.client, []string{st.name}, args...)
		if err != nil {
			return nil, err
		}
		entries, err := entriesOf(answer)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.fields == nil {
				c.trimmed(ctx, st, e.id)
				continue
			}
			it, err := c.newItem(st, e.id, e.count, e.fields)
			if err != nil {
				return nil, err
			}
			st.counters.takenOver.Add(1)
			items = append(items, it)
		}
	}
	return items, nil
}

// trimmed reports an entry that nobody will ever handle.
func (c *Consumer) trimmed(ctx context.Context, st *stream, position string) {
	st.counters.trimmed.Add(1)
	c.log.ErrorContext(ctx, "message trimmed before it was handled",
		"stream", st.name, "entry", position)
}
