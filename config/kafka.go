package config

import (
	"slices"
	"strings"
)

// Kafka is what a broker of type kafka takes; package kafka has options of the same names.
type Kafka struct {
	// BootstrapServers are addresses (host:port) of some servers of the cluster, with commas between;
	// one that answers tells of the others. Required.
	BootstrapServers string
	// SASL is how to log in. Default: not at all, or by the certificate of the section tls.
	SASL KafkaSASL
	// Encrypted is set by the section tls, an empty one as well. Default: false, connections are not
	// encrypted.
	Encrypted bool
	// Topics has the settings of topics that are created. Only with CreateDestinations.
	Topics KafkaTopics
}

// KafkaSASL is a user of a Kafka cluster. The zero value is none.
type KafkaSASL struct {
	// Mechanism is SASLPlain, SASLScram256 or SASLScram512.
	Mechanism string
	// Username and Password as the mechanism takes them.
	Username string
	Password Secret
}

// The values of KafkaSASL.Mechanism, as Kafka has them.
const (
	SASLPlain    = "PLAIN"
	SASLScram256 = "SCRAM-SHA-256"
	SASLScram512 = "SCRAM-SHA-512"
)

// KafkaTopics are the settings of topics that a broker of type kafka creates.
type KafkaTopics struct {
	// Partitions of a topic. Default: 0, num.partitions of the cluster.
	Partitions int
	// Replicas of each partition. Default: 0, default.replication.factor of the cluster.
	Replicas int
}

const (
	mostPartitions    = 100_000
	mostKafkaReplicas = 100
)

// readKafka reads the keys of brokers of type kafka, also of others, which then refuse them.
func (r *reader) readKafka(entry *object, kafka *Kafka) {
	entry.text("bootstrap_servers", &kafka.BootstrapServers)
	sasl := entry.object("sasl")
	kafka.SASL.Mechanism = sasl.choice("mechanism", SASLPlain, SASLScram256, SASLScram512)
	sasl.text("username", &kafka.SASL.Username)
	sasl.secret("password", &kafka.SASL.Password)
	sasl.close()
	complete := sasl.has("mechanism") && sasl.has("username") && sasl.has("password")
	if f := entry.find("sasl"); f != nil && !f.bad && !complete {
		r.problemf(f.key, f.path, "mechanism, username and password are all required")
	}
	topics := entry.object("topics")
	topics.integer("partitions", &kafka.Topics.Partitions, mostPartitions)
	topics.integer("replicas", &kafka.Topics.Replicas, mostKafkaReplicas)
	topics.close()
}

// checkKafka compares the keys of a broker of type kafka with each other. The client looks at the
// addresses.
func (r *reader) checkKafka(entry *object, broker *Broker) {
	r.require(entry, "bootstrap_servers", "kafka-1:9092,kafka-2:9092")
	r.checkCreated(entry, "topics", broker.CreateDestinations)
	broker.Kafka.Encrypted = entry.has("tls")
}

// checkCreated refuses settings of destinations that are never created.
func (r *reader) checkCreated(entry *object, name string, creates bool) {
	if f := entry.find(name); f != nil && !creates && entry.sound("create_destinations") {
		r.problemf(f.key, f.path, "does nothing without create_destinations: true")
	}
}

// serversPlace is the set of servers of a text with commas between: servers that were given in another
// order are the same cluster.
func serversPlace(servers, scheme, port string) string {
	var hosts []string
	for server := range strings.SplitSeq(servers, ",") {
		server = strings.TrimSpace(server)
		if !strings.Contains(server, "://") {
			server = scheme + server
		}
		hosts = append(hosts, urlPlace(server, port, "", ""))
	}
	slices.Sort(hosts)
	return strings.Join(hosts, ",")
}
