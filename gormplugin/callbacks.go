package gormplugin

import (
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/journal"
	"github.com/gorm-fanout/fanout/outbox"
)

// register adds the callbacks around GORM's own, in this order:
//
//	gorm:begin_transaction → fanout:begin → ... the statement and its hooks ...
//	→ fanout:capture → gorm:commit_or_rollback_transaction → fanout:end
//
// "After gorm:after_create" alone would come after the commit; hence the Before.
func (p *Plugin) register(db *gorm.DB) error {
	if db.Callback().Create().Get("fanout:capture") != nil {
		return nil // a second Initialize on the same handle
	}
	const begin, commit = "gorm:begin_transaction", "gorm:commit_or_rollback_transaction"
	create, update, remove, raw := db.Callback().Create(), db.Callback().Update(), db.Callback().Delete(), db.Callback().Raw()
	return errors.Join(
		p.registerFirst(db),
		create.Match(p.guard(create)).After(begin).Before("gorm:before_create").Register("fanout:begin", p.guarded(p.begin(true))),
		create.After("gorm:after_create").Before(commit).Register("fanout:capture", p.guarded(p.capture(true))),
		create.After(commit).Register("fanout:end", p.end),
		update.Match(p.guard(update)).After(begin).Before("gorm:setup_reflect_value").Register("fanout:begin", p.guarded(p.begin(false))),
		update.After("gorm:after_update").Before(commit).Register("fanout:capture", p.guarded(p.capture(false))),
		update.After(commit).Register("fanout:end", p.end),
		remove.Match(p.guard(remove)).After(begin).Before("gorm:before_delete").Register("fanout:begin", p.guarded(p.begin(false))),
		remove.After("gorm:after_delete").Before(commit).Register("fanout:capture", p.guarded(p.capture(false))),
		remove.After(commit).Register("fanout:end", p.end),
		raw.After("gorm:raw").Register("fanout:savepoint", p.follow),
		db.Callback().Query().After("gorm:query").Register("fanout:failed", p.failed),
		db.Callback().Query().After("gorm:after_query").Register("fanout:loaded", p.loaded),
		db.Callback().Row().After("gorm:row").Register("fanout:failed", p.mayFail),
		p.surround(db),
	)
}

// registerFirst adds what comes before anything that GORM itself does.
func (p *Plugin) registerFirst(db *gorm.DB) error {
	const name, begin = "fanout:through", "gorm:begin_transaction" // which is there unless SkipDefaultTransaction is set
	with := func(db *gorm.DB) bool { return !db.SkipDefaultTransaction }
	without := func(db *gorm.DB) bool { return db.SkipDefaultTransaction }
	all := db.Callback()
	return errors.Join(
		all.Create().Match(with).Before(begin).Register(name, p.seeThrough), all.Create().Match(without).Before("gorm:before_create").Register(name+"_alone", p.seeThrough),
		all.Update().Match(with).Before(begin).Register(name, p.seeThrough), all.Update().Match(without).Before("gorm:setup_reflect_value").Register(name+"_alone", p.seeThrough),
		all.Delete().Match(with).Before(begin).Register(name, p.seeThrough), all.Delete().Match(without).Before("gorm:before_delete").Register(name+"_alone", p.seeThrough),
		all.Query().Before("gorm:query").Register(name, p.seeThrough),
		all.Row().Before("gorm:row").Register(name, p.seeThrough),
		all.Raw().Before("gorm:raw").Register(name, p.seeThrough),
	)
}

// Keys of what a statement carries in its settings from one callback to the next. Settings are
// copied from statement to statement, hence the statement in the key. GORM's InstanceSet and
// InstanceGet do the same with a text into which they print the pointer, which costs every
// statement of the application more than all else that the plugin asks about it.
type (
	keyStarted    struct{ *gorm.Statement }
	keyDest       struct{ *gorm.Statement }
	keyVersions   struct{ *gorm.Statement }
	keyOutcome    struct{ *gorm.Statement }
	keyBystanders struct{ *gorm.Statement }
	keyRefused    struct{ *gorm.Statement }
	keyBegun      struct{ *gorm.Statement }
)

// startedByGORM reports whether GORM has begun a transaction for the statement.
func startedByGORM(db *gorm.DB) bool {
	_, started := db.InstanceGet("gorm:started_transaction")
	return started
}

// startedByUs is the same for begin.
func startedByUs(db *gorm.DB) bool {
	_, started := db.Statement.Settings.Load(keyStarted{db.Statement})
	return started
}

// Skip returns a session whose statements capture nothing: the events of the aggregates that they
// write stay pending. That holds for everything derived from the session too: its transactions, the
// statements of hooks and associations, and GORM's generic interface. db itself stays as it is.
func Skip(db *gorm.DB) *gorm.DB {
	// The mark is in the configuration, which GORM copies for each session. A setting would belong
	// to one statement: a second one on the same handle would start where the first has ended.
	session := db.Session(&gorm.Session{})
	session.Plugins = maps.Clone(session.Plugins)
	session.Plugins[skipMark{}.Name()] = skipMark{}
	return session
}

// skipMark marks the sessions of Skip. It stands among their plugins, which do nothing by
// themselves.
type skipMark struct{}

// Name implements gorm.Plugin.
func (skipMark) Name() string { return "fanout:skip" }

// Initialize implements gorm.Plugin.
func (skipMark) Initialize(*gorm.DB) error { return nil }

func skipped(db *gorm.DB) bool {
	_, skip := db.Plugins[skipMark{}.Name()]
	return skip || db.DryRun
}

// begin sees to it that a statement on aggregates runs in a transaction of ours.
func (p *Plugin) begin(creates bool) func(*gorm.DB) {
	return func(db *gorm.DB) {
		if db.Error != nil {
			return
		}
		keepSpan(db)
		if !p.concerns(db) || skipped(db) {
			return
		}
		if err := p.objection(db); err != nil {
			_ = db.AddError(err)
			return
		}
		p.ensureTransaction(db)
		if !creates {
			p.noteDest(db)
		}
		p.noteVersions(db, creates)
		t, _ := transactionOf(db.Statement.ConnPool)
		if t == nil {
			return
		}
		written := targets(db, creates)
		for _, value := range written {
			t.useBefore(reflect.ValueOf(value))
		}
		if t.attempt != nil {
			aggregates, err := p.aggregates(db, written[:]...)
			_ = db.AddError(err)
			t.touch(aggregates)
		}
	}
}

func (p *Plugin) ensureTransaction(db *gorm.DB) {
	ours, foreign := transactionOf(db.Statement.ConnPool)
	switch {
	case ours != nil:
	case foreign != nil && startedByGORM(db): // GORM has just begun it on a pool that we could not wrap
		p.wrapInPlace(db, foreign)
	case foreign != nil:
		p.warnUnseen(db)
	case p.joinBegun(db):
	default: // SkipDefaultTransaction: the rows must not be written without the aggregate
		begun := db.Session(&gorm.Session{NewDB: true, Context: db.Statement.Context})
		begun.Statement.ConnPool = db.Statement.ConnPool
		if begun = begun.Begin(); begun.Error != nil {
			if errors.Is(begun.Error, gorm.ErrInvalidTransaction) { // by whoever begins none
				begun.Error = fmt.Errorf("%w: %w", unseenError(db), begun.Error)
			}
			_ = db.AddError(begun.Error)
			return
		}
		db.Statement.Settings.Store(keyStarted{db.Statement}, db.Statement.ConnPool)
		db.Statement.ConnPool = begun.Statement.ConnPool
		switch ours, foreign := transactionOf(db.Statement.ConnPool); {
		case ours != nil:
		case foreign != nil:
			p.wrapInPlace(db, foreign)
		default:
			_ = db.AddError(unseenError(db))
		}
	}
}

// warnUnseen is for a transaction that was begun by hand on a pool that the plugin has not seen: by
// a session derived before it was there, a resolver registered before it, or a handle of
// db.Connection. A handle that was opened on a transaction is none of these: there the caller
// knows.
func (p *Plugin) warnUnseen(db *gorm.DB) {
	if _, opened := db.ConnPool.(gorm.TxCommitter); opened {
		return
	}
	p.unseen.Do(func() {
		p.log.WarnContext(db.Statement.Context, "transaction on a pool that the plugin has not seen",
			"effect", "its events are written at the statement, and those raised after the last save of their aggregate stay pending",
			"remedy", "derive sessions after db.Use(gormplugin.New(...)), register resolvers after it, or begin the transaction on gormplugin.Wrap(db)")
	})
}

// wrapInPlace makes a transaction that was begun behind our back one of ours.
func (p *Plugin) wrapInPlace(db *gorm.DB, foreign gorm.Tx) {
	inserter, err := p.inserterFor(db)
	if err != nil {
		_ = db.AddError(err)
		return
	}
	parent, _ := db.ConnPool.(gorm.GetDBConnector)
	wrapped := newTx(db.Statement.Context, foreign, p, inserter, parent)
	if prepared, ok := db.Statement.ConnPool.(*gorm.PreparedStmtTX); ok {
		prepared.Tx = wrapped
		return
	}
	db.Statement.ConnPool = wrapped
}

// end commits or rolls back the transaction that begin has begun.
func (p *Plugin) end(db *gorm.DB) {
	if _, by := db.Statement.ConnPool.(*begunTx); by {
		if conn, joined := db.Statement.Settings.LoadAndDelete(keyBegun{db.Statement}); joined {
			db.Statement.ConnPool, _ = conn.(gorm.ConnPool)
		}
	}
	before, ok := db.Statement.Settings.LoadAndDelete(keyStarted{db.Statement})
	if !ok {
		return
	}
	if db.Error != nil {
		db.Rollback()
	} else {
		db.Commit()
	}
	db.Statement.ConnPool, _ = before.(gorm.ConnPool)
}

// follow watches raw SQL that runs as a prepared statement and so bypasses the transaction's
// ExecContext, or on a connection that is reserved.
func (p *Plugin) follow(db *gorm.DB) {
	conn := db.Statement.ConnPool
	if through, ok := conn.(*throughTx); ok {
		conn = through.inner
	}
	if reserved, ok := conn.(*sql.Conn); ok && !db.DryRun {
		p.begun.follow(outbox.Dialect(db.Name()), reserved, db.Statement.SQL.String(), db.Error)
		return
	}
	if _, prepared := conn.(*gorm.PreparedStmtTX); !prepared || db.DryRun {
		return
	}
	ours, _ := transactionOf(db.Statement.ConnPool)
	if ours == nil {
		return
	}
	p.failed(db)
	if text := db.Statement.SQL.String(); ours.course.claim(text) {
		ours.follow(db.Statement.Context, text, db.Error)
	}
}

// failed tells the transaction of a statement that has failed. The transaction does not see it by
// itself where statements are prepared, or where the error comes with the rows.
func (p *Plugin) failed(db *gorm.DB) {
	if db.Error == nil {
		return
	}
	if ours, _ := transactionOf(db.Statement.ConnPool); ours != nil {
		ours.course.fail(db.Error)
	}
}

// mayFail is for rows that the application reads by itself, when callbacks are over. That a SELECT
// fails does no harm.
func (p *Plugin) mayFail(db *gorm.DB) {
	if text := db.Statement.SQL.String(); db.Error == nil && (text == "" || text[0]|0x20 == 's') {
		return
	}
	if ours, _ := transactionOf(db.Statement.ConnPool); ours != nil {
		ours.course.fail(db.Error)
	}
}

// concerns reports whether a statement is on a type that has a uow.Aggregate, or on one of which
// that cannot be told.
func (p *Plugin) concerns(db *gorm.DB) bool {
	model, dest := db.Statement.Model, db.Statement.Dest
	return p.mayHold(dest) || reflect.TypeOf(model) != reflect.TypeOf(dest) && p.mayHold(model)
}

// objection is why a statement must not run: events of what it writes would be lost.
func (p *Plugin) objection(db *gorm.DB) error {
	for _, value := range [...]any{db.Statement.Model, db.Statement.Dest} {
		if value == nil {
			continue
		}
		if err := p.kindOf(reflect.TypeOf(value)).objection; err != nil {
			return fmt.Errorf("gormplugin: %w", err)
		}
	}
	return nil
}

// kind is what is asked about the type of a model.
type kind struct {
	mayHold   bool // aggregates
	objection error
}

// mayHold answers by type, and from memory: every statement of the application asks.
func (p *Plugin) mayHold(value any) bool {
	return value != nil && p.kindOf(reflect.TypeOf(value)).mayHold
}

func (p *Plugin) kindOf(t reflect.Type) *kind {
	if known, ok := p.kinds.Load(t); ok {
		return known.(*kind) //nolint:forcetypeassert // the map holds nothing else
	}
	element := t
	for slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Array}, element.Kind()) {
		element = element.Elem()
	}
	k := &kind{objection: journal.CheckAggregate(element)}
	// The elements of an interface may be anything; the capture looks at each.
	k.mayHold = k.objection != nil || journal.IsAggregate(element) || element.Kind() == reflect.Interface
	p.kinds.Store(t, k)
	return k
}
