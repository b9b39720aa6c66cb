package redisdedup_test

import (
	"context"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/inbox/dedup/redisdedup"
)

// A program that keeps tokens in Redis does not start on a server that may lose them.
//
//nolint:testableexamples // it needs a server
func Example() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()

	findings, err := redisdedup.Check(context.Background(), client)
	if err != nil {
		log.Print(err)
		return
	}
	for _, finding := range findings {
		if finding.Severe {
			log.Print(finding.Setting, " - ", finding.Meaning)
			break
		}
	}
	tokens, err := redisdedup.NewTokens(client, redisdedup.WithReplicas(1, 100*time.Millisecond))
	log.Print(tokens != nil, err)
}
