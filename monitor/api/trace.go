package api

import (
	"time"

	"github.com/gorm-fanout/fanout/outbox/admin"
)

// A Step is how far a message has come on its way to one broker, and to the consumers of that broker. It is the
// state of an open row ([outbox.State]), or one of these.
type Step string

// The steps of rows that are finished, and of messages at their consumers.
const (
	StepAbandoned  Step = "abandoned"
	StepPublished  Step = "published"   // and no consumer of the broker is known
	StepQueued     Step = "queued"      // published, and its consumer has recorded nothing of it
	StepRunning    Step = "running"     // a handler has it now
	StepFailing    Step = "failing"     // a handler has failed, and tries again
	StepDeadLetter Step = "dead_letter" // it waits for a person, at the consumer
	StepDone       Step = "done"        // its consumer has handled it
)

// A Trace is the way of all messages that a term names, of what caused them and of what they have caused.
type Trace struct {
	Term string         `json:"term"`
	By   []admin.FindBy `json:"by"`
	// Messages in the order in which they were written.
	Messages []TracedMessage `json:"messages"`
	// More is true where there are further messages.
	More bool `json:"more"`
	// Unasked are the databases, and the consumers, that could not be asked: the answer is not whole.
	Unasked []Unasked `json:"unasked"`
	// Nothing says what it means that no message was found; empty where one was.
	Nothing string `json:"nothing,omitempty"`
}

// Unasked says who could not be asked, and why.
type Unasked struct {
	Database string `json:"database,omitempty"`
	Consumer string `json:"consumer,omitempty"`
	Error    string `json:"error"`
}

// A TracedMessage is one message of one database.
type TracedMessage struct {
	Database  string    `json:"database"`
	MessageID string    `json:"message_id"`
	Type      string    `json:"type"`
	Key       string    `json:"key,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	// By says what of it the term names; empty where it is there as a cause or an effect.
	By            []admin.FindBy `json:"by"`
	CorrelationID string         `json:"correlation_id,omitempty"`
	CausationID   string         `json:"causation_id,omitempty"`
	// Rows are one for each broker.
	Rows []TracedRow `json:"rows"`
	// NotKept are the brokers without a row whose rows are removed as they are delivered: they have it, or it was not written for them.
	NotKept []string `json:"not_kept,omitempty"`
}

// A TracedRow is a message on its way to one broker.
type TracedRow struct {
	Row  Record `json:"row"`
	Step Step   `json:"step"`
	// Says tells in a sentence what the step means here, and Remedy what to do, where anything is.
	Says   string `json:"says"`
	Remedy string `json:"remedy,omitempty"`
	// Consumers of the broker, by name.
	Consumers []TracedConsumer `json:"consumers,omitempty"`
}

// A TracedConsumer is a published message at one consumer.
type TracedConsumer struct {
	Consumer  string    `json:"consumer"`
	Source    string    `json:"source,omitempty"`
	Step      Step      `json:"step"`
	Says      string    `json:"says"`
	Remedy    string    `json:"remedy,omitempty"`
	Attempts  int       `json:"attempts,omitempty"`
	At        time.Time `json:"at,omitzero"`
	LastError string    `json:"last_error,omitempty"`
}
