// Package webhook publishes to an HTTPS endpoint of a partner, signed as Standard Webhooks has it
// (https://www.standardwebhooks.com). It needs nothing but the standard library.
//
// A message becomes one POST: the body is the payload. A broker is one endpoint; a partner with
// several has several brokers, each with a filter, a rate and a circuit breaker of its own.
//
// # Headers
//
//	webhook-id                the id of the message, the same at every attempt
//	webhook-timestamp         when it was signed, in seconds since 1970
//	webhook-signature         v1,<base64>, one for each secret, with blanks between
//	content-type              of the payload
//	traceparent, tracestate   as W3C has them, where there are any
//	fanout-destination        the stream, such as ordering::order
//	fanout-type               the type of the event
//	fanout-ordering-key       where there is one; fanout-correlation-id likewise
//	fanout-<name>             any further attribute, with "-" for each "_"
//
// In values of the headers that begin with fanout-, "%" and every byte that is not printable ASCII are
// "%" and two hexadecimal digits, as is a blank at the beginning or the end. An attribute is left out,
// and named in the Result, where its name has other characters than a-z, 0-9, "-" and "_", where a
// header of its name is there already, and beyond 6 KiB of headers: servers have limits of 8 KiB.
//
// # Order
//
// A message is sent when the one before it on its key was answered, so a key costs a round trip per
// message. Messages of other keys, and those without, are sent beside it ([Settings.Concurrency]).
//
// What the endpoint says that it has not processed is sent again in the same call, within the time
// of the request: over HTTP/2 a server ends each connection after some number of requests (GOAWAY;
// keepalive_requests of nginx), or resets a stream (REFUSED_STREAM, and PROTOCOL_ERROR, which some
// send in its place). What may have arrived is not: the message then waits for its next attempt.
// The new connection resumes the TLS session of the old one.
//
// # What answers mean
//
//	2xx                           published
//	429, 503 with Retry-After     unavailable broker   nothing is sent until then, for an hour at most
//	401, 403, 404, 405, 407, 410  unavailable broker   check secret and URL, with the partner
//	any other 4xx                 refused              an attempt is spent where others get through
//	1xx, 3xx                      unavailable broker   redirects are not followed: name the URL itself
//	5xx, no answer, no connection unavailable broker   the endpoint is ill
//
// The status decides. Of the body 64 KiB are read, for 100 ms at most, or a second where the answer
// is no 2xx and the error quotes it. What takes longer is cut off: the connection with HTTP/1.1,
// the stream with HTTP/2. Retry-After is a date or seconds, also with a fraction.
//
// An answer of 401 or 404 says something about the endpoint, not about the message, and would be that of
// every other one: nothing is lost while a secret is wrong. One of 400 or 422 may mean either: it spends an
// attempt only where a relay has proof that it is the message's own, by others that get through
// ([brokers.Refused]). The same goes for a message at which the endpoint fails although it takes others. No
// answer ends a message at once.
//
// # Secrets
//
// A secret is "whsec_" and 24 to 64 bytes in base64; [NewSecret] makes one. To change it, give both:
// every message then carries a signature of each, until the partner has taken over the new one.
// Receivers check signatures with a [Verifier], or with a library of Standard Webhooks.
//
// # Addresses
//
// An endpoint whose address is not public (loopback, private networks, link-local such as the metadata
// services of clouds, and so on) is refused when a connection is made, whatever its name resolves to,
// unless [Settings.AllowPrivateNetworks] allows it. Redirects are never followed. Proxies of the environment are
// not used.
package webhook
