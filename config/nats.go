package config

import "time"

// NATS is what a broker of type nats takes beside its URL; package nats has the options of the same
// names.
type NATS struct {
	// SubjectPrefix begins every subject, such as "events.". Default: none.
	SubjectPrefix string
	// CredentialsFile holds the JWT of a user and the seed of its key. Default: user and password, or
	// a token, of the URL.
	CredentialsFile string
	// Stream has the settings of streams that are created. Only with CreateDestinations.
	Stream NATSStream
}

// NATSStream are the settings of streams that a broker of type nats creates.
type NATSStream struct {
	// Replicas is the number of servers that hold a stream, 1 to 5. Default: 1.
	Replicas int
	// MaxAge is how long a stream keeps a message. Default: 0, for ever.
	MaxAge time.Duration
	// DuplicateWindow is how long a stream remembers ids. Default: the server's, 2 m.
	DuplicateWindow time.Duration
}

// mostReplicas is how many servers JetStream lets hold a stream.
const mostReplicas = 5

// readNATS reads the keys of brokers of type nats, also of others, which then refuse them.
func (o *object) readNATS(nats *NATS) {
	o.text("subject_prefix", &nats.SubjectPrefix)
	o.text("credentials_file", &nats.CredentialsFile)
	stream := o.object("stream")
	stream.integer("replicas", &nats.Stream.Replicas, mostReplicas)
	stream.duration("max_age", &nats.Stream.MaxAge, time.Second)
	stream.duration("duplicate_window", &nats.Stream.DuplicateWindow, time.Second)
	stream.close()
}
