package redisstreams_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/brokers/redisstreams"
)

// A primary that Sentinel watches. What was published survives a failover, as each message is on a
// replica before it counts.
func ExampleNew_sentinel() {
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "main", SentinelAddrs: []string{"sentinel-1:26379", "sentinel-2:26379", "sentinel-3:26379"},
		MaxRetries: -1, ContextTimeoutEnabled: true, ReadTimeout: 10 * time.Second,
	})
	defer client.Close()
	broker := redisstreams.New(client, redisstreams.WithReplicas(1, time.Second), redisstreams.WithMaxAge(7*24*time.Hour, true))
	defer broker.Close(context.Background())

	fmt.Println("keeps the order of a key:", broker.Capabilities().Ordering)
	// Output: keeps the order of a key: true
}

// A cluster: streams are spread over its nodes, and one node's outage is not the others'.
func ExampleNew_cluster() {
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{"node-1:6379", "node-2:6379"}, MaxRetries: -1, ContextTimeoutEnabled: true, ReadTimeout: 10 * time.Second,
	})
	defer client.Close()
	broker := redisstreams.New(client)
	defer broker.Close(context.Background())

	fmt.Println("likes bulks of", broker.Capabilities().MaxBatch)
	// Output: likes bulks of 500
}

// A server with a certificate of an authority of its own. TLS is a matter of the URL.
func ExampleWithTLS() {
	authority := []byte("-----BEGIN CERTIFICATE----- ...")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	_, err := redisstreams.Open("redis://user:password@redis.internal:6380/0",
		redisstreams.WithTLS(&tls.Config{RootCAs: roots}), redisstreams.WithMaxLen(1_000_000, true))
	fmt.Println(err)
	// Output: redisstreams: open: WithTLS needs a URL that begins with rediss://
}
