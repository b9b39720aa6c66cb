//go:build unix

package chaos

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
	"github.com/gorm-fanout/fanout/internal/testservers"
)

// kafkaName is that of the cluster; a node has its id behind it.
const kafkaName = "kafka"

// kafkaNodes is the size of the cluster: of three, one may be out, and two are a quorum.
const kafkaNodes = 3

// kafkaServer is a cluster whose nodes are killed, frozen and cut off one by one, and two at a time. Of
// the three replicas of each message two confirm it, and a killed process loses nothing of what it has
// written to its files.
var kafkaServer = &serverKind{
	name:     kafkaName,
	optional: true,
	start:    startKafka,
	prepare:  makeTopics,
	signals: map[Kind]syscall.Signal{
		KafkaTerm: syscall.SIGTERM, KafkaKill: syscall.SIGKILL, KafkaQuorum: syscall.SIGKILL, KafkaFreeze: syscall.SIGSTOP,
	},
}

// startKafka starts the nodes. Each tells a client the addresses of the client's own links.
func startKafka(ctx context.Context, s *fixture) (*server, error) {
	at := &server{reached: map[string]string{}}
	nodeName := func(id int) string { return kafkaName + "-" + strconv.Itoa(id) }
	var listeners []testservers.KafkaListener
	for _, client := range append(s.connected(), observerOf(kafkaName)) {
		listeners = append(listeners, testservers.KafkaListener{
			Name: strings.ToUpper(strings.ReplaceAll(client, "-", "_")),
			Advertise: func(id int, address string) (string, error) {
				proxy, err := s.connect(client, nodeName(id), address)
				at.reached[client] = strings.TrimPrefix(at.reached[client]+","+proxy, ",")
				return proxy, err
			},
		})
	}
	cluster, err := testservers.OwnKafkaCluster(ctx, kafkaNodes, listeners...)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, cluster.Close)
	for i, own := range cluster.Nodes {
		at.nodes = append(at.nodes, &node{name: nodeName(i + 1), own: kafkaNode{own}})
	}
	fmt.Fprintf(s.log, "%d servers of its own: %s %s\n", kafkaNodes, cluster.Nodes[0].Name, cluster.Nodes[0].Version)
	at.url = cluster.URL()
	return at, nil
}

// kafkaNode is killed where it does not end politely: it asks the others before, and waits for those that
// are gone.
type kafkaNode struct{ *testservers.Own }

// End implements own.
func (n kafkaNode) End(signal os.Signal, patience time.Duration) error {
	if n.Own.End(signal, patience) == nil {
		return nil
	}
	return n.Own.End(syscall.SIGKILL, patience)
}

// askKafka talks to the cluster over connections of its own.
func askKafka(ctx context.Context, url string, talk func(context.Context, *kgo.Client) error, settings ...kgo.Opt) error {
	ctx, cancel := context.WithTimeout(ctx, questionPatience)
	defer cancel()
	client, err := kgo.NewClient(append(settings, kgo.SeedBrokers(strings.Split(url, ",")...), kgo.DisableClientMetrics())...)
	if err != nil {
		return err
	}
	defer client.Close()
	return talk(ctx, client)
}

// makeTopics makes the topics, with replicas on all nodes, two of which confirm, as the nodes have it by
// default. The nodes date the messages: the clocks of relays can be wrong.
func makeTopics(ctx context.Context, _ *fixture, at *server) error {
	return askKafka(ctx, at.url, func(ctx context.Context, client *kgo.Client) error {
		dated := "LogAppendTime"
		made, err := kadm.NewClient(client).CreateTopics(ctx, scenario.Partitions, kafkaNodes, map[string]*string{"message.timestamp.type": &dated}, scenario.Topics()...)
		if err != nil {
			return err
		}
		return made.Error()
	})
}

// readKafka reads the topics, partition by partition, in which the events of a key are.
func readKafka(ctx context.Context, s *servers, hold holder) error {
	url := s.brokers[kafkaServer].url
	ends := kadm.ListedOffsets{}
	if err := askKafka(ctx, url, func(ctx context.Context, client *kgo.Client) (err error) {
		if ends, err = kadm.NewClient(client).ListEndOffsets(ctx, scenario.Topics()...); err != nil {
			return err
		}
		return ends.Error()
	}); err != nil {
		return err
	}
	for _, end := range ends.Offsets().Sorted() {
		if end.At == 0 {
			continue
		}
		from := kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{end.Topic: {end.Partition: kgo.NewOffset().At(0)}})
		if err := askKafka(ctx, url, func(ctx context.Context, client *kgo.Client) error {
			return readPartition(ctx, client, end.At, hold)
		}, from, kgo.ConsumeResetOffset(kgo.NoResetOffset())); err != nil {
			return fmt.Errorf("chaos: read partition %d of topic %s: %w", end.Partition, end.Topic, err)
		}
	}
	return nil
}

// readPartition reads up to a place, without a hole.
func readPartition(ctx context.Context, client *kgo.Client, end int64, hold holder) error {
	for next := int64(0); next < end; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("at offset %d of %d: %w", next, end, err)
		}
		for _, r := range fetches.Records() {
			if r.Offset != next {
				return fmt.Errorf("it goes from offset %d to %d", next-1, r.Offset)
			}
			next++
			if err := hold(kafkaFields(r), r.Value, r.Timestamp); err != nil {
				return err
			}
		}
	}
	return nil
}

// kafkaFields are the headers, and the key, where it is not that of the header.
func kafkaFields(r *kgo.Record) map[string]string {
	fields := map[string]string{}
	for _, h := range r.Headers {
		fields[h.Key] = string(h.Value)
	}
	if key := string(r.Key); key != fields["ordering_key"] {
		fields["key of the record"] = key
	}
	return fields
}
