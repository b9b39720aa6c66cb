package kafka

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/brokers"
)

// A topic that gets partitions while a round is handed over has its former number of them until the next
// round: of two messages of a key in two partitions, one may refuse what the other takes. Where there are fewer,
// nothing is sent to one that is no more.
func TestPartitionsOfARound(t *testing.T) {
	t.Parallel()
	of := &servers{}
	of.begin(nil, nil)
	c := newClient(of)
	made, err := kgo.NewClient()
	require.NoError(t, err)
	t.Cleanup(made.Close)
	c.Client = made
	p := partitioner{c}.ForTopic("there")
	record := func() *kgo.Record { return &kgo.Record{Topic: "there", Key: []byte("key-2")} }
	round := func() { c.begin([]item{{record: record()}}, nil, func(error) {}) }
	round()
	first := p.Partition(record(), 6)
	assert.Equal(t, first, p.Partition(record(), 7), "two messages of a key of one round")
	lost := record()
	assert.Equal(t, nowhere, p.Partition(lost, first))
	require.ErrorIs(t, c.done(lost), errUnplaced)
	round()
	assert.NotEqual(t, first, p.Partition(record(), 7), "it is the next round's")
}

// What a server confirms in front of an earlier message of its key, if it ever does, goes again.
func TestOvertakingMessagesGoAgain(t *testing.T) {
	t.Parallel()
	var p publication
	for _, key := range []string{"a", "a", "b", "", "a", ""} {
		p.msgs = append(p.msgs, brokers.Message{OrderingKey: key})
	}
	items := make([]item, len(p.msgs))
	for i := range items {
		items[i].index = i
	}
	items[1].err, items[3].err = kerr.MessageTooLarge, errSlow
	p.recall(items)
	for i, want := range []error{nil, kerr.MessageTooLarge, nil, errSlow, errOvertook, nil} {
		require.ErrorIs(t, items[i].err, want)
	}
	class, scope := brokers.Classify(classified("publish", items[4].err))
	assert.Equal(t, brokers.ClassUnavailable, class, "it costs no attempt, whatever is wrong with the other one")
	assert.Equal(t, brokers.ScopePartition, scope)
	assert.True(t, unsure(items[4].err))
}

// What a bootstrap server says is no sign that the one server of a cluster is out and others are not: it
// is the same one, under an id of the client's own.
func TestBootstrapServerIsNoWitness(t *testing.T) {
	t.Parallel()
	c := newClient(&servers{})
	c.heard = map[int32]time.Time{}
	assert.False(t, c.answered(noServer))
	c.OnBrokerRead(kgo.BrokerMetadata{NodeID: -1 << 31}, 0, 0, 0, 0, nil)
	assert.False(t, c.answered(0))
	assert.True(t, c.answered(noServer), "but it has answered")
	c.OnBrokerRead(kgo.BrokerMetadata{NodeID: 1}, 0, 0, 0, 0, nil)
	assert.True(t, c.answered(0))
}
