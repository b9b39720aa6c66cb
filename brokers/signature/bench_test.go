package signature_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
)

// What a message of 1 KiB costs a relay and a consumer.
func Benchmark(b *testing.B) {
	v := readVectors(b)
	for name, ids := range map[string][]string{"hmac": {"old.hmac"}, "ed25519": {"2026-11"}, "two_of_ed25519": {"2026-11", "2027-05"}} {
		m := v.Messages[0].message()
		m.Payload = bytes.Repeat([]byte("x"), 1<<10)
		producer, partner := v.keys(b, false, ids...), v.keys(b, true, ids...)
		b.Run("sign/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.Attributes = nil
				producer.Sign(&m, time.Unix(1795500000, 0))
			}
		})
		attributes := map[string]string{brokers.FieldID: m.ID, brokers.FieldType: m.Type, brokers.FieldSignature: m.Attributes[0].Value}
		b.Run("verify/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := partner.Verify(m.Destination, attributes, m.Payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
