package gcppubsub

import (
	"time"

	"cloud.google.com/go/pubsub/v2"
	"google.golang.org/api/option"
)

const (
	defaultTimeout = 10 * time.Second
	// defaultConcurrency is how many streams one HTTP/2 connection to Pub/Sub carries.
	defaultConcurrency = 100
	// defaultBatchBytes keeps a request small enough to pass within its timeout over a slow line.
	defaultBatchBytes = 1 << 20
)

type options struct {
	topic        func(destination string) string
	createTopics bool
	timeout      time.Duration
	concurrency  int
	batchCount   int
	batchBytes   int
	compressFrom int // 0 = never
	endpoint     string
	client       []option.ClientOption
}

func defaults() options {
	return options{
		topic: TopicID, timeout: defaultTimeout, concurrency: defaultConcurrency,
		batchCount: pubsub.MaxPublishRequestCount, batchBytes: defaultBatchBytes,
	}
}

// An Option changes a broker. Options that have no sensible meaning (a negative number) count as
// not given.
type Option func(*options)

// WithTopic sets how a destination is turned into a topic, given as its id ("ordering.order") or in
// full ("projects/p/topics/ordering.order"). Default: [TopicID]. It is called often and
// concurrently.
func WithTopic(topic func(destination string) string) Option {
	return func(o *options) {
		if topic != nil {
			o.topic = topic
		}
	}
}

// WithCreateTopics creates topics that do not exist when something is published to them. For demos
// and the emulator: in production a message to a topic that nobody subscribed to would be gone, and
// the credentials would need more than publishing.
func WithCreateTopics() Option { return func(o *options) { o.createTopics = true } }

// WithTimeout bounds one request to Pub/Sub, within the context of the call. Default 10 s. A
// request that is not answered by then counts as an outage of the broker.
func WithTimeout(d time.Duration) Option {
	return func(o *options) {
		if d > 0 {
			o.timeout = d
		}
	}
}

// WithConcurrency sets how many requests one Publish call has under way at most. Default 100.
// Pub/Sub wants a request per ordering key, so that a bulk of many keys becomes many small
// requests.
func WithConcurrency(n int) Option {
	return func(o *options) {
		if n > 0 {
			o.concurrency = n
		}
	}
}

// WithBatch sets how many messages, and of how many bytes together, go in one request. Defaults:
// 1,000 (as many as Pub/Sub takes) and 1 MiB; a larger message goes alone. Nothing ever waits for a
// batch to fill up.
func WithBatch(messages, bytes int) Option {
	return func(o *options) {
		if messages > 0 {
			o.batchCount = min(messages, pubsub.MaxPublishRequestCount)
		}
		if bytes > 0 {
			o.batchBytes = min(bytes, maxRequestBytes)
		}
	}
}

// WithCompression compresses requests of minBytes and more with gzip on their way to Pub/Sub, which
// trades processor time for network traffic. The limits of Pub/Sub and its prices go by what is not
// compressed. Default: nothing is compressed; 240 is where Google's own libraries begin, and 1
// means every request.
func WithCompression(minBytes int) Option {
	return func(o *options) {
		if minBytes > 0 {
			o.compressFrom = minBytes
		}
	}
}

// WithEndpoint sets the address of the service, such as a regional one
// ("europe-west1-pubsub.googleapis.com:443"). It is spoken to with TLS and credentials;
// [WithEmulator] is without. Default: the global one. PUBSUB_EMULATOR_HOST goes before it: what a
// configuration pins does not keep a developer from an emulator.
func WithEndpoint(endpoint string) Option {
	return func(o *options) {
		if endpoint != "" {
			o.endpoint = endpoint
		}
	}
}

// WithClientOptions hands options to the client that [Open] makes: credentials, dial options, quota
// project. They come after those of this package, in the order in which they are given.
func WithClientOptions(opts ...option.ClientOption) Option {
	return func(o *options) { o.client = append(o.client, opts...) }
}
