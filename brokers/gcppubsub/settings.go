package gcppubsub

import (
	"context"
	"net"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

const (
	defaultTimeout = 10 * time.Second
	// defaultConcurrency is how many streams one HTTP/2 connection to Pub/Sub carries.
	defaultConcurrency = 100
	// defaultBatchBytes keeps a request small enough to pass within its timeout over a slow line.
	defaultBatchBytes = 1 << 20
)

// Settings are those of one broker, in Go and in a configuration of type pubsub. What has no sensible
// meaning (a negative number) counts as not given.
type Settings struct {
	// Project is the id of a Google Cloud project; pubsub.DetectProjectID is that of the credentials.
	// Required.
	Project string `config:"project"`
	// Endpoint is the address of the service, such as a regional one
	// ("europe-west1-pubsub.googleapis.com:443"), or of an emulator: any address that is neither Google's
	// nor has the port of HTTPS, such as "localhost:8085", which is talked to without TLS and
	// credentials. PUBSUB_EMULATOR_HOST goes before the service's, for all brokers of a process: what a
	// configuration pins does not keep a developer from an emulator. Default: the global one.
	Endpoint string `config:"endpoint"`
	// Compression compresses requests of so many bytes and more with gzip on their way to Pub/Sub, which
	// trades processor time for network traffic. The limits of Pub/Sub and its prices go by what is not
	// compressed. 240 is where Google's own libraries begin, and 1 means every request. Default: 0,
	// nothing is compressed.
	Compression int `config:"compression"`
	// CreateDestinations creates topics that do not exist when something is published to them. For demos
	// and the emulator: in production a message to a topic without subscriptions would be lost, and
	// the credentials would need more than publishing. Default: false.
	CreateDestinations bool `config:"create_destinations"`

	// The settings below exist in Go alone.

	// Topic turns a destination into a topic, given as its id ("ordering.order") or in full
	// ("projects/p/topics/ordering.order"). It is called often and concurrently. Default: [TopicID].
	Topic func(destination string) string `json:"-" yaml:"-"`
	// Timeout bounds one request to Pub/Sub, within the context of the call. A request that is not
	// answered by then counts as an outage of the broker. Default: 10 s.
	Timeout time.Duration
	// Concurrency is how many requests one Publish call has in progress at most. Pub/Sub wants a request
	// per ordering key, so that a bulk of many keys becomes many small requests. Default: 100.
	Concurrency int
	// BatchMessages and BatchBytes bound what goes in one request; a larger message goes alone. Nothing
	// ever waits for a batch to fill up. Default, and most of the first: 1,000, as many as Pub/Sub takes;
	// of the second: 1 MiB.
	BatchMessages, BatchBytes int
	// Client has options of the client that [Open] makes: credentials, dial options, quota project. They
	// come after those of this package.
	Client []option.ClientOption `json:"-" yaml:"-"`
}

// Type is the type pubsub of configurations. A program that delivers passes it to
// fanout.WithBrokerType.
func Type() adapter.Type {
	return adapter.Type{Name: "pubsub", New: func() adapter.Settings { return new(Settings) }}
}

// Open implements [adapter.Settings] by the function [Open].
func (s *Settings) Open(ctx context.Context, _ string) (brokers.Broker, error) {
	b, err := Open(ctx, *s)
	if err != nil {
		return nil, err // and not a broker that is a nil *Broker
	}
	return b, nil
}

// Check implements [adapter.Settings].
func (s *Settings) Check(section adapter.Section) {
	if section.Require("project", "the id of a Google Cloud project") && section.Sound("project") {
		section.Place(adapter.Place{Servers: []string{s.Project}, Inside: s.Endpoint, Elsewhere: "project"})
	}
}

// options of a broker, as its settings say.
type options struct {
	topic        func(destination string) string
	createTopics bool
	timeout      time.Duration
	concurrency  int
	batchCount   int
	batchBytes   int
	compressFrom int // 0 = never
}

// options are what the settings mean.
func (s *Settings) options() options {
	o := options{
		topic: TopicID, createTopics: s.CreateDestinations, timeout: defaultTimeout, concurrency: defaultConcurrency,
		batchCount: pubsub.MaxPublishRequestCount, batchBytes: defaultBatchBytes, compressFrom: max(s.Compression, 0),
	}
	if s.Topic != nil {
		o.topic = s.Topic
	}
	if s.Timeout > 0 {
		o.timeout = s.Timeout
	}
	if s.Concurrency > 0 {
		o.concurrency = s.Concurrency
	}
	if s.BatchMessages > 0 {
		o.batchCount = min(s.BatchMessages, pubsub.MaxPublishRequestCount)
	}
	if s.BatchBytes > 0 {
		o.batchBytes = min(s.BatchBytes, maxRequestBytes)
	}
	return o
}

// emulatorVariable of the environment is read by the client library as well.
const emulatorVariable = "PUBSUB_EMULATOR_HOST"

// endpoint tells Google's own endpoints, such as the regional ones, and those that a company has of
// its own (at the port of HTTPS) from emulators, which have neither TLS nor credentials.
func endpoint(address string, emulated bool) []option.ClientOption {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	switch {
	case address == "":
		return nil
	case strings.HasSuffix(host, ".googleapis.com"), port == "443":
		if emulated {
			return nil
		}
		return []option.ClientOption{option.WithEndpoint(address)}
	default:
		return []option.ClientOption{
			option.WithEndpoint(address), option.WithoutAuthentication(),
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
		}
	}
}
