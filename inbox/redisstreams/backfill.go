package redisstreams

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// backfillSuffix is what producers add to the name of a stream for messages of low priority; a contract with them.
const backfillSuffix = ":backfill"

// backfillPause is how long a backfill that has nothing to do, or has to wait, is left alone.
const backfillPause = 100 * time.Millisecond

// errNoBackfill says that nobody has published anything of low priority.
var errNoBackfill = errors.New("redisstreams: there is no backfill")

// addBackfills adds the backfill of each stream, unless it is read as a stream of its own.
func (c *Consumer) addBackfills() {
	for _, l := range slices.Clone(c.lanes) {
		stream := l.stream + backfillSuffix
		if !strings.HasSuffix(l.stream, backfillSuffix) && !slices.ContainsFunc(c.lanes, func(other *lane) bool { return other.stream == stream }) {
			c.lanes = append(c.lanes, &lane{stream: stream, dead: l.dead, source: l.source, primary: l})
		}
	}
}

// createGroup creates the group, and its stream where there is none; but no backfill, which most streams do not have.
func (s *session) createGroup(ctx context.Context, l *lane, from string) error {
	if l.primary == nil {
		return s.client.XGroupCreateMkStream(ctx, l.stream, s.group, from).Err()
	}
	n, err := s.client.Exists(ctx, l.stream).Result()
	if err != nil {
		return err
	}
	if n == 0 {
		return errNoBackfill
	}
	err = s.client.XGroupCreate(ctx, l.stream, s.group, from).Err()
	if err != nil && redis.HasErrorPrefix(err, "ERR The XGROUP subcommand requires the key to exist") {
		return errNoBackfill
	}
	return err
}

// mayTake reports whether a lane may take entries now: a backfill only while its stream has nothing new and few of its own wait for a worker.
func (s *session) mayTake(l *lane) bool {
	if l.primary == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.primary.idle.Load() && !s.queue.urgent()
}
