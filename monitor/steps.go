package monitor

import (
	"fmt"
	"time"

	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox"
)

// explain fills in how far a row has come, in words.
func explain(row *api.TracedRow, now time.Time) {
	switch r := &row.Row; {
	case r.Status == outbox.StatusPublished:
		row.Step = api.StepPublished
		row.Says = "the broker confirmed it at " + shownTime(r.PublishedAt)
	case r.Status == outbox.StatusAbandoned:
		row.Step = api.StepAbandoned
		row.Says = fmt.Sprintf("it was abandoned at %s after %s", shownTime(r.FinishedAt), attempts(r.Attempts))
		row.Remedy = "repair the cause, then requeue it; or discard it; or acknowledge it, to end the alert"
	case r.State == "":
		row.Step, row.Says = api.Step(r.Status), "another transaction was writing the row just then: ask again"
	default:
		row.Step = api.Step(r.State)
		row.Says, row.Remedy = explainOpen(r, now)
	}
}

// explainOpen says what an open row waits for, and what to do about it.
func explainOpen(r *api.Record, now time.Time) (says, remedy string) {
	switch r.State {
	case outbox.StateDue:
		return "it has waited for a worker for " + waited(r, now), "where that takes long: does a relay run? See the workers, and the lag"
	case outbox.StateClaimed:
		return fmt.Sprintf("worker %s is sending it, under a lease until %s", r.LockedBy, shownTime(r.LockedUntil)), ""
	case outbox.StateBackoff:
		failed := attempts(r.Attempts) + " failed"
		if r.Attempts == 0 {
			failed = "it was tried, which counts as no attempt"
		}
		return fmt.Sprintf("%s; the next one is due %s", failed, shownUntil(next(r, r.LockedUntil), now)),
			"repair the cause; requeue it to try at once" + pendingToo(r)
	case outbox.StateScheduled:
		return "it is not to be sent before " + shownTime(next(r, r.AvailableAt)), ""
	case outbox.StateBehind:
		return "another message of its ordering key goes first" + first(r), ""
	case outbox.StateBlocked:
		return "its ordering key waits for an operator" + first(r), "requeue that message, or discard it; or unblock the key"
	case outbox.StatePaused:
		return "its broker is paused", "resume the broker"
	case outbox.StateUnavailable:
		return "its broker, or its destination there, is unavailable", "repair the broker: relays try it from time to time"
	case outbox.StateUnconfigured:
		return "no relay delivers to its broker, which the configuration does not have", "add the broker to the configuration, or abandon its rows"
	default:
		return "nothing makes it due any more: it was changed by hand, or there is a defect", "requeue it; abandon it first where it is pending"
	}
}

// pendingToo says how a requeue selects a row whose attempt did not count: one that names no status is for failed ones.
func pendingToo(r *api.Record) string {
	if r.Status != outbox.StatusPending {
		return ""
	}
	return ": by its id, or with --status pending"
}

// waited says for how long a row has been due, as far as it tells: not before its schedule, and not before what was last done with
// it. When it was requeued since then, it does not say.
func waited(r *api.Record, now time.Time) string {
	since := r.CreatedAt
	if r.AvailableAt.After(since) {
		since = r.AvailableAt
	}
	if r.LastError != nil && r.LastError.At.After(since) {
		return "up to " + shownSince(r.LastError.At, now)
	}
	return shownSince(since, now)
}

// next is when what a row waits for ends: by its deferral, or else at a time of its own.
func next(r *api.Record, own time.Time) time.Time {
	if r.Deferral != nil && !r.Deferral.Until.IsZero() {
		return r.Deferral.Until
	}
	return own
}

// first names the message that goes before a row, where it is known.
func first(r *api.Record) string {
	if r.Deferral == nil || r.Deferral.MessageID == r.MessageID {
		return ""
	}
	return ": " + r.Deferral.MessageID
}

// A ConsumerProgress is what the inbox of a consumer has recorded of one message.
type ConsumerProgress struct {
	Source string
	// Status is that of inbox.Progress.
	Status    string
	Attempts  int
	At        time.Time
	LastError string
}

// explainConsumer is how far a message has come at a consumer; p is nil where its inbox has recorded nothing.
func explainConsumer(name string, p *ConsumerProgress, now time.Time) api.TracedConsumer {
	c := api.TracedConsumer{Consumer: name}
	if p == nil {
		c.Step = api.StepQueued
		c.Says = "its inbox has no record: the message is still on its way, or was skipped, or its record was purged"
		c.Remedy = "does the consumer run, and handle this type? See its lag"
		return c
	}
	c.Source, c.Attempts, c.At, c.LastError = p.Source, p.Attempts, p.At.UTC(), p.LastError
	switch p.Status {
	case "handled":
		c.Step, c.Says = api.StepDone, "it was handled "+shownSince(p.At, now)+" ago"
	case "running":
		c.Step, c.Says = api.StepRunning, "a handler has it now"
	case "failed":
		c.Step, c.Says, c.Remedy = api.StepFailing, attempts(p.Attempts)+" failed, and it is tried again", "repair the cause"
	case "dead_letter":
		c.Step, c.Says = api.StepDeadLetter, fmt.Sprintf("it is a dead letter since %s, after %s", shownTime(p.At), attempts(p.Attempts))
		c.Remedy = "repair the cause, then redrive it: fanout inbox redrive"
	case "redriven":
		c.Step, c.Says = api.StepQueued, "it was redriven, and is to be handled again"
	default:
		c.Step, c.Says = api.StepQueued, "its token is there: it has not come yet"
	}
	return c
}

func attempts(n int) string {
	if n == 1 {
		return "1 attempt"
	}
	return fmt.Sprintf("%d attempts", n)
}

func shownTime(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func shownSince(at, now time.Time) string { return max(now.Sub(at), 0).Round(time.Second).String() }

func shownUntil(at, now time.Time) string {
	if !at.After(now) {
		return "now"
	}
	return "in " + at.Sub(now).Round(time.Second).String()
}
