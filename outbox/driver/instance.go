package driver

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/internal/strictjson"
)

// An Instance is one process that runs a relay.
type Instance struct {
	// ID is made anew at each start: two processes of the same name stay apart.
	ID uuid.UUID
	// Name, Host, PID and Version tell people which process it is.
	Name, Host string
	PID        int
	Version    string
	// StartedAt and SeenAt by the database's clock; set by the store.
	StartedAt, SeenAt time.Time
	// Work is what its workers had claimed when it was last seen.
	Work []Work
	// Unreadable says what is wrong with a row that somebody has changed by hand: a column and its
	// fault. The fields that cannot be read are then zero. It is empty for a row that a process
	// wrote; set by the store.
	Unreadable string
}

// SetRow fills in what a store holds as text, and notes in Unreadable what cannot be read. It is
// for stores, once the other fields are set.
func (i *Instance) SetRow(id, work string) {
	var err error
	if i.ID, err = uuid.Parse(id); err != nil {
		i.Spoil("instance_id", fmt.Sprintf("%.50q is no UUID", id))
	}
	if err := strictjson.Unmarshal([]byte(work), &i.Work); err != nil {
		i.Work = nil
		i.Spoil("work", "is no list of batches: "+err.Error())
	}
	if len(i.Work) == 0 {
		i.Work = nil
	}
	i.StartedAt, i.SeenAt = i.moment("started_at", i.StartedAt), i.moment("seen_at", i.SeenAt)
}

// moment is a time that has a form in JSON; else zero.
func (i *Instance) moment(column string, at time.Time) time.Time {
	at = at.UTC()
	if at.Year() < 1 || at.Year() > 9999 {
		i.Spoil(column, "is outside the years 1 to 9999")
		return time.Time{}
	}
	return at
}

// Spoil notes what is wrong with a column, unless another one's fault is noted already. It is for
// stores.
func (i *Instance) Spoil(column, fault string) {
	if i.Unreadable == "" {
		i.Unreadable = "column " + column + " " + fault
	}
}

// Work is one batch in a worker's hands.
type Work struct {
	Worker string    `json:"worker"`
	Broker string    `json:"broker"`
	Shard  int       `json:"shard"`
	Rows   int       `json:"rows"`
	Since  time.Time `json:"since"`
}
