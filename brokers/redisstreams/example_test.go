package redisstreams_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"time"

	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
)

// A primary that Sentinel watches. What was published survives a failover, as each message is on a
// replica before it counts.
func ExampleOpen_sentinel() {
	broker, err := redisstreams.Open(redisstreams.Settings{
		URLs: []adapter.Secret{"redis://user:password@sentinel-1:26379", "redis://sentinel-2:26379"}, Master: "main",
		Replicas: 1, MaxAge: 7 * 24 * time.Hour,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close(context.Background())

	fmt.Println("keeps the order of a key:", broker.Capabilities().Ordering)
	// Output: keeps the order of a key: true
}

// A server with a certificate of an authority of its own. TLS is a matter of the URL.
func ExampleSettings() {
	authority := []byte("-----BEGIN CERTIFICATE----- ...")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	_, err := redisstreams.Open(redisstreams.Settings{
		URL: "redis://user:password@redis.internal:6380/0", TLSConfig: &tls.Config{RootCAs: roots}, MaxLen: 1_000_000,
	})
	fmt.Println(err)
	// Output: redisstreams: open: TLSConfig needs a URL that begins with rediss://
}
