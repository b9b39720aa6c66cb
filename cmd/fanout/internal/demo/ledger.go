package demo

import (
	"encoding/json"

	"github.com/gorm-fanout/fanout/outbox"
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

func find(messages []arrival, id string) json.RawMessage {
	for _, message := range messages {
		if message.id == id {
			return message.data
		}
	}
	return json.RawMessage("null")
}
