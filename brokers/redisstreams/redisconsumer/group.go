package redisconsumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/internal/redisreply"
)

// backfillSuffix is what producers add to the name of a stream for messages of low priority; a
// contract with them.
const backfillSuffix = ":backfill"

// backfillPause is how long a backfill that has nothing to do, or has to wait, is left alone.
const backfillPause = 100 * time.Millisecond

// errNoBackfill says that no producer has published anything of low priority.
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
func (r *run) createGroup(ctx context.Context, f *feed, from string) error {
	if f.primary == nil {
		return r.client.XGroupCreateMkStream(ctx, f.name, r.group, from).Err()
	}
	n, err := r.client.Exists(ctx, f.name).Result()
	if err != nil {
		return err
	}
	if n == 0 {
		return errNoBackfill
	}
	err = r.client.XGroupCreate(ctx, f.name, r.group, from).Err()
	if err != nil && redis.HasErrorPrefix(err, "ERR The XGROUP subcommand requires the key to exist") {
		return errNoBackfill
	}
	return err
}

// open creates the groups. Only what does not pass by itself is an error; the rest is tried again
// later.
func (r *run) open(ctx context.Context) error {
	var refused []error
	for _, f := range r.feeds {
		err := r.ensure(ctx, f)
		if err == nil || ctx.Err() != nil || f.primary != nil { // a backfill may be missing, and is tried again
			continue
		}
		if m, known := redisreply.Of(err); known && m.Settled {
			refused = append(refused, explained("join the group "+r.group+" of", f.name, err))
			continue
		}
		r.failed(ctx, f.stream, "join", err)
	}
	return errors.Join(refused...)
}

// ensure creates stream and group where they do not exist.
func (r *run) ensure(ctx context.Context, f *feed) error {
	from := f.start
	if from == "" {
		from = "0"
		if r.config.NewOnly {
			from = "$"
		}
	}
	err := r.createGroup(ctx, f, from)
	if errors.Is(err, errNoBackfill) {
		f.start = "0" // whatever there will be is new
		return err
	}
	if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		return err
	}
	if err == nil { // a stream whose name is misspelt is created, too, and stays empty: so it is said
		r.log.InfoContext(ctx, "consumer group created", "stream", f.name, "from", from)
	}
	if f.start == "" {
		f.start = "0"
		if r.config.NewOnly {
			if f.start, err = r.position(ctx, f); err != nil {
				f.start = ""
				return err
			}
		}
	}
	f.ready = true
	f.joined.Store(true)
	return nil
}

// position is the id that the group was handed last.
func (r *run) position(ctx context.Context, f *feed) (string, error) {
	groups, err := r.client.XInfoGroups(ctx, f.name).Result()
	if err != nil {
		return "", err
	}
	for _, group := range groups {
		if group.Name == r.group {
			return group.LastDeliveredID, nil
		}
	}
	return "", fmt.Errorf("NOGROUP the group %q is gone again", r.group)
}
