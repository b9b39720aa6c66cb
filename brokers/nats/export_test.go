package nats

import "github.com/nats-io/nats.go"

// WithDialer lets tests stand between the client and its server.
func WithDialer(dialer nats.CustomDialer) Option { return withClient(nats.SetCustomDialer(dialer)) }

// SubjectOf is subjectOf.
func SubjectOf(prefix, destination string) (string, error) { return subjectOf(prefix, destination) }
