package kafka

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/twmb/franz-go/pkg/kgo"
)

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
