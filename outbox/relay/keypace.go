package relay

import (
	"sync/atomic"
	"time"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// keyPace bounds how many rows of one ordering key a claim takes where the broker sends the messages of a
// key in turn. A key with many would take the whole batch, and whatever else is in the shard would wait
// for each of its messages.
type keyPace struct {
	most int          // rows of a batch; 0 = the broker does not send keys in turn
	rows atomic.Int64 // of a key
}

const (
	// keyTime is how long the rows of one key in a batch should take.
	keyTime = 500 * time.Millisecond
	// firstKeyRows is how many rows a key has in a batch before the broker's speed is known.
	firstKeyRows = 10
)

func newKeyPace(inTurn bool, policy *outbox.Policy) *keyPace {
	k := &keyPace{}
	if inTurn && !policy.Unordered && policy.BatchSize > firstKeyRows {
		k.most = policy.BatchSize
		k.rows.Store(firstKeyRows)
	}
	return k
}

// perKey is how many rows of a key the next claim takes; 0 = as many as there are.
func (k *keyPace) perKey() int {
	if rows := int(k.rows.Load()); rows < k.most {
		return rows
	}
	return 0
}

// learn notes how long a batch took.
func (k *keyPace) learn(messages []driver.Message, took time.Duration) {
	if k.most == 0 {
		return
	}
	longest, rows := 1, map[string]int{}
	for i := range messages {
		if key := messages[i].OrderingKey; key != "" {
			rows[key]++
			longest = max(longest, rows[key])
		}
	}
	each := max(took/time.Duration(longest), time.Microsecond)
	if longest > 1 || each > keyTime {
		k.rows.Store(max(1, min(int64(keyTime/each), int64(k.most))))
	}
}
