package brokertest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
)

// order: many keys, hot and cold ones, in bulks of any size.
func (s *suite) order(t *testing.T) {
	b, destination := s.open(t), s.Destination(t)
	names := append(keys(40), "")
	msgs := make([]brokers.Message, 1500)
	for i := range msgs {
		key := names[s.random.IntN(len(names))]
		if s.random.IntN(3) == 0 {
			key = names[0]
		}
		msgs[i] = message(destination, key, i)
	}
	for rest := msgs; len(rest) > 0; {
		n := min(1+s.random.IntN(400), len(rest))
		s.succeed(t, b, rest[:n])
		rest = rest[n:]
	}
	received := s.arrived(t, destination, len(msgs))
	assert.Len(t, received, len(msgs))
	inOrder(t, msgs, received)
}

// orderAcrossDestinations: one bulk for many destinations; within each, keys keep their order.
func (s *suite) orderAcrossDestinations(t *testing.T) {
	b, names := s.open(t), keys(10)
	destinations := []string{s.Destination(t), s.Destination(t), s.Destination(t)}
	msgs := make([]brokers.Message, 900)
	for i := range msgs {
		msgs[i] = message(destinations[s.random.IntN(3)], names[s.random.IntN(len(names))], i)
	}
	s.honest(t, msgs, s.succeed(t, b, msgs))
	for _, destination := range destinations {
		var sent []brokers.Message
		for _, m := range msgs {
			if m.Destination == destination {
				sent = append(sent, m)
			}
		}
		inOrder(t, sent, s.arrived(t, destination, len(sent)))
	}
}

// headFails: what follows a refused message on its key stays away, far beyond the chunk in which it
// failed; all else arrives.
func (s *suite) headFails(t *testing.T) {
	b, destination := s.open(t), s.Destination(t)
	msgs := messages(destination, 600, "held", "other-1", "", "other-2", "other-3")
	const head = 5 // the second of its key
	require.Equal(t, "held", msgs[head].OrderingKey)
	restore := s.refuse(t, msgs[head].ID)

	results := s.publish(t, b, msgs)
	var again []brokers.Message
	for i, m := range msgs {
		switch err := results[i].Err; {
		case m.OrderingKey != "held" || i < head:
			require.NoError(t, err, "message %d, key %q, has nothing to do with it", i, m.OrderingKey)
		case i == head:
			require.True(t, s.own(err), "the refused message has a failure of its own: %v", err)
			again = append(again, m)
		default:
			require.Error(t, err, "message %d follows the refused one", i)
			again = append(again, m)
		}
	}
	s.honest(t, msgs, results)

	// A second attempt fails the same way, and leaves nothing paused behind.
	for i, result := range s.publish(t, b, again) {
		require.Error(t, result.Err, "message %d", i)
	}
	restore()
	s.succeed(t, b, again)
	received := s.arrived(t, destination, len(msgs))
	assert.Len(t, received, len(msgs))
	inOrder(t, msgs, received)
}

// headFailsForAnotherDestination: the followers of a failed message are held wherever they go.
func (s *suite) headFailsForAnotherDestination(t *testing.T) {
	b, first, second := s.open(t), s.Destination(t), s.Destination(t)
	msgs := []brokers.Message{
		message(first, "held", 0), message(second, "free", 1),
		message(first, "held", 2), // refused
		message(second, "held", 3), message(second, "free", 4), message(first, "held", 5), message(first, "free", 6),
	}
	s.refuse(t, msgs[2].ID)
	results := s.publish(t, b, msgs)
	s.honest(t, msgs, results)
	for i, m := range msgs {
		assert.Equal(t, m.OrderingKey == "held" && i >= 2, results[i].Err != nil, "message %d: %v", i, results[i].Err)
	}
}

// partialFailure: messages without a key block no others.
func (s *suite) partialFailure(t *testing.T) {
	b, destination := s.open(t), s.Destination(t)
	msgs := messages(destination, 250, "")
	refused := []int{0, 3, 99, 100, 249}
	for _, i := range refused {
		s.refuse(t, msgs[i].ID)
	}
	results := s.publish(t, b, msgs)
	for i, result := range results {
		if slices.Contains(refused, i) {
			require.True(t, s.own(result.Err), "message %d was refused: %v", i, result.Err)
			require.Empty(t, result.BrokerMessageID)
		} else {
			require.NoError(t, result.Err, "message %d", i)
		}
	}
	s.honest(t, msgs, results)
}

// oversize: too large is final, and says so before it costs anybody else anything.
func (s *suite) oversize(t *testing.T) {
	b, destination := s.open(t), s.Destination(t)
	limit := b.Capabilities().MaxMessageBytes
	if limit == 0 {
		t.Skip("NOT TESTED: the broker knows no limit (Capabilities().MaxMessageBytes)")
	}
	msgs := messages(destination, 12, "big", "", "other")
	msgs[3].Payload = make([]byte, limit+1)
	results := s.publish(t, b, msgs)
	for i, result := range results {
		class, _ := brokers.Classify(result.Err)
		switch {
		case i == 3:
			assert.Equal(t, brokers.ClassPermanent, class, "%v", result.Err)
			assert.Empty(t, result.BrokerMessageID)
		case i > 3 && msgs[i].OrderingKey == "big":
			assert.Equal(t, brokers.ClassNotSent, class, "message %d follows the large one: %v", i, result.Err)
		default:
			assert.NoError(t, result.Err, "message %d is a neighbour", i)
		}
	}
	s.honest(t, msgs, results)
}
