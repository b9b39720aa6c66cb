package worker

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

// claimAfter is how long a Redis consumer may be silent before others claim its messages.
const claimAfter = 3 * time.Second

// redisReader follows streams and records each message.
type redisReader struct {
	client *redis.Client
	ledger *scenario.Ledger
	last   map[string]string // by stream
}

func observeRedis(ctx context.Context, ledger *scenario.Ledger) error {
	redis.SetLogger(silent{})
	options, err := redis.ParseURL(os.Getenv(ServerVariable))
	if err != nil {
		return err
	}
	options.ReadTimeout, options.MaxRetries = 2*readPatience, -1
	r := &redisReader{client: redis.NewClient(options), ledger: ledger, last: map[string]string{}}
	for _, stream := range scenario.Streams() {
		r.last[stream], r.last[scenario.PartnerPrefix+stream] = "0", "0"
	}
	if err := scenario.ReadLedger(os.Getenv(LedgerVariable), func(line scenario.Line) {
		if line.Entry != "" {
			r.last[line.Stream] = line.Entry
		}
	}); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := r.read(ctx); err != nil {
			wait(ctx, readPatience/5)
		}
	}
	if err := r.client.Close(); err != nil {
		return err
	}
	return ledger.Write(scenario.Line{Ended: true})
}

func (r *redisReader) read(ctx context.Context) error {
	streams, ids := []string{}, []string{}
	for stream, id := range r.last {
		streams, ids = append(streams, stream), append(ids, id)
	}
	found, err := r.client.XRead(ctx, &redis.XReadArgs{Streams: slices.Concat(streams, ids), Count: 500, Block: readPatience}).Result()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, stream := range found {
		lines := make([]scenario.Line, 0, len(stream.Messages))
		for _, entry := range stream.Messages {
			id, _ := entry.Values["id"].(string)
			lines = append(lines, scenario.Line{Broker: brokerOf(stream.Stream), Stream: stream.Stream, Entry: entry.ID, Message: id})
			r.last[stream.Stream] = entry.ID
		}
		if err := r.ledger.Write(lines...); err != nil {
			return err
		}
	}
	return nil
}

// brokerOf is the broker whose messages a stream of Redis holds.
func brokerOf(stream string) string {
	if strings.HasPrefix(stream, scenario.PartnerPrefix) {
		return scenario.Partner
	}
	return scenario.Internal
}

// projectRedis consumes the streams of a broker.
func projectRedis(p *projector, broker string, cfg config.Broker) error {
	options, err := redis.ParseURL(settingsOf[*redisstreams.Settings](cfg).URL.Reveal())
	if err != nil {
		return err
	}
	options.ReadTimeout = 2 * readPatience
	client := redis.NewClient(options)
	p.closers = append(p.closers, client.Close)
	streams := scenario.Streams()
	if broker == scenario.Partner {
		streams = scenario.PartnerStreams()
	}
	consumer, err := redisconsumer.NewConsumer(client, scenario.ProjectionGroup, streams, p.handler,
		redisconsumer.Config{ConsumerConfig: configOf(broker), ClaimAfter: claimAfter})
	p.consumers = append(p.consumers, consumer)
	return err
}
