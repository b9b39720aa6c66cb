package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gorm-fanout/fanout/internal/discreet"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// endAuditTime bounds the last word about an action, which has a context of its own: it is recorded
// also when the caller has gone.
const endAuditTime = 5 * time.Second

// run is one action in one database.
type run struct {
	console  *Console
	store    admin.Administration
	database string
	action   Action
	actor    Actor
	result   Result
	blocking map[row]bool // rows for which keys wait, where the action is for these
}

func (c *Console) doIn(ctx context.Context, actor Actor, action Action, database string) Result {
	store, err := c.store(database)
	if err != nil { // it has gone meanwhile
		return Result{Database: database, Err: err}
	}
	r := &run{console: c, store: store, database: database, action: action, actor: actor, result: Result{Database: database}}
	if _, rows := actionStatuses[action.Verb]; rows {
		if r.result.Err = r.spared(ctx); r.result.Err != nil {
			return r.result
		}
	}
	if action.DryRun {
		if r.result.Err = r.count(ctx); r.result.Err == nil {
			r.result.Err = r.waiting(ctx)
		}
		return r.result
	}
	entry := admin.AuditEntry{
		Actor: actor.Name, Via: actor.Via, Action: action.Verb, Broker: action.Filter.Broker, Filter: action.record(), Reason: action.Reason,
	}
	r.result.Err = c.Record(ctx, database, entry, func(id int64) (int64, error) {
		r.result.AuditID = id
		err := r.change(ctx)
		return r.result.Changed, err
	})
	if r.result.Err == nil {
		r.result.Err = r.waiting(ctx)
	}
	return r.result
}

// Record does something to a database for which this console has no action, and leaves an entry in
// its audit: begun before, and ended after it with the number of rows that do returns and its
// error. Where the audit cannot be begun, do is not called. It is for actions of others that belong
// into the same record; [Console.Do] records its own.
func (c *Console) Record(ctx context.Context, database string, entry admin.AuditEntry, do func(id int64) (rows int64, err error)) error {
	id, err := ask(ctx, c, database, func(ctx context.Context, store admin.Administration) (int64, error) {
		return store.BeginAudit(ctx, entry)
	})
	if err != nil {
		return fmt.Errorf("nothing was changed or shown, for the audit could not be begun: %w", err)
	}
	var rows int64
	ended := false
	end := func(failure string) error {
		ended = true
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endAuditTime)
		defer cancel()
		store, err := c.store(database)
		if err != nil {
			return err
		}
		return store.EndAudit(ctx, id, rows, failure)
	}
	defer func() {
		if !ended { // a panic, perhaps of Progress
			_ = end("the program panicked")
		}
	}()
	rows, err = do(id)
	failure := ""
	if err != nil {
		failure = discreet.Text(err.Error())
	}
	if auditErr := end(failure); auditErr != nil {
		err = errors.Join(err, fmt.Errorf("it was done, but the end could not be recorded in the audit: %w", auditErr))
	}
	return err
}

func (r *run) change(ctx context.Context) error {
	broker := r.action.Filter.Broker
	switch r.action.Verb {
	case VerbPause:
		return r.single(r.store.Pause(ctx, admin.Pause{Broker: broker, By: r.actor.Name, Reason: r.action.Reason}))
	case VerbResume:
		return r.single(r.store.Resume(ctx, broker))
	case VerbUnblock:
		if r.action.selects() {
			return r.rows(ctx)
		}
		return r.single(r.store.UnblockKey(ctx, broker, r.action.Key))
	case VerbPurge:
		return r.purge(ctx)
	default:
		return r.rows(ctx)
	}
}

// single notes what became of an action on one thing.
func (r *run) single(changed bool, err error) error {
	if changed {
		r.result.Changed = 1
	}
	return err
}

// done notes a chunk.
func (r *run) done(rows int) {
	r.result.Changed += int64(rows)
	if r.action.Progress != nil {
		r.action.Progress(Progress{Database: r.database, Matched: r.result.Matched, Done: r.result.Changed})
	}
}

// left is how many rows may still be changed, up to a chunk.
func (r *run) left() int {
	if r.action.Limit == 0 {
		return actionChunk
	}
	return int(min(actionChunk, int64(r.action.Limit)-r.result.Changed))
}

// auditedIDs is how many message ids stand in an audit entry.
const auditedIDs = 50

// record is what an action was done to, for the audit.
func (a *Action) record() string {
	record := map[string]any{}
	note := func(name, value string) {
		if value != "" {
			record[name] = value
		}
	}
	note("type", a.Filter.Type)
	note("key", a.Filter.Key+a.Key) // an action has one of them
	note("key_prefix", a.Filter.KeyPrefix)
	note("aggregate", a.Filter.Aggregate)
	note("correlation", a.Filter.Correlation)
	note("tenant", a.Filter.Tenant)
	note("error_class", a.Filter.ErrorClass)
	note("fingerprint", a.Fingerprint)
	if len(a.Filter.Statuses) > 0 {
		record["status"] = a.Filter.Statuses
	}
	if ids := a.Filter.MessageIDs; len(ids) > auditedIDs {
		record["message_ids"], record["more_message_ids"] = ids[:auditedIDs], len(ids)-auditedIDs
	} else if len(ids) > 0 {
		record["message_ids"] = ids
	}
	for name, at := range map[string]time.Time{"since": a.Filter.Since, "until": a.Filter.Until} {
		if !at.IsZero() {
			record[name] = at.UTC().Format(time.RFC3339Nano)
		}
	}
	for name, d := range map[string]time.Duration{"published_before_seconds": a.PublishedBefore, "abandoned_before_seconds": a.AbandonedBefore} {
		if d > 0 {
			record[name] = d.Seconds()
		}
	}
	if a.TTL > 0 {
		record["ttl_seconds"] = a.TTL.Seconds()
	}
	if a.Limit > 0 {
		record["limit"] = a.Limit
	}
	if len(record) == 0 {
		return ""
	}
	text, err := json.Marshal(record)
	if err != nil { // texts and numbers always encode
		return ""
	}
	return string(text)
}
