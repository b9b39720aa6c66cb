package monitor

import (
	"context"
	"slices"

	"github.com/gorm-fanout/fanout/outbox/admin"
)

// count is what a dry run does.
func (r *run) count(ctx context.Context) (err error) {
	switch {
	case r.action.Verb == VerbPurge:
		return r.countOld(ctx)
	case !r.action.selects():
		r.result.Matched, err = r.countOne(ctx)
		return err
	case r.action.Fingerprint == "":
		r.result.Matched, err = r.matches(ctx, r.action.Filter)
		return err
	}
	var (
		rows []taken
		more bool
	)
	if err = r.prepare(ctx); err != nil {
		return err
	}
	if len(r.action.Filter.MessageIDs) > 0 {
		rows, err = r.lookUp(ctx, r.action.Filter)
	} else {
		rows, more, err = r.collect(ctx, r.action.Filter)
	}
	r.result.Matched = admin.Count{N: int64(len(rows)), More: more}
	return err
}

// countOne tells whether a pause, a resume or an unblock would change something.
func (r *run) countOne(ctx context.Context) (admin.Count, error) {
	broker := r.action.Filter.Broker
	var would bool
	if r.action.Verb == VerbUnblock {
		const most = 10_000
		keys, err := ask(ctx, r.console, r.database, func(ctx context.Context, store admin.Administration) ([]admin.BlockedKey, error) {
			return store.BlockedKeys(ctx, broker, most)
		})
		if err != nil {
			return admin.Count{}, err
		}
		would = slices.ContainsFunc(keys, func(k admin.BlockedKey) bool { return k.Broker == broker && k.Key == r.action.Key })
	} else {
		pauses, err := ask(ctx, r.console, r.database, func(ctx context.Context, store admin.Administration) ([]admin.Pause, error) {
			return store.Pauses(ctx)
		})
		if err != nil {
			return admin.Count{}, err
		}
		paused := slices.ContainsFunc(pauses, func(p admin.Pause) bool { return p.Broker == broker })
		would = paused == (r.action.Verb == VerbResume)
	}
	if would {
		return admin.Count{N: 1}, nil
	}
	return admin.Count{}, nil
}
