package monitor

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// What an action can be.
const (
	VerbRequeue     = "requeue"     // failed and abandoned rows are delivered again, at once
	VerbAbandon     = "abandon"     // pending and failed rows, and those of crashed workers, are not delivered
	VerbReplay      = "replay"      // published rows are delivered again
	VerbAcknowledge = "acknowledge" // abandoned rows raise no alert any more
	VerbDiscard     = "discard"     // abandoned rows are removed, and their keys go on
	VerbUnblock     = "unblock"     // ordering keys go on without the abandoned rows for which they wait
	VerbPurge       = "purge"       // published and abandoned rows are removed
	VerbPause       = "pause"       // nothing is delivered to a broker
	VerbResume      = "resume"      // a broker that was paused goes on
)

// Verbs lists what an action can be.
func Verbs() []string {
	return []string{VerbRequeue, VerbAbandon, VerbReplay, VerbAcknowledge, VerbDiscard, VerbUnblock, VerbPurge, VerbPause, VerbResume}
}

// actionChunk is how many rows are changed at a time.
const actionChunk = 500

// maxMessageIDs is how many message ids one action may name.
const maxMessageIDs = 10_000

// An Actor is who acts: Name for the audit, and Via is cli, http or go.
type Actor struct{ Name, Via string }

// An Action is what an operator wants done.
type Action struct {
	// Verb is one of [Verbs]. Required.
	Verb string
	// Database to work on; empty = all.
	Database string
	// Filter selects the rows of a requeue, an abandon, a replay, an acknowledge and a discard, and those
	// for which the keys of an unblock wait; Filter.Broker is the broker of everything else. A pause, a
	// resume and the unblock of one Key need one. A requeue whose filter names no status is for failed
	// and abandoned rows: pending rows that wait for a time, and processing ones whose lease is over,
	// come back only when the status is named, or the messages are. All others that select rows need at
	// least one condition beside the statuses, and so does a requeue over HTTP.
	Filter admin.Filter
	// Fingerprint limits an action that selects failed or abandoned rows to those whose last error has
	// it: see [Fingerprint].
	Fingerprint string
	// Key is the one ordering key to unblock; empty where the filter selects them.
	Key string
	// Reason is for the audit, and for those who read a pause or the error of an abandoned row.
	Reason string
	// PublishedBefore and AbandonedBefore are how long ago rows must have been finished to be
	// purged; 0 = they stay. A purge needs one.
	PublishedBefore, AbandonedBefore time.Duration
	// TTL is a new time to live for the rows of a requeue; 0 = a time to live that has passed is
	// taken off, and others stay.
	TTL time.Duration
	// Limit is the most rows to change in each database; 0 = all.
	Limit int
	// DryRun only counts what would be changed, and leaves no entry in the audit.
	DryRun bool
	// Progress is called after each chunk of 500 rows, from the goroutine that called Do. It may be
	// nil.
	Progress func(Progress)

	guarded bool // a condition that was forgotten must not send everything
}

// Progress is how far an action is.
type Progress struct {
	Database string
	// Matched rows when it began, and those Done so far.
	Matched admin.Count
	Done    int64
}

// Result is what became of an action in one database.
type Result struct {
	Database string
	// Matched is how many rows were found, up to 100,000, whatever the limit of the action. Changed can
	// be less: rows beyond the limit, those that only wait for an earlier message of their key
	// (requeue), and those that have changed meanwhile stay as they are. Claimed rows are not among
	// them.
	Matched admin.Count
	// Left is how many rows the action has left as they are, or would, by what they are, as far as
	// that was looked at: claimed, or, of pending rows that wait for no time of their own, their
	// [outbox.State], such as behind; of messages that the filter names by their ids also the status
	// that the action is not for; and of a requeue that found nothing to change, pending for those that
	// wait for a time, which it takes where the filter names their status. Nil where there are none.
	Left map[string]int64
	// LeftMore is true where not all rows were looked at that the action may leave: there can be more
	// of them than Left says.
	LeftMore bool
	// Refused is how many rows a requeue has left out since they are malformed, and would be
	// abandoned again at once: they have to be corrected in the table, and then requeued by a
	// filter that names the error class malformed.
	Refused int64
	// Changed rows; of an unblock the keys; 1 for a pause and a resume that changed something.
	Changed int64
	// AuditID is the entry in the audit table; 0 for a dry run.
	AuditID int64
	// Err is nil when it was done. What was changed before an error stays changed.
	Err error
}

// Do does it, in all databases where the action names none, one after the other: one that fails
// does not keep it from the others. The error joins those of the results; it is a [*RefusedError]
// or a [*NotFoundError], without results, where nothing was tried. Rows are changed in chunks of
// 500, each in a transaction of its own, oldest first, so an action that is stopped has done the
// first part.
//
// Of the rows that come back (requeue and replay) no more than a million are looked at, the newest
// ones; Matched.More tells that there are others. No row is taken twice, be it failed again by
// then.
func (c *Console) Do(ctx context.Context, actor Actor, action Action) ([]Result, error) {
	if err := c.check(actor, &action); err != nil {
		return nil, err
	}
	databases := c.Databases()
	if action.Database != "" {
		databases = []string{action.Database}
	}
	var (
		results  = make([]Result, 0, len(databases))
		problems []error
	)
	for _, database := range databases {
		result := c.doIn(ctx, actor, action, database)
		if result.Err != nil {
			result.Err = fmt.Errorf("monitor: %s in database %q: %w", action.Verb, database, result.Err)
		}
		results, problems = append(results, result), append(problems, result.Err)
	}
	return results, errors.Join(problems...)
}

var fingerprintForm = regexp.MustCompile(`^[0-9a-f]{12}$`)

// check refuses what cannot be meant, and fills in what the action leaves open.
func (c *Console) check(actor Actor, a *Action) error {
	if !slices.Contains(Verbs(), a.Verb) {
		return refusef("there is no action %q: use %s", a.Verb, strings.Join(Verbs(), ", "))
	}
	if a.Database != "" {
		if _, err := c.store(a.Database); err != nil {
			return err
		}
	}
	for _, text := range []struct{ what, value string }{
		{"actor", actor.Name},
		{"key", a.Key},
		{"reason", a.Reason},
		{"broker", a.Filter.Broker},
		{"type", a.Filter.Type},
		{"key", a.Filter.Key},
		{"key prefix", a.Filter.KeyPrefix},
		{"aggregate", a.Filter.Aggregate},
		{"correlation id", a.Filter.Correlation},
		{"tenant", a.Filter.Tenant},
		{"error class", a.Filter.ErrorClass},
	} {
		if err := checkText(text.what, text.value); err != nil {
			return err
		}
	}
	return errors.Join(c.checkBroker(a), c.checkReplay(a), a.checkFailureGroup(), a.checkPurge(), a.checkTTL(), a.checkFilter())
}

// checkBroker judges what is done to a broker as a whole, or to a key.
func (c *Console) checkBroker(a *Action) error {
	broker := a.Filter.Broker
	switch {
	case (slices.Contains([]string{VerbPause, VerbResume}, a.Verb) || a.Verb == VerbUnblock && a.Key != "") && broker == "":
		return refusef("%s: name the broker", a.Verb)
	case a.Verb != VerbUnblock && a.Key != "":
		return refusef("%s: the key of an action is the one to unblock: rows are selected by the key of the filter", a.Verb)
	case a.Verb == VerbPause && len(c.brokers) > 0 && !slices.Contains(c.brokers, broker):
		return refusef("pause: the configuration has no broker %q%s", broker, DidYouMean(broker, c.brokers))
	}
	return nil
}

// checkReplay refuses a replay of what is not there any more. Rows that were published before the broker's rows
// were not kept any more can be named by their messages.
func (c *Console) checkReplay(a *Action) error {
	if broker := a.Filter.Broker; a.Verb == VerbReplay && !c.keeps(broker) && len(a.Filter.MessageIDs) == 0 {
		return refusef("replay: the rows of broker %q are not kept after their delivery (keep: false), so there is nothing to be sent again. "+
			"What was published before that was configured can be named by its message ids", broker)
	}
	return nil
}

func (a *Action) checkFailureGroup() error {
	switch {
	case a.Limit < 0:
		return refusef("%s: the limit is %d: use a positive number, or 0 for all", a.Verb, a.Limit)
	case a.Fingerprint == "":
		return nil
	case a.Verb == VerbReplay || !a.selects():
		return refusef("%s: a fingerprint selects failures: messages to be requeued, abandoned, acknowledged, discarded or unblocked", a.Verb)
	case !fingerprintForm.MatchString(a.Fingerprint):
		return refusef("%s: a fingerprint has 12 hexadecimal digits", a.Verb)
	case slices.Contains(a.Filter.Statuses, outbox.StatusPending):
		return refusef("%s: a fingerprint selects failures, which are not pending", a.Verb)
	}
	return nil
}

func (a *Action) checkPurge() error {
	none := a.PublishedBefore == 0 && a.AbandonedBefore == 0
	switch {
	case a.PublishedBefore < 0 || a.AbandonedBefore < 0:
		return refusef("%s: the age of what is purged is negative", a.Verb)
	case a.Verb == VerbPurge && none:
		return refusef("purge: say how long ago rows must have been published or abandoned to be removed")
	case a.Verb != VerbPurge && !none:
		return refusef("%s: the age of what is purged is for purge", a.Verb)
	}
	return nil
}

func (a *Action) checkTTL() error {
	if a.TTL == 0 {
		return nil
	}
	if a.Verb != VerbRequeue {
		return refusef("%s: a new time to live is for requeue", a.Verb)
	}
	if _, err := admin.NewRequeuing(admin.WithTTL(a.TTL)); err != nil {
		return refusef("%v", err)
	}
	return nil
}

// refuses reports whether the action leaves out malformed rows.
func (a *Action) refuses() bool { return a.Verb == VerbRequeue && a.Filter.ErrorClass == "" }

// actionStatuses are what an action is for, and those that it means when none is named.
var actionStatuses = map[string]struct{ allowed, meant []outbox.Status }{
	VerbRequeue: {admin.RequeueStatuses(), []outbox.Status{outbox.StatusFailed, outbox.StatusAbandoned}},
	VerbAbandon: {admin.AbandonStatuses(), admin.AbandonStatuses()},
	VerbReplay:  {admin.ReplayStatuses(), admin.ReplayStatuses()},

	VerbAcknowledge: {admin.AbandonedStatuses(), admin.AbandonedStatuses()},
	VerbDiscard:     {admin.AbandonedStatuses(), admin.AbandonedStatuses()},
	VerbUnblock:     {admin.AbandonedStatuses(), admin.AbandonedStatuses()},
}

// selects reports whether an action is for the rows that its filter selects.
func (a *Action) selects() bool {
	_, ok := actionStatuses[a.Verb]
	return ok && a.Key == ""
}

// boundless reports whether the action would be for every row though it should not; some says that
// its filter has a condition beside broker and statuses.
func (a *Action) boundless(some bool) bool {
	if some || a.Fingerprint != "" {
		return false
	}
	// A key that was forgotten must not unblock them all.
	return a.Verb == VerbUnblock || a.Filter.Broker == "" && (a.Verb != VerbRequeue || a.guarded && !a.DryRun)
}

// refuseAll asks for a condition.
func (a *Action) refuseAll() error {
	if a.Verb == VerbUnblock {
		return refusef("unblock: name the ordering key, or select keys by the messages for which they wait: a type (\"*\" is all), " +
			"a key prefix, an error class, a fingerprint or a time")
	}
	return refusef("%s: this would be for every row: name a broker, a type, a key, message ids or a time", a.Verb)
}

// checkFilter judges the filter, and fills in the statuses.
func (a *Action) checkFilter() error {
	f := &a.Filter
	conditions := *f
	conditions.Broker, conditions.Statuses = "", nil
	if len(f.MessageIDs) == 0 {
		conditions.MessageIDs = nil
	}
	some := !reflect.DeepEqual(conditions, admin.Filter{})
	statuses, selects := actionStatuses[a.Verb], a.selects()
	switch {
	case !selects && (some || len(f.Statuses) > 0):
		return refusef("%s: it is for a broker as a whole: it takes no other condition", a.Verb)
	case !selects:
		return nil
	case len(f.MessageIDs) > maxMessageIDs:
		return refusef("%s: %d message ids are too many: use at most %d at a time", a.Verb, len(f.MessageIDs), maxMessageIDs)
	case a.boundless(some):
		return a.refuseAll()
	}
	filter, err := f.For(a.Verb, max(a.Limit, 1), statuses.allowed...)
	if err != nil {
		return refusef("%v", err)
	}
	if len(f.Statuses) == 0 {
		meant := statuses.meant
		if len(f.MessageIDs) > 0 { // who names messages means these, also where they wait for a time
			meant = statuses.allowed
		}
		filter.Statuses = slices.DeleteFunc(slices.Clone(meant), func(s outbox.Status) bool {
			return a.Fingerprint != "" && s == outbox.StatusPending
		})
	}
	slices.Sort(filter.MessageIDs)
	filter.MessageIDs = slices.Compact(filter.MessageIDs)
	// What was done before does not count, and is not done again.
	filter.Unacknowledged, filter.Blocking = filter.Unacknowledged || a.Verb == VerbAcknowledge, filter.Blocking || a.Verb == VerbUnblock
	*f = filter
	return nil
}
