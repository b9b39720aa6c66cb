package webhook_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/webhook"
)

// BenchmarkPublish compares Publish with a loop by hand that signs the same bodies by hand, and sends the
// same headers, as many at once (cold, 100 keys) or one after the other (hot, one key). 100 messages
// of 500 bytes, an endpoint in this process that does not check them.
//
//	go test ./brokers/webhook -run '^$' -bench Publish -count 6
func BenchmarkPublish(b *testing.B) {
	const bulk = 100
	p := startPartner(b, false)
	p.answers(func(http.ResponseWriter, *http.Request) {})
	broker := p.open(b)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: p.trust(), MaxIdleConnsPerHost: webhook.DefaultConcurrency}}
	b.Cleanup(client.CloseIdleConnections)
	byHand := func(msgs []brokers.Message, atOnce int) {
		var workers sync.WaitGroup
		next := make(chan []byte, len(msgs))
		for i := range msgs {
			next <- msgs[i].Payload
		}
		close(next)
		for range atOnce {
			workers.Go(func() {
				for body := range next {
					request, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "https://"+p.address, bytes.NewReader(body))
					if err != nil {
						b.Error(err)
						return
					}
					timestamp := strconv.FormatInt(time.Now().Unix(), 10)
					mac := hmac.New(sha256.New, []byte("secret"))
					mac.Write([]byte("id-1." + timestamp + "."))
					mac.Write(body)
					for name, value := range map[string]string{
						"Webhook-Id": "id-1", "Webhook-Timestamp": timestamp, "Webhook-Signature": "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)),
						"Content-Type": brokers.DefaultContentType, "Fanout-Type": "T.v1", "Fanout-Destination": "bench::order", "Fanout-Ordering-Key": "key-1",
					} {
						request.Header.Set(name, value)
					}
					answer, err := client.Do(request)
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, answer.Body)
					answer.Body.Close()
				}
			})
		}
		workers.Wait()
	}
	for _, c := range []struct {
		name         string
		keys, atOnce int
	}{{"cold", 100, webhook.DefaultConcurrency}, {"hot", 1, 1}} {
		msgs := make([]brokers.Message, bulk)
		for i := range msgs {
			msgs[i] = numbered("bench::order", fmt.Sprint("key-", i%c.keys), i)
			msgs[i].Payload = bytes.Repeat([]byte("x"), 500)
		}
		measure := func(b *testing.B, publish func()) {
			b.ReportAllocs()
			for b.Loop() {
				publish()
			}
			b.ReportMetric(float64(b.N*bulk)/b.Elapsed().Seconds(), "msgs/s")
		}
		b.Run(c.name+"/broker", func(b *testing.B) {
			measure(b, func() {
				for _, result := range broker.Publish(b.Context(), msgs) {
					require.NoError(b, result.Err)
				}
			})
		})
		b.Run(c.name+"/loop", func(b *testing.B) { measure(b, func() { byHand(msgs, c.atOnce) }) })
	}
}
