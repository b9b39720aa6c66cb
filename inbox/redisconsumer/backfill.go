package redisconsumer

import (
	"context"
	"errors"
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
func (s *session) createGroup(ctx context.Context, st *stream, from string) error {
	if st.primary == nil {
		return s.client.XGroupCreateMkStream(ctx, st.name, s.group, from).Err()
	}
	n, err := s.client.Exists(ctx, st.name).Result()
	if err != nil {
		return err
	}
	if n == 0 {
		return errNoBackfill
	}
	err = s.client.XGroupCreate(ctx, st.name, s.group, from).Err()
	if err != nil && redis.HasErrorPrefix(err, "ERR The XGROUP subcommand requires the key to exist") {
		return errNoBackfill
	}
	return err
}

// mayTake reports whether a stream may take entries now: a backfill only while its stream has
// nothing new and few of its own wait for a worker.
func (s *session) mayTake(st *stream) bool {
	if st.primary == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return st.primary.idle.Load() && !s.queues.urgent()
}
