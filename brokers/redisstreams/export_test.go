package redisstreams

import "github.com/redis/go-redis/v9"

// Client gives tests the client of a broker, to look into the server and to disturb calls.
func (b *Broker) Client() redis.UniversalClient { return b.client }

// ClientOptions gives tests the settings of its client that Open chose.
func ClientOptions(b *Broker) *redis.Options { return b.client.(*redis.Client).Options() }

// KnowTransactions makes a broker use transactions from its first call, as it does from the second one on
// where the first has more than one message of a key.
func KnowTransactions(b *Broker) *Broker {
	b.transactions.known.Store(true)
	return b
}
