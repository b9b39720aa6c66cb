package admin

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// maxClockOffset is how far the clocks of the database and of a process may be apart without a
// warning.
const maxClockOffset = time.Minute

// A Diagnosis is what an operator should know about one database.
type Diagnosis struct {
	// Server in words, e.g. "PostgreSQL 17.2".
	Server string
	// ClockOffset is the database's clock minus this process's. It was measured around a round
	// trip, of which ClockError is half: the offset may be off by that much.
	ClockOffset, ClockError time.Duration
	// Settings that were looked at, in the database's own words.
	Settings []Setting
	// Findings are what is wrong with them.
	Findings []Finding
}

// A Setting of a database.
type Setting struct{ Name, Value string }

// A Finding is one thing that is wrong.
type Finding struct {
	// Refused is true when a relay cannot work with this database. Otherwise the finding is a
	// warning.
	Refused bool
	// Topic in a word or two, the same for every finding of a kind: "clock", "isolation",
	// "read-only".
	Topic string
	// Message says what is wrong and what to do, in a sentence.
	Message string
	// Passing is true for what comes and goes while the server runs. A running engine tells of it
	// by itself (see [Watcher]).
	Passing bool
}

// Set notes a setting.
func (d *Diagnosis) Set(name, value string) { d.Settings = append(d.Settings, Setting{name, value}) }

// Warn notes a warning.
func (d *Diagnosis) Warn(topic, message string) {
	d.Findings = append(d.Findings, Finding{Topic: topic, Message: message})
}

// Refuse notes that a relay cannot work with this database.
func (d *Diagnosis) Refuse(topic, message string) {
	d.Findings = append(d.Findings, Finding{Refused: true, Topic: topic, Message: message})
}

// Warnings are the findings with which a relay works.
func (d *Diagnosis) Warnings() []Finding {
	var warnings []Finding
	for _, finding := range d.Findings {
		if !finding.Refused {
			warnings = append(warnings, finding)
		}
	}
	return warnings
}

// Err is nil when a relay can work with this database, and otherwise says why it cannot.
func (d *Diagnosis) Err() error {
	var reasons []string
	for _, finding := range d.Findings {
		if finding.Refused {
			reasons = append(reasons, finding.Message)
		}
	}
	if len(reasons) == 0 {
		return nil
	}
	return errors.New(strings.Join(reasons, "; "))
}

// Clock notes what the database's clock said between two looks at this process's, and warns of an
// offset that is, all doubts taken off, above maxClockOffset.
func (d *Diagnosis) Clock(before, database, after time.Time) {
	d.ClockError = after.Sub(before) / 2
	d.ClockOffset = database.Sub(before.Add(d.ClockError))
	apart, where := d.ClockOffset, "ahead of"
	if apart < 0 {
		apart, where = -apart, "behind"
	}
	if apart-d.ClockError > maxClockOffset {
		d.Warn("clock", fmt.Sprintf("the database's clock is %v %s this machine's: leases are not affected, but what this machine schedules "+
			"(available_at) or lets expire (expires_at) happens that much off; set both clocks, by NTP say", apart.Round(time.Second), where))
	}
}
