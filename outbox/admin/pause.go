package admin

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// A Pause stops the delivery to one broker in one database, for all processes, until an operator
// resumes it.
type Pause struct {
	Broker string
	// Since when, by the database's clock; set by the store.
	Since time.Time
	// By says who, and Reason why; for people. Either may be empty.
	By, Reason string
}

// Validate says what is wrong with a pause. Stores call it.
func (p Pause) Validate() error {
	switch {
	case p.Broker == "":
		return errors.New("the name of the broker to be paused is empty")
	case strings.ContainsRune(p.Broker+p.By+p.Reason, 0):
		return fmt.Errorf("the pause of broker %q contains a zero byte", p.Broker)
	}
	return nil
}
