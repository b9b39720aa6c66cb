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
	// Topics has the settings of topics that are created. Only with CreateDestinations.
	Topics KafkaTopics
}

// KafkaSASL is a user of a Kafka cluster. The zero value is none.
type KafkaSASL struct {
	// Mechanism is SASLPlain, SASLScram256, SASLScram512 or SASLOAuthBearer.
	Mechanism string
	// Username and Password are those of the first three. Required with them.
	Username string
	Password Secret
	// TokenURL (https://), ClientID and ClientSecret are of SASLOAuthBearer: where tokens come from, as
	// client credentials of OAuth 2.0 (RFC 6749, 4.4). Required with it.
	TokenURL, ClientID string
	ClientSecret       Secret
	// Scopes that are asked for. Default: none.
	Scopes []string
}

// The values of KafkaSASL.Mechanism, as Kafka has them.
const (
	SASLPlain       = "PLAIN"
	SASLScram256    = "SCRAM-SHA-256"
	SASLScram512    = "SCRAM-SHA-512"
	SASLOAuthBearer = "OAUTHBEARER"
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
	r.readKafkaSASL(entry, &kafka.SASL)
	topics := entry.object("topics")
	topics.integer("partitions", &kafka.Topics.Partitions, mostPartitions)
	topics.integer("replicas", &kafka.Topics.Replicas, mostKafkaReplicas)
	topics.close()
}

// readKafkaSASL reads how to log in: by a password, or by tokens.
func (r *reader) readKafkaSASL(entry *object, login *KafkaSASL) {
	sasl := entry.object("sasl")
	login.Mechanism = sasl.choice("mechanism", SASLPlain, SASLScram256, SASLScram512, SASLOAuthBearer)
	sasl.text("username", &login.Username)
	sasl.secret("password", &login.Password)
	at := sasl.text("token_url", &login.TokenURL)
	sasl.text("client_id", &login.ClientID)
	sasl.secret("client_secret", &login.ClientSecret)
	for _, item := range sasl.list("scopes") {
		login.Scopes = append(login.Scopes, item.text)
	}
	sasl.close()
	if at != nil && !at.bad && !strings.HasPrefix(login.TokenURL, "https://") {
		r.rejectf(at, "must begin with https://")
	}
	password, tokens := []string{"username", "password"}, []string{"token_url", "client_id", "client_secret"}
	wanted, foreign := password, slices.Concat(tokens, []string{"scopes"})
	if login.Mechanism == SASLOAuthBearer {
		wanted, foreign = tokens, password
	}
	if f := entry.find("sasl"); f == nil || f.bad {
		return
	} else if wanted = append([]string{"mechanism"}, wanted...); !sasl.hasAll(wanted) {
		r.problemf(f.key, f.path, "%s and %s are all required", strings.Join(wanted[:len(wanted)-1], ", "), wanted[len(wanted)-1])
	}
	for _, name := range foreign {
		if f := sasl.find(name); f != nil && login.Mechanism != "" {
			r.problemf(f.key, f.path, "does nothing with mechanism %s: remove it", login.Mechanism)
		}
	}
}

// checkKafka compares the keys of a broker of type kafka with each other. The client looks at the
// addresses.
func (r *reader) checkKafka(entry *object, broker *Broker) {
	r.require(entry, "bootstrap_servers", "kafka-1:9092,kafka-2:9092")
	r.checkCreated(entry, "topics", broker.CreateDestinations)
}

// checkCreated refuses settings of destinations that are never created.
func (r *reader) checkCreated(entry *object, name string, creates bool) {
	if f := entry.find(name); f != nil && !creates && entry.sound("create_destinations") {
		r.problemf(f.key, f.path, "does nothing without create_destinations: true")
	}
}

// serversOf are the servers of a text with commas between.
func serversOf(servers, scheme, port string) (all []string) {
	for server := range strings.SplitSeq(servers, ",") {
		server = strings.TrimSpace(server)
		if !strings.Contains(server, "://") {
			server = scheme + server
		}
		all = append(all, urlPlace(server, port, "", ""))
	}
	return all
}
