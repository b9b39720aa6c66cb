package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync/atomic"
	"unicode"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/batch"
	"github.com/gorm-fanout/fanout/internal/transaction"
	"github.com/gorm-fanout/fanout/internal/unsetid"
	"github.com/gorm-fanout/fanout/internal/wakeup"
)

// WriterConfig is what a [Writer] needs to know. Dialect and Events are required.
type WriterConfig struct {
	// Dialect is the kind of database that the transactions are of.
	Dialect Dialect
	// Events are the event types that may be written.
	Events *envelope.Catalog
	// Routing says for which brokers, and into which table: that of the relay's configuration,
	// config.Config.Routing. The zero value writes everything for the broker "default".
	Routing Routing
	// Notify is the application's connection pool, on which relays in other processes are notified
	// after a commit, such as a *sql.DB; for a pgxpool.Pool, stdlib.OpenDBFromPool(pool) of pgx.
	// Required on PostgreSQL where Routing.Notify is set, and not used elsewhere.
	Notify Execer
	// Log is where warnings go. Default: slog.Default().
	Log *slog.Logger
}

// Writer writes events in transactions of applications that do not use GORM: of database/sql, sqlc,
// sqlx, ent and bun; for those of pgx there is postgres.Insert. Events go to the same brokers, in
// the same form, as with package gormplugin. Make one per database; it is safe for concurrent use.
type Writer struct {
	inserter  *Inserter
	events    *envelope.Catalog
	routing   Routing
	log       *slog.Logger
	notifier  *wakeup.Notifier // nil: no other process is notified
	listeners wakeup.Listeners
	unset     unsetid.Warnings
	counted   transaction.Marks[counted]
}

// NewWriter reports everything that is wrong with the configuration, all problems joined in one
// error. It does not touch the database.
func NewWriter(c WriterConfig) (*Writer, error) {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	w := &Writer{events: c.Events, routing: c.Routing.WithDefaults(), log: c.Log}
	_, err := ParseDialect(string(c.Dialect))
	problems := []error{err}
	if err := w.routing.CheckEvents(c.Events, c.Log); err != nil {
		problems = append(problems, fmt.Errorf("outbox: make a writer: %w", err))
	}
	if w.routing.Notify && c.Dialect == Postgres {
		if isNil(c.Notify) {
			problems = append(problems, errors.New("outbox: make a writer: the routing notifies relays, and there is no pool to do it on: "+
				"set WriterConfig.Notify to that of the application, or Routing.Notify to false"))
		} else {
			w.notifier = wakeup.NewNotifier(c.Notify, w.routing.Table, c.Log)
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if w.inserter, err = NewInserter(c.Dialect, w.routing.Table); err != nil {
		return nil, err
	}
	return w, nil
}

// made reports whether the writer is of NewWriter.
func (w *Writer) made() bool { return w != nil && w.inserter != nil }

// Dialect is the kind of database that the writer is for, "" where it was not made by [NewWriter].
func (w *Writer) Dialect() Dialect {
	if !w.made() {
		return ""
	}
	return w.inserter.Dialect()
}

// Routing returns the routing with its defaults, the zero value where the writer was not made by [NewWriter].
func (w *Writer) Routing() Routing {
	if !w.made() {
		return Routing{}
	}
	return w.routing
}

// OnCommit is how a relay in this process is woken: see fanout.WithWriter, which calls it. It does
// nothing where the writer was not made by [NewWriter].
func (w *Writer) OnCommit(f func(wakeUps []wakeup.WakeUp) (served bool)) (cancel func()) {
	if !w.made() {
		return func() {}
	}
	return w.listeners.OnCommit(f)
}

// Insert writes events in the transaction tx: one row per event and broker, in the order given, with
// as few statements as the database's limits allow. They are delivered if the transaction commits.
// Call [Written.Committed] of the result then.
//
// Events are made with [envelope.NewEvent]; [envelope.Event.From] says which aggregate raised one.
// Made outside a function that repeats the transaction, they keep their message ids, and consumers
// can tell the copies. Where their source has no Sequence, events of one aggregate are counted, from 1
// in each transaction; a further call in it counts on. What they inherit, such as the correlation id
// and the trace, is that of ctx: see [envelope.FromContext]. Without a correlation id there the events
// of the call share the message id of the first.
//
// Order per key is that of the commits only where the writers of a key take turns: change the
// aggregate's row before the call, which locks it, or set [Routing].SerializeKeys, by which Insert
// locks the keys of its events until the transaction ends.
//
// tx is a transaction: *sql.Tx, *sqlx.Tx, *ent.Tx of a client with the feature sql/execquery; of
// bun.Tx it is the field Tx, since its own ExecContext puts parameters into the text. What has no
// Commit is refused, such as a *sql.DB, a *sql.Conn, an *ent.Client and the pools of GORM. So is a
// transaction of a GORM handle with the plugin, which would write later what was raised earlier.
//
// After an error nothing was written that the transaction may commit: roll it back. The error names
// the event, or the row, and the remedy: those of [envelope.Catalog.Seal], *[UnknownBrokerError],
// *[OversizeError], and those of [Inserter.Insert]: an event that has been written already is one,
// and so is a row that the database has discarded ([ErrDiscarded]). Without events it does nothing.
func (w *Writer) Insert(ctx context.Context, tx Execer, events ...envelope.Event) (*Written, error) {
	if !w.made() {
		return nil, fmt.Errorf("outbox: insert %d events: the writer is empty: make writers with outbox.NewWriter, and check its error", len(events))
	}
	innermost, err := transactionOf(tx)
	if err != nil {
		return nil, fmt.Errorf("outbox: insert %d events: %w", len(events), err)
	}
	counted := w.countedIn(innermost, events)
	counted.mu.Lock() // a transaction runs one statement at a time in any case
	defer counted.mu.Unlock()
	sources, highest, err := sourcesOf(events, counted.highest)
	if err != nil {
		return nil, err
	}
	var (
		written   = &Written{writer: w}
		inherited = envelope.FromContext(ctx)
		brokers   = 1 + len(w.routing.External)
	)
	if inherited.CorrelationID == "" && len(events) > 0 {
		inherited.CorrelationID = events[0].ID.String()
	}
	appendRows := func(rows []Row, i int) ([]Row, error) { return w.appendRows(rows, &events[i], sources[i], inherited) }
	write := func(rows []Row) error {
		if w.routing.SerializeKeys {
			if err := w.inserter.LockKeys(ctx, tx, rows); err != nil {
				return err
			}
		}
		if err := w.inserter.Insert(ctx, tx, rows); err != nil {
			return err
		}
		written.wakeUps = w.inserter.WakeUps(written.wakeUps, rows)
		return nil
	}
	err = batch.Write(len(events), batch.Room[Row](len(events), brokers), w.routing.SerializeKeys, appendRows, write)
	if err != nil {
		return nil, hint(tx, err)
	}
	counted.highest = highest
	return written, nil
}

// transactionOf is the transaction behind what wraps it. It refuses what is none, as each statement is
// one of its own without Commit, and one at whose commit the plugin of GORM writes.
func transactionOf(tx Execer) (innermost any, err error) {
	if isNil(tx) {
		return nil, errors.New("the transaction is nil: check the error of what begins it")
	}
	_, ends := tx.(interface{ Commit() error })
	_, pool := tx.(interface{ Stats() sql.DBStats })
	if pool || !ends {
		return nil, fmt.Errorf("%T is a pool or a connection, whose statements are transactions of their own: "+
			"begin the transaction of what the events tell, and pass it", tx)
	}
	innermost = transaction.Innermost(tx)
	if transaction.IsCaptured(innermost) {
		return nil, errors.New("the transaction is of a GORM handle with the plugin, which writes events at the commit: those of Insert would overtake " +
			"what was raised before them: raise them on the aggregate, or use uow.Publish(tx, event)")
	}
	return innermost, nil
}

func isNil(db Execer) bool {
	if db == nil {
		return true
	}
	v := reflect.ValueOf(db)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// hint adds what is to be done about a transaction whose ExecContext passes no parameters on.
func hint(tx Execer, err error) error {
	if strings.HasPrefix(strings.TrimPrefix(fmt.Sprintf("%T", tx), "*"), "bun.") {
		return fmt.Errorf("%w (pass the field Tx of a bun.Tx: its own ExecContext puts parameters into the text)", err)
	}
	return err
}

// appendRows seals one event and routes it.
func (w *Writer) appendRows(rows []Row, event *envelope.Event, source envelope.Source, inherited envelope.Context) ([]Row, error) {
	message, err := w.events.Seal(*event, source, inherited)
	if err == nil {
		rows, err = w.routing.AppendRows(rows, message)
	}
	switch {
	case err != nil && source.Aggregate == "":
		return nil, fmt.Errorf("outbox: write %T: %w", event.Data, err)
	case err != nil:
		return nil, fmt.Errorf("outbox: write %T raised by %s %s: %w", event.Data, shown(source.Aggregate), shown(source.ID), err)
	}
	if field := event.UnsetID(source); field != "" {
		w.unset.Warn(w.log, event, &source, field)
	}
	return rows, nil
}

// shown is a text as an error shows it that may be about its length or characters.
func shown(text string) string {
	const most = 100
	if len(text) <= most && !strings.ContainsFunc(text, unicode.IsControl) {
		return text
	}
	return fmt.Sprintf("%.*q", most, text)
}

// Written is what a transaction has written and may commit. It is safe for concurrent use.
type Written struct {
	writer  *Writer
	wakeUps []wakeup.WakeUp
	told    atomic.Bool
}

// Committed wakes the relays that deliver the events: one in this process that was given the writer
// by fanout.WithWriter, or else, on PostgreSQL where Routing.Notify is set, those of other
// processes, by NOTIFY on the pool, in the background. Call it after the commit. It neither waits
// nor fails; a further call does nothing, and so does one on nil. Without it, or after a
// notification that got lost, relays find the rows by polling. If the transaction has rolled back,
// it costs relays a poll.
//
//nolint:contextcheck,nolintlint // no caller waits for the notification: it is callers that would be reported
func (w *Written) Committed() {
	if w == nil || len(w.wakeUps) == 0 || !w.told.CompareAndSwap(false, true) {
		return
	}
	if !w.writer.listeners.Notify(w.wakeUps) && w.writer.notifier != nil {
		w.writer.notifier.Wake(w.wakeUps)
	}
}
