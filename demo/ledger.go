package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
)

// Result is what "go run ./demo --json" prints; its fields are a contract.
type Result struct {
	Orders int `json:"orders"`
	Events int `json:"events"`
	// Rows of each broker by status.
	Rows map[string]map[outbox.Status]int64 `json:"rows"`
	// Delivered is the number of different messages that each broker has.
	Delivered map[string]int `json:"delivered"`
	// Lost counts committed rows whose message the broker does not have.
	Lost int `json:"lost"`
	// Duplicates counts deliveries beyond the first of a message.
	Duplicates int `json:"duplicates"`
	// Projection compares the consumers' sums with the shop's tables.
	Projection Comparison `json:"projection"`
	// Kills is how often the consumer's process was killed and started again.
	Kills int `json:"kills"`
	// Deliveries counts the messages that the consumer has handled, DuplicatesDropped those that the
	// inbox dropped as copies. A process that is killed does not report its last messages.
	Deliveries        int             `json:"deliveries"`
	DuplicatesDropped int             `json:"duplicates_dropped"`
	InternalExample   json.RawMessage `json:"internal_example"`
	ExternalExample   json.RawMessage `json:"external_example"`
}

// A Comparison holds the projection of each consumer against the expected one.
type Comparison struct {
	Expected map[string]Projection `json:"expected"`
	Actual   map[string]Projection `json:"actual"`
	Agree    bool                  `json:"agree"`
}

func compareProjections(expected, actual map[string]Projection) Comparison {
	return Comparison{Expected: expected, Actual: actual, Agree: maps.Equal(expected, actual)}
}

// verdict is the error that belongs to a result.
func (r *Result) verdict() error {
	switch {
	case r.Lost > 0:
		return fmt.Errorf("%d messages were lost", r.Lost)
	case !r.Projection.Agree:
		return errors.New("the consumer's projections do not agree with the shop's tables")
	default:
		return nil
	}
}

// newResult holds the committed rows against the messages that arrived.
func newResult(orders int, rows []row, arrived map[string][]brokers.Message) *Result {
	result := &Result{Orders: orders, Rows: map[string]map[outbox.Status]int64{}, Delivered: map[string]int{}}
	seen := make(map[string]map[string]json.RawMessage, len(arrived))
	for broker, messages := range arrived {
		seen[broker] = make(map[string]json.RawMessage, len(messages))
		for _, message := range messages {
			seen[broker][message.ID] = message.Payload
		}
		result.Delivered[broker] = len(seen[broker])
		result.Duplicates += len(messages) - len(seen[broker])
	}
	events := map[string]bool{}
	for _, r := range rows {
		events[r.MessageID] = true
		if result.Rows[r.TargetBroker] == nil {
			result.Rows[r.TargetBroker] = map[outbox.Status]int64{}
		}
		result.Rows[r.TargetBroker][r.Status]++
		payload, ok := seen[r.TargetBroker][r.MessageID]
		if !ok {
			result.Lost++
		}
		if r.TargetBroker == "partner" && result.ExternalExample == nil {
			result.InternalExample, result.ExternalExample = seen["default"][r.MessageID], payload
		}
	}
	result.Events = len(events)
	return result
}
