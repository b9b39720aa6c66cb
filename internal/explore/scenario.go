package explore

import (
	_ "embed"
	"encoding/json"
	"fmt"
)

// A Scenario is a schedule in which one mistake in the protocol does harm, in the fewest steps. A
// store that follows the model through it has not made that mistake.
type Scenario struct {
	Name string `json:"name"`
	// Harm is what the mistake does.
	Harm           string `json:"harm"`
	Workers        int    `json:"workers"`
	MaxAttempts    int    `json:"max_attempts"`
	BlockAbandoned bool   `json:"block_abandoned"`
	// DeletePublished removes rows as they become published.
	DeletePublished bool           `json:"delete_published,omitzero"`
	Steps           []ScenarioStep `json:"steps"`
}

// A ScenarioStep is one action. Where the protocol is sound it can be impossible.
type ScenarioStep struct {
	// Text says what the mistaken protocol made of it.
	Text   string `json:"text"`
	Action Action `json:"action"`
	// Token that a claim was given.
	Token int `json:"token,omitzero"`
}

// scenarios.json is written by go test ./internal/explore -run TestMutations -update
//
//go:embed scenarios.json
var scenarios []byte

// Scenarios returns the scenarios of all mistakes that the tests know.
func Scenarios() []Scenario {
	var list []Scenario
	if err := json.Unmarshal(scenarios, &list); err != nil {
		panic(fmt.Sprintf("explore: scenarios.json: %v", err))
	}
	return list
}
