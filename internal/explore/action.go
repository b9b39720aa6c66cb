package explore

// A Kind of action.
type Kind uint8

// The actions. Faults are actions, too.
const (
	Write      Kind = iota // a transaction commits Rows
	Claim                  // Worker makes the claim Request, and Fate says what it learns
	Look                   // the first half of Claim: Worker reads a window and decides
	Take                   // the second half: it takes what it has decided on, unless that has changed meanwhile
	Renew                  // Worker extends its lease; Fate
	Send                   // Worker hands up to Limit rows to the broker
	Answer                 // Result becomes of the first row that is with the broker
	Complete               // Worker writes its outcomes, or Outcomes in their place; Fate
	GiveUp                 // Worker does not repeat a completion whose fate it does not know
	Crash                  // Worker dies; its rows stay leased
	Expire                 // the lease of Token runs out
	Pass                   // the time that the row ID waits for comes
	Defer                  // some worker defers what waits: Request
	PlanDefer              // the first half of Defer: it decides
	PlanLift               // some worker decides which blocks of Request.Shard are lifted
	Apply                  // the plan number ID, from 0, is carried out, unless something has changed meanwhile
	Forget                 // the plan number ID is forgotten: its worker has died
	Requeue                // an operator brings back row ID, and Also
	Replay                 // an operator brings back row ID, and Also, which are published
	Drop                   // an operator abandons row ID, and Also
	UnblockKey             // an operator lets Key go on
	Mark                   // a purge chooses up to Limit rows of Status
	Remove                 // and removes them
	kinds
)

// Fate says what became of a call to the database.
type Fate uint8

// The fates of a call.
const (
	Known  Fate = iota // it was done, and the caller knows
	Lost               // it was done, and the caller does not know
	Missed             // it was not done, and the caller does not know
	Undone             // of a claim: it was done and answered, and then lost in a crash of the database
)

// Result is what the broker made of one message.
type Result uint8

// The results of a message.
const (
	Accepted    Result = iota
	AnswerLost         // accepted, but what the worker sees is an error that is worth another try
	Retryable          // an error that is worth another try
	Refused            // an error that is not
	Unavailable        // the broker is not there: no message is at fault
	Closed             // the destination is not there: no message is at fault, and the row waits
)

// A NewRow is one row of a transaction.
type NewRow struct {
	ID        int   `json:",omitzero"`
	Key       int   `json:",omitzero"`
	Class     Class `json:",omitzero"`
	At        int   `json:",omitzero"`
	Size      int   `json:",omitzero"` // bytes of payload
	Dead      bool  `json:",omitzero"`
	Scheduled bool  `json:",omitzero"` // available_at lies ahead
}

// An Action is one step of the world. Which fields count depends on Kind.
type Action struct {
	Kind     Kind      `json:",omitzero"`
	Worker   int       `json:",omitzero"` // from 0
	Rows     []NewRow  `json:",omitzero"`
	Request  Request   `json:",omitzero"`
	Fate     Fate      `json:",omitzero"`
	Result   Result    `json:",omitzero"`
	Outcomes []Outcome `json:",omitzero"`
	ID       int       `json:",omitzero"`
	Also     int       `json:",omitzero"` // another row that an operator acts on at once
	Token    int       `json:",omitzero"`
	Key      int       `json:",omitzero"`
	Limit    int       `json:",omitzero"`
	Status   Status    `json:",omitzero"`
}

// A Reply is what a store answers.
type Reply struct {
	Token    int   // of a claim that took rows
	Rows     []int // claimed, or removed
	Seen     int
	Waiting  int
	Cut      bool // the bytes kept rows back
	Blocked  bool
	Lost     int // of a completion
	Kept     int // of a renewal
	Deferred int
}
