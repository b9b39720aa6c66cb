package redisstreams

import "github.com/redis/go-redis/v9"

// Client gives tests the client of a broker, to look into the server and to disturb calls.
func (b *Broker) Client() redis.UniversalClient { return b.client }

// ClientOptions gives tests the settings of its client that Open chose.
func ClientOptions(b *Broker) *redis.Options { return b.client.(*redis.Client).Options() }
