//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
	"github.com/gorm-fanout/fanout/internal/testservers"
)

// redisServer writes each command to the disk before it answers.
var redisServer = &serverKind{
	name: "redis",
	start: func(ctx context.Context, s *fixture) (*server, error) {
		return s.startServer(ctx, testservers.OwnRedis, testservers.RedisVariable)
	},
	prepare: borrowStreams,
	signals: map[Kind]syscall.Signal{RedisTerm: syscall.SIGTERM, RedisKill: syscall.SIGKILL},
	address: host,
	through: func(url, address string) string { return behind(url, address) },
}

// borrowStreams empties the streams of a server that the rig did not start, now and in the end.
func borrowStreams(ctx context.Context, s *fixture, at *server) error {
	if at.ours() {
		return nil
	}
	empty := func() error {
		options, err := redis.ParseURL(at.url)
		if err != nil {
			return err
		}
		client := redis.NewClient(options)
		for _, stream := range append(scenario.Streams(), scenario.PartnerStreams()...) {
			err = errors.Join(err, client.Del(context.WithoutCancel(ctx), stream).Err())
		}
		return errors.Join(err, client.Close())
	}
	s.closers = append(s.closers, empty)
	return empty()
}

// readRedis reads whole streams.
func readRedis(ctx context.Context, s *servers, streams []string, hold holder) error {
	options, err := redis.ParseURL(s.brokers[redisServer].url)
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	defer client.Close()
	for _, stream := range streams {
		if err := readStream(ctx, client, stream, func(entry redis.XMessage) error {
			fields := map[string]string{}
			for name, value := range entry.Values {
				fields[name], _ = value.(string)
			}
			data := []byte(fields["data"])
			delete(fields, "data")
			milliseconds, _, _ := strings.Cut(entry.ID, "-")
			at, err := strconv.ParseInt(milliseconds, 10, 64)
			if err != nil {
				return err
			}
			return hold(fields, data, time.UnixMilli(at))
		}); err != nil {
			return fmt.Errorf("chaos: read stream %s: %w", stream, err)
		}
	}
	return nil
}

// readStream reads a whole stream, page by page.
func readStream(ctx context.Context, client *redis.Client, stream string, f func(redis.XMessage) error) error {
	const piece = 1000
	for from := "-"; ; {
		entries, err := client.XRangeN(ctx, stream, from, "+", piece).Result()
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if err := f(entry); err != nil {
				return err
			}
			from = "(" + entry.ID
		}
		if len(entries) < piece {
			return nil
		}
	}
}
