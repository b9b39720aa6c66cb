// Package rabbitmq publishes to RabbitMQ, 3.10 or later, over AMQP 0-9-1.
//
//	broker, err := rabbitmq.Open(rabbitmq.Settings{URL: "amqp://user:password@rabbit.internal/orders", CreateDestinations: true})
//
// All messages go to one exchange, "fanout" unless [Settings.Exchange] names another one, and a message's
// routing key is its destination, such as "ordering::order", unless [Settings.RoutingKey] makes another one.
// Consumers bind their queues to the exchange, whose type is topic where [Settings.CreateDestinations] makes it.
//
// A message is persistent, its body is the payload, and it has these properties and headers:
//
//	message_id       the id; consumers deduplicate by it
//	type             the event type
//	content_type     application/json where the message names none
//	correlation_id   where there is one of at most 255 bytes
//	priority         -100 to 100 become 0 to 9, where 4 is normal
//	expiration       what is left of the time to live, or Expiration, whichever is shorter;
//	                 none above ten years, which RabbitMQ does not take
//	header ordering_key, where there is one, and a header for each attribute
//
// Left out, and named in the result, are a longer correlation id, and attributes that are called CC or
// BCC (RabbitMQ would route by them), have no name or one of more than 128 bytes, have the name of
// another header, or do not fit: all properties travel in one frame (frame_max, 128 KiB).
//
// # Delivery
//
// Messages are published in confirm mode, up to 500 at a time, and as mandatory: one that reaches no
// queue is not lost but unavailable, until a queue is bound, or the exchange has an alternate one.
// [Settings.Unroutable] ends that. A message that is sent again after its fate was unknown arrives
// twice.
//
// # Order
//
// Messages of a key that are in flight together would break the promise that none is visible before
// those in front of it. RabbitMQ does not stop at a message that it cannot deliver: a queue that is full
// (x-overflow reject-publish) refuses one message and takes the next, as a consumer has made room in
// between; a queue that fails over refuses what it had not yet stored; a message is returned as
// unroutable and the next one is routed, as a consumer has bound its queue in between, or as it has
// another routing key. A publisher cannot see which queues are behind an exchange, let alone their
// settings. (Transactions, tx.commit, are atomic for one queue at most, and exclude confirms.)
//
// So a message of a key is sent when the one before it was confirmed, and at most one of each key is in
// flight. Messages with different keys, and those without, do not wait for each other: a call with a
// hundred keys is one run, a call with a hundred messages of one key is a hundred round trips to the
// server and, behind it, to the disks of its queues. Where a key is that busy, several messages of it in
// one call are the price of its order.
//
// Within a queue messages stay in the order in which they were confirmed. Two things undo that: a queue
// with priorities (x-max-priority), where messages of a key need one priority, and several consumers of
// one queue. For consumers that work side by side, put an exchange of type x-consistent-hash (a plugin
// that comes with RabbitMQ) behind this one: each key then has one queue, and each queue one consumer
// (x-single-active-consumer, or exclusive).
//
//	exchange.declare  ordering.by-key  type=x-consistent-hash  arguments: hash-header=ordering_key
//	exchange.bind     source=fanout  destination=ordering.by-key  routing_key=ordering::order
//	queue.bind        source=ordering.by-key  destination=ordering-1  routing_key=1    (its weight)
//	queue.bind        source=ordering.by-key  destination=ordering-2  routing_key=1
//
// # Errors
//
//	the server says             class         scope        what to do
//	returned, NO_ROUTE          unavailable   destination  bind a queue, or see Unroutable
//	basic.nack                  unavailable   destination  a queue is full (reject-publish), or has failed
//	404 no exchange             unavailable   broker       declare it, or give CreateDestinations
//	403 access to topic         unavailable   destination  rabbitmqctl set_topic_permissions
//	403 access to exchange      unavailable   broker       rabbitmqctl set_permissions
//	403 internal exchange       unavailable   broker       name another exchange
//	403 anything else           unavailable   broker       check user and password
//	406 inequivalent arg        unavailable   broker       it was declared with another type of exchange
//	406 larger than max size    permanent, where others of the broker get through ([brokers.Refused])
//	530 limit                   unavailable   broker       raise the limit of connections
//	530 anything else           unavailable   broker       check the virtual host
//	320                         unavailable   broker       the server shuts down; wait
//	501                         unavailable   broker       the connection broke
//	504 id space exhausted      unavailable   broker       raise channel_max
//	connection.blocked          unavailable   broker       free memory or disk space of the server
//	anything else               unavailable   broker       see the server's log
//
// There is one exchange, and so what concerns the exchange concerns the broker. A message that was
// written when a channel or a connection ended, and was not confirmed, may have arrived or not: it is
// unavailable, and never "not sent". Where the server closes a channel because of one message and says
// which one, the others are sent again at once.
//
// A server that lacks memory or disk space blocks connections that publish, as soon as they do. Calls
// that are in progress then end, and later ones fail at once until the server lifts the block.
//
// Final for a message are an empty destination, a payload above [Settings.MaxMessageBytes], a routing key,
// id, type or content type above 255 bytes, and an ordering key that does not fit into a frame.
//
// # Connections
//
// A broker has one connection, made when it is needed, with a channel for each call in progress. Attempts
// to connect are made one at a time, for all callers, none of whom waits longer than its own context
// lasts. There is no retry: the processor retries. A write that is stuck in the connection a second
// after its context ended takes the connection with it, since nothing else ends it.
package rabbitmq
