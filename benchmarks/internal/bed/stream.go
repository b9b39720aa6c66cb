package bed

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Streams are Redis streams below a prefix of their own. Others use the same server at the same time.
type Streams struct {
	// Client of the server.
	Client *redis.Client

	prefix string
	names  []string
}

// OpenStreams connects to a server, which is told as a URL. The caller closes the streams.
func OpenStreams(ctx context.Context, server string) (*Streams, error) {
	options, err := redis.ParseURL(server)
	if err != nil {
		return nil, errors.New("bed: the Redis server is not told as a URL like redis://user:password@host:port/0")
	}
	s := &Streams{Client: redis.NewClient(options), prefix: "fanout-bench:" + strings.ToLower(rand.Text()[:8]) + ":"}
	if err := s.Client.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("bed: reach Redis: %w", err), s.Client.Close())
	}
	return s, nil
}

// New names a stream that does not exist yet.
func (s *Streams) New(label string) string {
	name := s.prefix + label
	s.names = append(s.names, name)
	return name
}

// Delete removes a stream.
func (s *Streams) Delete(ctx context.Context, name string) error {
	return s.Client.Unlink(ctx, name).Err()
}

// streamsTimeout bounds the clean-up.
const streamsTimeout = 30 * time.Second

// Close removes what is left of all streams. It has a time of its own, like [Database.Drop].
func (s *Streams) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), streamsTimeout)
	defer cancel()
	var err error
	if len(s.names) > 0 {
		err = s.Client.Unlink(ctx, s.names...).Err()
	}
	return errors.Join(err, s.Client.Close())
}

// Version of the server.
func (s *Streams) Version(ctx context.Context) (string, error) {
	info, err := s.Client.Info(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(info) {
		if version, found := strings.CutPrefix(line, "redis_version:"); found {
			return strings.TrimSpace(version), nil
		}
	}
	return "unknown", nil
}

// readPage is how many entries are read at once.
const readPage = 2000

// Each calls f with one field of each entry of a stream, in order, until f fails.
func (s *Streams) Each(ctx context.Context, name, field string, f func(messageID string) error) error {
	for from := "-"; ; {
		entries, err := s.Client.XRangeN(ctx, name, from, "+", readPage).Result()
		if err != nil || len(entries) == 0 {
			return err
		}
		for _, entry := range entries {
			id, _ := entry.Values[field].(string)
			if err := f(id); err != nil {
				return err
			}
		}
		from = "(" + entries[len(entries)-1].ID
	}
}

// Added is how many entries a stream has got so far, those among them that were trimmed. It needs Redis 7.
func (s *Streams) Added(ctx context.Context, name string) (int64, error) {
	info, err := s.Client.XInfoStream(ctx, name).Result()
	if err != nil {
		return 0, err
	}
	return info.EntriesAdded, nil
}
