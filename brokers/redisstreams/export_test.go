package redisstreams

import "github.com/redis/go-redis/v9"

// Client gives tests the client of a broker, to look into the server and to disturb calls.
func (b *Broker) Client() redis.UniversalClient { return b.client }

// Settings gives tests the settings that Open chose.
func Settings(b *Broker) *redis.Options { return b.client.(*redis.Client).Options() }
