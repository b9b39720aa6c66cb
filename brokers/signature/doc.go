// Package signature signs messages for partners on every broker, and verifies them at the partner: who
// consumes from a Kafka, Pub/Sub, NATS, RabbitMQ or Redis that others can write to, too, knows by it that
// a message comes from the producer, unchanged, and belongs into this stream. It needs neither a relay nor
// a database. Webhooks are signed by package webhook, as Standard Webhooks has it.
//
// A relay signs as it sends (key "sign" of a broker in package config), so that no key and no signature
// is in a row. A consumer calls [Keys.Verify] before it looks at anything else of the message.
//
// # Keys
//
// A key has an id, which travels with the message, and is one of these texts. The first three are those of
// Standard Webhooks:
//
//	whsec_<base64>                  HMAC-SHA256, 32 to 64 bytes; signs and verifies, so whoever has it can sign, too
//	whsk_<base64>                   Ed25519, private: the seed of 32 bytes, or 64 with the public key behind it
//	whpk_<base64>                   Ed25519, public, 32 bytes; verifies
//	-----BEGIN PRIVATE KEY-----     Ed25519 in PEM (PKCS #8), as of "openssl genpkey -algorithm ed25519"
//	-----BEGIN PUBLIC KEY-----      Ed25519 in PEM, as of "openssl pkey -pubout"
//
// A message has a signature of each key that the relay has. To change a key, give the relay the new one
// beside the old one, give partners the new one, and remove the old one when all of them have it.
//
// # On the wire
//
// The flat field "signature" (an attribute, header or field of the broker's) has the time of the signature
// in seconds since 1970, and for each key the version, the key's id and the signature in base64:
//
//	t=1795500000 v1a,2026-11,<88 characters> v1,2026-05,<44 characters>
//
// v1 is HMAC-SHA256, v1a Ed25519 (RFC 8032), as in Standard Webhooks; other versions are to be passed over.
// What is signed is this text: a line with its version, and seven lines with the number of bytes in
// front, so that no two messages have the same text whatever is in their fields:
//
//	fanout-v1
//	7:2026-11                                  id of the key
//	10:1795500000                              time of the signature, as behind t=
//	36:01975d2e-6f0a-7000-8000-0000000000a1    flat field id
//	23:Ordering.OrderPlaced.v1                 flat field type
//	15:ordering::order                         destination
//	64:5d41...                                 SHA-256 of the payload's bytes, hexadecimal
//
// Every line ends with a line feed, the last one included. testdata/vectors.json has messages with their
// texts and signatures for implementations in other languages.
//
// The destination is the producer's name of the stream, before a broker's own rules for names apply:
// ordering::order, where Kafka and Pub/Sub have the topic ordering.order. It is not on the wire: the consumer
// says which one it expects, so that a message that someone has copied from another stream does not verify.
//
// The time is that of the attempt; when the event was raised stands in the payload. A replayed message is
// signed anew. Other flat fields (ordering key, correlation id, content type, trace context) are not signed.
package signature
