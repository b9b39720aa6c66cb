package redisdedup_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/inbox/dedup/redisdedup"
)

// A program that keeps tokens in Redis does not start on a server that may lose them.
func Example() {
	server := miniredis.NewMiniRedis() // a Redis in memory, which does not say how it is set
	if err := server.Start(); err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	findings, err := redisdedup.Check(context.Background(), client)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, finding := range findings {
		if finding.Severe {
			fmt.Println(finding.Setting, "-", finding.Meaning)
			break
		}
	}
	tokens, err := redisdedup.NewTokens(client, redisdedup.WithReplicas(1, 100*time.Millisecond))
	fmt.Println(tokens != nil, err)
	// Output:
	// maxmemory-policy - the server does not tell: ask who runs it, or let the account call INFO and CONFIG GET
	// true <nil>
}
