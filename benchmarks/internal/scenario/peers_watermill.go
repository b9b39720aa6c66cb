package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// watermillPeer drains by Watermill's forwarder, which reads a table, its topic, from where it has
// come to so far, and publishes message by message. It notes no state of a message, only the place,
// so that one message that cannot be published holds all others up.
//
// As it is by default: batches of 100, and a deadline for each message. Tuned: batches of 1,000, no
// deadline, the column of bytes, and the plain fields of the other cases in place of its own
// encoding. A topic has one reader at a time, whoever else subscribes; several topics are read
// beside each other, which an application would have to deal its keys out to itself.
type watermillPeer struct {
	tuned  bool
	topics int
}

const (
	watermillBatch  = 1000
	watermillInsert = 500 // messages that are written at once
	// watermillTunedPoll is how often it looks for messages.
	watermillTunedPoll = 10 * time.Millisecond
)

func topicOf(n int) string { return fmt.Sprintf("outbox_%d", n) }

func (p watermillPeer) schema() watermillsql.DefaultPostgreSQLSchema {
	if !p.tuned {
		return watermillsql.DefaultPostgreSQLSchema{}
	}
	return watermillsql.DefaultPostgreSQLSchema{
		SubscribeBatchSize: watermillBatch, GeneratePayloadType: func(string) string { return "BYTEA" },
	}
}

// subscriber reads topics of the pool's schema. Its tables are made before by initialize.
func (p watermillPeer) subscriber(pool *pgxpool.Pool) (*watermillsql.Subscriber, error) {
	config := watermillsql.SubscriberConfig{
		SchemaAdapter: p.schema(), OffsetsAdapter: watermillsql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true,
	}
	if p.tuned {
		config.AckDeadline, config.PollInterval = new(time.Duration), watermillTunedPoll
	}
	return watermillsql.NewSubscriber(watermillsql.BeginnerFromPgx(pool), config, watermill.NopLogger{})
}

// publisher writes messages for the forwarder, to one of its topics.
func (p watermillPeer) publisher(db watermillsql.ContextExecutor, topic string) (*forwarder.Publisher, error) {
	publisher, err := watermillsql.NewPublisher(db, watermillsql.PublisherConfig{SchemaAdapter: p.schema()}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	return forwarder.NewPublisher(publisher, forwarder.PublisherConfig{ForwarderTopic: topic}), nil
}

func (p watermillPeer) fill(ctx context.Context, s *setup) (err error) {
	subscriber, err := p.subscriber(s.pool)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, subscriber.Close()) }()
	payload := []byte(strings.Repeat("x", s.Payload))
	for n := range p.topics {
		if err := subscriber.SubscribeInitialize(topicOf(n)); err != nil {
			return err
		}
		publisher, err := p.publisher(watermillsql.BeginnerFromPgx(s.pool), topicOf(n))
		if err != nil {
			return err
		}
		var messages []*message.Message
		for id := int64(n); id < s.rows; id += int64(p.topics) {
			m := message.NewMessageWithContext(ctx, messageID(id), payload)
			m.Metadata.Set("type", peerType)
			m.Metadata.Set("headers", peerHeaders)
			if messages = append(messages, m); len(messages) == watermillInsert || id+int64(p.topics) >= s.rows {
				if err := publisher.Publish(s.stream, messages...); err != nil {
					return err
				}
				messages = messages[:0]
			}
		}
	}
	return nil
}

// forward begins to forward all topics. What it returns stops that.
func (p watermillPeer) forward(ctx context.Context, pool *pgxpool.Pool, client *redis.Client, done func()) (stop func() error, err error) {
	config := redisstream.PublisherConfig{Client: client}
	if p.tuned {
		config.Marshaller = plainFields{}
	}
	publisher, err := redisstream.NewPublisher(config, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	subscriber, err := p.subscriber(pool)
	if err != nil {
		return nil, err
	}
	var group errgroup.Group
	var forwarders []*forwarder.Forwarder
	stop = func() error {
		err := subscriber.Close() // else the end waits for the next look at the table
		for _, f := range forwarders {
			err = errors.Join(err, f.Close())
		}
		return errors.Join(err, group.Wait())
	}
	for n := range p.topics {
		f, err := forwarder.NewForwarder(subscriber, counted{publisher, done}, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: topicOf(n)})
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		forwarders = append(forwarders, f)
		over := make(chan struct{})
		group.Go(func() error {
			defer close(over)
			return f.Run(ctx)
		})
		select {
		case <-f.Running():
		case <-over:
			return nil, errors.Join(errors.New("scenario: a forwarder ended before it began"), stop())
		}
	}
	return stop, nil
}

func (p watermillPeer) drain(ctx context.Context, s *setup) (err error) {
	var worked atomic.Int64
	sent := make(chan struct{})
	stop, err := p.forward(ctx, s.pool, s.streams.Client, func() {
		if worked.Add(1) == s.rows {
			close(sent)
		}
	})
	if err != nil {
		return err
	}
	s.stop = stop
	return s.complete(ctx, sent, fmt.Sprintf("SELECT (%s) < %d", p.acknowledged(), s.rows))
}

// acknowledged is a statement that counts the messages before the places to which the readers have
// come. Offsets of a topic rise in the order of its one writer.
func (p watermillPeer) acknowledged() string {
	parts := make([]string, p.topics)
	for n := range parts {
		parts[n] = "(SELECT offset_acked FROM watermill_offsets_" + topicOf(n) + ")"
	}
	return "SELECT " + strings.Join(parts, " + ")
}

func (p watermillPeer) completed(ctx context.Context, s *setup) (n int64, err error) {
	err = s.pool.QueryRow(ctx, p.acknowledged()).Scan(&n)
	return n, err
}

func (p watermillPeer) field() string {
	if p.tuned {
		return "id"
	}
	return redisstream.UUIDHeaderKey
}

// plainFields writes the fields that the other cases write.
type plainFields struct{}

// Marshal implements redisstream.Marshaller.
func (plainFields) Marshal(_ string, m *message.Message) (map[string]any, error) {
	return map[string]any{"data": []byte(m.Payload), "id": m.UUID, "type": m.Metadata["type"], "headers": m.Metadata["headers"]}, nil
}

// counted tells of each message that is published. Closing it leaves the client open, which belongs
// to the setup.
type counted struct {
	publisher message.Publisher
	done      func()
}

// Publish implements message.Publisher.
func (c counted) Publish(topic string, messages ...*message.Message) error {
	err := c.publisher.Publish(topic, messages...)
	if err == nil {
		for range messages {
			c.done()
		}
	}
	return err
}

// Close implements message.Publisher.
func (counted) Close() error { return nil }
