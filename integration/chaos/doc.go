// Package chaos proves Fanout on a bad day: producers, relays and consumers, each a process of its
// own, with their own PostgreSQL or MySQL, Redis, Pub/Sub, RabbitMQ, NATS and Kafka, all of which are killed,
// stopped, restarted and cut off from each other by a schedule that a seed decides. What was
// committed, what each broker holds and what consumers saw is written down outside of the program
// under test and compared in the end.
//
// docs/reliability.md says how to run it and how to read its report.
package chaos
