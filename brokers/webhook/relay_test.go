package webhook_test

import (
	"net/http"
	"testing"

	"github.com/gorm-fanout/fanout/brokers/brokertest/relaytest"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// A receiver that has another secret, and answers 400 as many do, costs no message an attempt, however long
// it lasts; a message that the receiver alone refuses is abandoned.
func TestRelayWithAWrongSecret(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	p := startPartner(t, true)
	p.answers(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "invalid signature", http.StatusBadRequest)
	})
	relaytest.Outlives(t, relaytest.Outage{
		Target: p.open(t), Says: "invalid signature%check the secret",
		Lasts: func() bool { return p.requests() > 50 }, // the first of each key could have had its attempts
		Heal:  func() { p.answers(nil) },
	})
	relaytest.FindsPoison(t, p.open(t), func(id string) { p.refuse(t, id) })
}
