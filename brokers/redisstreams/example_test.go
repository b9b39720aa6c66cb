package redisstreams_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"time"

	"github.com/gorm-fanout/fanout/brokers/redisstreams"
)

// A primary that Sentinel watches. What was published survives a failover, as each message is on a
// replica before it counts.
func ExampleOpenServers_sentinel() {
	broker, err := redisstreams.OpenServers(
		redisstreams.Servers{URLs: []string{"redis://user:password@sentinel-1:26379", "redis://sentinel-2:26379"}, Master: "main"},
		redisstreams.WithReplicas(1, time.Second), redisstreams.WithMaxAge(7*24*time.Hour, true))
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close(context.Background())

	fmt.Println("keeps the order of a key:", broker.Capabilities().Ordering)
	// Output: keeps the order of a key: true
}

// A cluster: streams are spread over its nodes, and one node's outage is not the others'.
func ExampleOpenServers_cluster() {
	broker, err := redisstreams.OpenServers(redisstreams.Servers{URLs: []string{"redis://user:password@node-1:6379", "redis://node-2:6379"}, Cluster: true})
	if err != nil {
		log.Fatal(err)
	}
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
