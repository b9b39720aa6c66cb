// Package natsjetstream publishes to NATS JetStream.
package natsjetstream
