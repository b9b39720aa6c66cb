package kafkaconsumer

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/inbox"
)

// Behind a message that is held for long, those that are done keep no payload in memory; their offsets are
// committed when it is done.
func TestDoneClaimsKeepNoPayload(t *testing.T) {
	t.Parallel()
	r := &run{Consumer: &Consumer{config: Config{ConsumerConfig: inbox.ConsumerConfig{MaxOutstandingMessages: 10, MaxOutstandingBytes: 1000}}}}
	p := &partition{run: r, told: unknown, from: unknown}
	var claims []*claim
	for n := range int64(3) {
		claims = append(claims, p.add(&kgo.Record{Offset: n, LeaderEpoch: 5, Value: []byte("payload")}))
	}
	claims[1].Ack()
	claims[2].Ack()
	assert.Len(t, p.claims, 3)
	for _, c := range p.claims[1:] {
		assert.Nil(t, c.record.Value)
	}
	assert.Equal(t, []int{1, 7}, []int{p.open, p.bytes})
	claims[0].Ack()
	at, changed := p.next()
	assert.True(t, changed)
	assert.Equal(t, kgo.EpochOffset{Epoch: 5, Offset: 3}, at)
	assert.Equal(t, []int{0, 0, 0}, []int{len(p.claims), p.open, p.bytes})
}
