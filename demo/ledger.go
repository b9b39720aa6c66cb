package main

import (
	"encoding/json"
	"errors"
	"maps"

	"github.com/gorm-fanout/fanout/outbox"
)

// Result is what "go run ./demo --json" prints; its fields are a contract.
type Result struct {
	Orders int `json:"orders"`
	Events int `json:"events"`
	// Rows of each broker by status.
	Rows map[string]map[outbox.Status]int64 `json:"rows"`
	// Delivered is the number of different messages that each broker's consumers can see.
	Delivered map[string]int `json:"delivered"`
	// Lost counts rows that were committed and that their broker does not have.
	Lost int `json:"lost"`
	// Duplicates counts deliveries beyond the first of a message.
	Duplicates int `json:"duplicates"`
	// Projection compares what the consumers have made of the events with the shop's own tables.
	Projection Comparison `json:"projection"`
	// Kills is how often the consumer's process was killed and started again.
	Kills int `json:"kills"`
	// Deliveries is how often a consumer's handler was given a message, DuplicatesDropped how many
	// of them the inbox recognised as copies of what had been handled, as far as the process has
	// lived to tell.
	Deliveries        int             `json:"deliveries"`
	DuplicatesDropped int             `json:"duplicates_dropped"`
	InternalExample   json.RawMessage `json:"internal_example"`
	ExternalExample   json.RawMessage `json:"external_example"`
}

// verdict is the error that belongs to a result.
func (r *Result) verdict() error {
	var lost, disagree error
	if r.Lost > 0 {
		lost = errLost
	}
	if !r.Projection.Agree {
		disagree = errDisagree
	}
	return errors.Join(lost, disagree)
}

// A Comparison holds the projection of each consumer against what it ought to be.
type Comparison struct {
	Expected map[string]Projection `json:"expected"`
	Actual   map[string]Projection `json:"actual"`
	Agree    bool                  `json:"agree"`
}

// The errors that are returned beside a result which shows them.
var (
	errLost     = errors.New("messages were lost")
	errDisagree = errors.New("the consumers' projections do not agree with the shop's tables")
)

// newResult holds the committed rows against what arrived.
func newResult(orders int, rows []row, arrived map[string][]arrival) *Result {
	result := &Result{Orders: orders, Rows: map[string]map[outbox.Status]int64{}, Delivered: map[string]int{}}
	seen := make(map[string]map[string]int, len(arrived))
	for broker, messages := range arrived {
		seen[broker] = make(map[string]int, len(messages))
		for _, message := range messages {
			seen[broker][message.id]++
		}
		result.Delivered[broker] = len(seen[broker])
		result.Duplicates += len(messages) - len(seen[broker])
	}
	events := map[string]bool{}
	var example string
	for _, r := range rows {
		events[r.MessageID] = true
		if result.Rows[r.TargetBroker] == nil {
			result.Rows[r.TargetBroker] = map[outbox.Status]int64{}
			for _, status := range outbox.Statuses() {
				result.Rows[r.TargetBroker][status] = 0
			}
		}
		result.Rows[r.TargetBroker][r.Status]++
		if seen[r.TargetBroker][r.MessageID] == 0 {
			result.Lost++
		}
		if r.TargetBroker == "partner" && example == "" {
			example = r.MessageID
		}
	}
	result.Events = len(events)
	// The two forms of one event, as they arrived.
	result.InternalExample = find(arrived["default"], example)
	result.ExternalExample = find(arrived["partner"], example)
	return result
}

// addProjections holds what the consumers have arrived at against the shop's own tables.
func (r *Result) addProjections(expected, actual map[string]Projection) {
	r.Projection = Comparison{Expected: expected, Actual: actual, Agree: maps.Equal(expected, actual)}
}

func find(messages []arrival, id string) json.RawMessage {
	for _, message := range messages {
		if message.id == id {
			return message.data
		}
	}
	return json.RawMessage("null")
}
