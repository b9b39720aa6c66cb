package gormplugin

import (
	"errors"
	"fmt"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/capture"
	"github.com/gorm-fanout/fanout/internal/journal"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/uow"
)

// Publish implements capture.Hooks.
func (p hooks) Publish(db *gorm.DB, event *journal.Raised) error {
	if _, err := p.events.Lookup(event.Data); err != nil {
		return &CaptureError{Event: fmt.Sprintf("%T", event.Data), Err: err}
	}
	if db.DryRun {
		return nil
	}
	switch t, foreign := transactionOf(db.Statement.ConnPool); {
	case t != nil:
		t.attempt.Publish(event)
		return t.journal.Publish(event, p.inherited(db))
	case foreign != nil: // the caller's own transaction: there will be no commit to wait for
		return p.writeNow(db, foreign, []journal.Flush{{Raised: event, Context: p.inherited(db)}})
	default:
		return uow.ErrNoTransaction
	}
}

// Track implements capture.Hooks.
func (p hooks) Track(db *gorm.DB, aggregate any, source *envelope.Source) error {
	found, err := p.tracked(db, aggregate, source)
	if err != nil {
		return err
	}
	if db.DryRun {
		return nil
	}
	if t, _ := transactionOf(db.Statement.ConnPool); t != nil {
		t.touch(found)
	}
	return p.track(db, found)
}

// tracked finds what Track is given, with what is known of it.
func (p *Plugin) tracked(db *gorm.DB, aggregate any, source *envelope.Source) ([]found, error) {
	all, err := p.unread(aggregate)
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return nil, fmt.Errorf("gormplugin: track %T: it is nil, or no aggregate: give a pointer to a struct that embeds uow.Aggregate", aggregate)
	case source != nil && len(all) > 1:
		return nil, fmt.Errorf("gormplugin: track %T: uow.WithSource describes one aggregate, and there are %d aggregates: track them one by one", aggregate, len(all))
	case source != nil:
		all[0].given = source
		return all, nil
	}
	for i := range all {
		a := &all[i]
		t := a.value.Type()
		remedy := fmt.Sprintf("if it is no model of GORM's, say which aggregate it is: uow.Track(tx, aggregate, uow.WithSource(envelope.Source{Aggregate: %q, ID: ...}))", t.Name())
		if a.facts, err = p.sources.of(db, t); err != nil {
			return nil, fmt.Errorf("%w: %s", err, remedy)
		}
		if len(a.facts.keys) == 0 {
			return nil, fmt.Errorf("gormplugin: track %T: GORM finds no primary key in %s: %s", aggregate, t, remedy)
		}
	}
	return all, nil
}

// AfterCommit runs f once the outermost transaction of db has committed: see [uow.Unit.AfterCommit], which is the same
// where there is a unit. It is an error outside a transaction. In a dry run nothing is committed that f could follow.
func (p *Plugin) AfterCommit(db *gorm.DB, f func()) error {
	if db.DryRun {
		return nil
	}
	t, foreign := transactionOf(db.Statement.ConnPool)
	switch {
	case t != nil:
		t.promised.Store(true)
		return t.journal.AfterCommit(f)
	case foreign != nil:
		return errors.New("gormplugin: the transaction was begun outside GORM, so its commit cannot be seen: run the function yourself after it")
	default:
		return uow.ErrNoTransaction
	}
}

// Wrap returns a handle like db on which transactions begun by hand are captured. It is needed only
// for handles that the plugin has not seen being made: those of db.Connection, and sessions with
// PrepareStmt derived before db.Use. Single statements and uow.Do work on them without it.
func Wrap(db *gorm.DB) (*gorm.DB, error) {
	plugin, err := pluginOf(db)
	if err != nil {
		return nil, err
	}
	return hooks{plugin}.Wrap(db), nil
}

// Notify reports that a transaction begun outside GORM has committed. It wakes the relay of this
// process, or those of others, and removes from the given aggregates the events that the
// transaction wrote. Aggregates that are not given keep theirs as unconfirmed until the plugin has
// found their rows; a later write does not repeat them. db is any handle with the plugin;
// aggregates are pointers, or slices of them. Do not call Notify after a rollback: events would be
// lost. An error means that something given is no aggregate; the rest was done.
func Notify(db *gorm.DB, written ...any) error {
	plugin, err := pluginOf(db)
	if err != nil {
		return err
	}
	var problems []error
	for _, aggregate := range written {
		found, err := plugin.unread(aggregate)
		if err == nil && len(found) == 0 && !plugin.mayHold(aggregate) {
			err = fmt.Errorf("gormplugin: notify of %T: give a pointer to a struct that has a uow.Aggregate", aggregate)
		}
		problems = append(problems, err)
		for i := range found {
			found[i].recorder.Confirm()
		}
	}
	wakeUps := []wakeup.WakeUp{{Broker: plugin.routing.InternalBroker}} // in unknown shards
	for _, broker := range plugin.externalNames() {
		wakeUps = append(wakeUps, wakeup.WakeUp{Broker: broker})
	}
	var others *wakeup.Notifier
	if inserter, err := plugin.inserterFor(db); err == nil {
		others = plugin.notifierOf(nil, inserter)
	}
	plugin.committed(wakeUps, others)
	return errors.Join(problems...)
}

func pluginOf(db *gorm.DB) (*Plugin, error) {
	if plugin, ok := db.Plugins[capture.PluginName].(*Plugin); ok {
		return plugin, nil
	}
	return nil, uow.ErrNoPlugin
}
