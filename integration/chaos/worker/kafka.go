package worker

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/brokers/kafka"
	"github.com/gorm-fanout/fanout/brokers/kafka/kafkaconsumer"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

const (
	// sessionTimeout is the shortest that Kafka allows by default: a projector that was killed keeps its
	// partitions for as long, and one that is stopped can lose them.
	sessionTimeout = 6 * time.Second
	// rebalanceTimeout is how long a member may take to give a partition back.
	rebalanceTimeout = 20 * time.Second
)

// observeKafka reads the topics from where its ledger ends, and records each message.
func observeKafka(ctx context.Context, ledger *scenario.Ledger) error {
	places := map[string]map[int32]kgo.Offset{}
	for _, topic := range scenario.Topics() {
		places[topic] = map[int32]kgo.Offset{}
		for n := range int32(scenario.Partitions) {
			places[topic][n] = kgo.NewOffset().AtStart()
		}
	}
	if err := scenario.ReadLedger(os.Getenv(LedgerVariable), func(line scenario.Line) { // in the order of each partition
		if partition, offset, is := placeOf(line.Entry); is && places[line.Stream] != nil {
			places[line.Stream][partition] = kgo.NewOffset().At(offset + 1)
		}
	}); err != nil {
		return err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(os.Getenv(ServerVariable), ",")...), kgo.ConsumePartitions(places),
		kgo.DisableClientMetrics(), kgo.DialTimeout(2*readPatience), kgo.FetchMaxWait(readPatience/2))
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		var lines []scenario.Line
		fetches.EachRecord(func(r *kgo.Record) {
			line := scenario.Line{Broker: scenario.Kafka, Stream: r.Topic, Entry: strconv.Itoa(int(r.Partition)) + ":" + strconv.FormatInt(r.Offset, 10)}
			for _, h := range r.Headers {
				if h.Key == "id" {
					line.Message = string(h.Value)
				}
			}
			lines = append(lines, line)
		})
		if err := ledger.Write(lines...); err != nil {
			return err
		}
		if fetches.Err() != nil {
			wait(ctx, readPatience/5)
		}
	}
	client.Close()
	return ended(ledger, scenario.Line{})
}

// placeOf reads a line's entry: a partition and an offset.
func placeOf(entry string) (partition int32, offset int64, is bool) {
	first, second, _ := strings.Cut(entry, ":")
	n, err := strconv.ParseInt(first, 10, 32)
	if err != nil {
		return 0, 0, false
	}
	offset, err = strconv.ParseInt(second, 10, 64)
	return int32(n), offset, err == nil
}

// projectKafka consumes the topics as a member of the projections' group.
func projectKafka(p *projector, broker string, cfg config.Broker) error {
	consumer, err := kafkaconsumer.NewConsumer(strings.Split(settingsOf[*kafka.Settings](cfg).BootstrapServers, ","), scenario.ProjectionGroup, scenario.Topics(), p.handler,
		kafkaconsumer.Config{ConsumerConfig: configOf(broker), Client: []kgo.Opt{kgo.SessionTimeout(sessionTimeout), kgo.RebalanceTimeout(rebalanceTimeout)}})
	p.consumers = append(p.consumers, consumer)
	return err
}
