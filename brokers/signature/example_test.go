package signature_test

import (
	"fmt"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/signature"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
)

// The keys of these examples. Private ones come from the environment, or from where secrets are kept.
const (
	private = "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	public  = "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="
)

// A partner verifies what has arrived: the flat fields, which are headers on Kafka and NATS, attributes on
// Pub/Sub and fields on Redis, and the bytes of the payload. On RabbitMQ id and type are the properties
// message_id and type, and only the signature is a header.
func Example() {
	var producer, partner signature.Keys
	if err := producer.Add("2026-11", private); err != nil {
		fmt.Println(err)
		return
	}
	if err := partner.Add("2026-11", public); err != nil {
		fmt.Println(err)
		return
	}

	// A relay does this with each message of a broker that has keys ("sign" in its configuration).
	m := brokers.Message{ID: "01975d2e-6f0a-7000-8000-0000000000a1", Type: "Ordering.OrderPlaced.v1", Destination: "ordering::order", Payload: []byte(`{"data":{"id":42}}`)}
	producer.Sign(&m, time.Unix(1795500000, 0))

	headers := map[string]string{"id": m.ID, "type": m.Type, "signature": m.Attributes[0].Value}
	signed, err := partner.Verify("ordering::order", headers, m.Payload)
	fmt.Println(signed, err)

	_, err = partner.Verify("ordering::order", headers, []byte(`{"data":{"id":43}}`))
	fmt.Println(err)
	// Output:
	// 2026-11-24 06:00:00 +0000 UTC <nil>
	// signature: the signature of key ["2026-11"] is not that of this message in destination "ordering::order": its id, type, time or payload was changed, it is from another destination, or the key is another one
}

// A consumer of this library verifies in its decoder, which is asked about each message first. What does
// not verify is unreadable: it becomes a dead letter, with the reason.
func ExampleKeys_Verify() {
	keys := new(signature.Keys)
	if err := keys.Add("2026-11", public); err != nil {
		fmt.Println(err)
		return
	}
	destinations := map[string]string{"ordering.order": "ordering::order"} // by the topics of Kafka that it reads
	verified := func(raw *inbox.RawMessage) (*envelope.CloudEvent, error) {
		_, err := keys.Verify(destinations[raw.Source], raw.Attributes, raw.Payload)
		return nil, err // and the message is read as ever
	}

	// kafkaconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Decoder: verified}} does the following with
	// what arrives:
	_, err := inbox.Decoder(verified).Decode(&inbox.RawMessage{
		Source: "ordering.order", Payload: []byte(`{"data":{"id":42}}`), Attributes: map[string]string{"id": "1", "type": "Ordering.OrderPlaced.v1"},
	})
	fmt.Println(err)
	// Output: signature: the message is not signed: it has no field "signature"
}
