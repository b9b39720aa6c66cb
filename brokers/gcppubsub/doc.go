// Package gcppubsub publishes to Google Cloud Pub/Sub. It is a module of its own: a relay opens the
// brokers of type pubsub of its configuration where it is given [FromConfig].
//
//	relay, err := fanout.Open(ctx, cfg, fanout.WithBrokerType(gcppubsub.Type()))
//
// A message becomes a Pub/Sub message: its data is the payload, its attributes are the flat fields
// (id, type, correlation_id, content-type, traceparent, tracestate and those of the configuration),
// its ordering key is the ordering key. Its priority does not travel: Pub/Sub has none.
//
// Topics are named after destinations ([TopicID] tells how) and have to exist, with a subscription:
// what is published to a topic without one is gone.
//
// # Order
//
// A key is a chain of requests, each sent when the one before it was confirmed. Whatever happens to
// a request, whether it is refused, fails, or is never answered, nothing behind it on its key is
// sent in the same call. A key is never paused: the next call sends again. What arrived without an
// answer comes twice then, first deliveries stay in order.
//
// Pub/Sub keeps the order of what is published in one region, to subscriptions that have message
// ordering enabled. Pin the region with [Settings.Endpoint] ("europe-west1-pubsub.googleapis.com:443")
// where relays run in several.
//
// # Errors
//
//	status               class         scope        what happens
//	NotFound             unavailable   destination  the topic is missing; scope broker if it is the project that is not found
//	PermissionDenied     unavailable   destination  scope broker if the reason is the project's: API or billing disabled, token's scopes
//	FailedPrecondition   unavailable   destination  the topic's encryption key or policy; scope broker if billing is disabled
//	Unauthenticated      unavailable   broker       credentials are missing, expired, or could not be had
//	ResourceExhausted    unavailable   broker       a quota, which is the project's in a region: every topic is met by it
//	Unavailable          unavailable   broker       after three attempts
//	DeadlineExceeded     unavailable   broker       no answer in time; whether the messages arrived is not known
//	Unimplemented        unavailable   broker       whatever answers is not Pub/Sub
//	InvalidArgument      permanent     destination  the request is halved until the message that is refused is alone
//	Internal, Aborted    retryable     destination  after three attempts; narrowed down to one message where it is one message's
//	Canceled, Unknown,   retryable     destination  narrowed down to one message where it is one message's
//	and all others
//
// What is permanent or retryable is so where other messages of the topic get through: else the topic is
// unavailable, since its schema or a transform may refuse every message ([brokers.Refused]).
//
// Three more are not the server's word. A message beyond the limits of Pub/Sub ([MaxMessageBytes]
// and its neighbours), or beyond what gRPC lets the server take, is permanent. A destination
// without a legal topic is unavailable (scope destination): another mapping cures it, and
// abandoning its messages meanwhile would lose their order. A caller who cancels gets retryable for
// what is in progress.
//
// The client's own retries are off. Unavailable, Internal and Aborted are tried again here, twice
// within about a quarter of a second and within the context of the call; the key waits meanwhile,
// so that a repeat overtakes nothing.
//
// Pub/Sub takes or refuses a request as a whole. What a failed request leaves unknown stays so in
// the results: messages of a request that may have arrived are never reported as not sent. Where an
// earlier one of their key is at fault, or may be, they are unavailable (scope destination), so
// that the failure costs its own message an attempt, and not all behind it.
//
// # Credentials, endpoints, projects
//
// [Open] finds credentials by the rules of the ecosystem, Application Default Credentials, unless
// [Settings.Client] gives them. Connections use TLS. PUBSUB_EMULATOR_HOST, or [Settings.Endpoint] for
// one broker, selects an emulator, without TLS and credentials. The project is given by its id, or
// as pubsub.DetectProjectID: then it is that of the credentials.
//
// Publishing needs pubsub.topics.publish on each topic (roles/pubsub.publisher), [Broker.Ping]
// needs no permission, and [Settings.CreateDestinations] needs pubsub.topics.create in the project as well.
//
// # Why not pubsub.Publisher
//
// The requests are made with the client's Publish call, not with its Publisher, whose background
// queue does not fit a processor. The queue sends with a context of its own, so that messages leave
// after their publish call has ended, and with it the lease on their rows. A request that fails
// because of one message fails for all in it, and the queue cannot take it apart. And a key that
// failed stays paused until it is resumed (ResumePublish), which cannot be timed right when
// several calls share the key. Here nothing is paused, and nothing is in progress once Publish has
// returned.
package gcppubsub
