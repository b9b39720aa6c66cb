// Package monitor is for the people who run an outbox: where every broker stands, what has failed
// and why, and what to do about it. Its Console is what the command line and the HTTP interface
// share.
package monitor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/cleanup"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// A Console looks at the tables of some databases and repairs them by hand. Every action leaves an
// entry in the audit table of the database that it changes. A console is safe for concurrent use.
type Console struct {
	fixed   map[string]admin.Administration
	more    func() map[string]admin.Administration // those that come and go; nil: none
	brokers []string
	timeout time.Duration

	consumers map[string]Consumer
	habits    habits                                // of them
	retention func(broker string) cleanup.Retention // nil: not known
	notKept   []string                              // brokers whose rows go as they are delivered
}

// An Option refines [NewConsole].
type Option func(*Console)

// WithBrokers names the brokers of the configuration. They have a status though they may have no
// rows, and nothing else can be paused. A broker beyond them whose rows are in a table is marked as
// unknown: no processor delivers its rows. Default: all that the tables have are known.
func WithBrokers(names ...string) Option {
	return func(c *Console) { c.brokers = append(c.brokers, names...) }
}

// WithTimeout bounds how long one database may take to answer one question. It does not bound an
// action as a whole. Default 10 s.
func WithTimeout(d time.Duration) Option {
	return func(c *Console) { c.timeout = d }
}

const defaultTimeout = 10 * time.Second

// NewConsole makes a console of stores by the name of their database.
func NewConsole(stores map[string]admin.Administration, opts ...Option) *Console {
	c := &Console{fixed: maps.Clone(stores), timeout: defaultTimeout}
	for _, opt := range opts {
		opt(c)
	}
	return c
}

// WithMore adds databases that come and go, by their names: those that are there when a question is
// asked. Of two with one name, it is the other that counts. Default: none.
func WithMore(stores func() map[string]admin.Administration) Option {
	return func(c *Console) { c.more = stores }
}

// stores are all databases of this moment.
func (c *Console) stores() map[string]admin.Administration {
	if c.more == nil {
		return c.fixed
	}
	all := c.more()
	if all == nil {
		return c.fixed
	}
	maps.Copy(all, c.fixed)
	return all
}

// Databases lists the names of the databases, sorted.
func (c *Console) Databases() []string { return slices.Sorted(maps.Keys(c.stores())) }

// Brokers lists those given by [WithBrokers].
func (c *Console) Brokers() []string { return slices.Clone(c.brokers) }

// A RefusedError says that a request makes no sense, and what would.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return "monitor: " + e.Reason }

func refusef(format string, args ...any) error {
	return &RefusedError{Reason: fmt.Sprintf(format, args...)}
}

// A NotFoundError says that there is no such database.
type NotFoundError struct{ Reason string }

func (e *NotFoundError) Error() string { return "monitor: " + e.Reason }

func (c *Console) store(database string) (admin.Administration, error) {
	store, ok := c.stores()[database]
	if !ok {
		asleep := ""
		if c.more != nil {
			asleep = fmt.Sprintf("; a tenant that is asleep is not shown here: \"fanout trace TERM --database %s\" asks it", database)
		}
		return nil, &NotFoundError{Reason: fmt.Sprintf("there is no database %q: there are %q%s", database, c.Databases(), asleep)}
	}
	return store, nil
}

// ask puts one question to one database, within the time that an answer may take.
func ask[T any](ctx context.Context, c *Console, database string, question func(context.Context, admin.Administration) (T, error)) (answer T, err error) {
	store, err := c.store(database)
	if err != nil {
		return answer, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if answer, err = question(ctx, store); err != nil {
		return answer, fmt.Errorf("monitor: database %q: %w", database, err)
	}
	return answer, nil
}

// Message returns the rows of one message, one for each broker, with payload and headers; none
// where there is no such message. The error is a [*RefusedError] where id is no UUID.
func (c *Console) Message(ctx context.Context, database, id string) ([]admin.Record, error) {
	if err := checkMessage(id); err != nil {
		return nil, err
	}
	return c.rowsOf(ctx, database, func(ctx context.Context, store admin.Administration) ([]admin.Record, error) {
		return store.Message(ctx, id)
	})
}

// rowsOf asks for rows, and marks those that are unavailable.
func (c *Console) rowsOf(ctx context.Context, database string, of func(context.Context, admin.Administration) ([]admin.Record, error)) ([]admin.Record, error) {
	records, err := ask(ctx, c, database, of)
	if err == nil {
		err = c.outages(ctx, database, records)
	}
	return records, err
}

// maxStranded is how many deferred rows of a broker [Console.Stranded] looks at.
const maxStranded = 20_000

// Stranded lists open rows that no rule can ever make due, of all brokers: see
// [outbox.StateStranded]. Of each broker 20,000 deferred rows are looked at; more is true where there
// are others.
func (c *Console) Stranded(ctx context.Context, database string) (rows []admin.Record, more bool, err error) {
	brokers, err := c.brokersOf(ctx, database, "")
	if err != nil {
		return nil, false, err
	}
	for _, broker := range brokers {
		var after admin.Position
		for looked := 0; ; {
			page, err := ask(ctx, c, database, func(ctx context.Context, store admin.Administration) (admin.List, error) {
				return store.Stranded(ctx, broker, after, scanPage)
			})
			if err != nil {
				return nil, false, err
			}
			rows = append(rows, page.Records...)
			looked += page.Scanned
			if after = page.Next; after == (admin.Position{}) {
				break
			}
			if looked >= maxStranded {
				more = true
				break
			}
		}
	}
	return rows, more, nil
}

// Event returns the rows of the event that a message is of, with payload and headers: those of [Console.Message], and
// those under other ids, as [admin.Administration] has it.
func (c *Console) Event(ctx context.Context, database, id string) ([]admin.Record, error) {
	if err := checkMessage(id); err != nil {
		return nil, err
	}
	return c.rowsOf(ctx, database, func(ctx context.Context, store admin.Administration) ([]admin.Record, error) {
		return store.Event(ctx, id)
	})
}

func checkMessage(id string) error {
	if err := checkText("message id", id); err != nil {
		return err
	}
	if _, err := (admin.Filter{MessageIDs: []string{id}}).For("message", 1); err != nil {
		return refusef("%v", err)
	}
	return nil
}

// actionReveal is what the audit calls a look at payload and headers.
const actionReveal = "reveal"

// Reveal is [Console.Event] for an operator who wants to see payload and headers, which may hold
// what not every user may see: it leaves an entry in the audit, with the message's id and the
// number of rows that were shown, and shows nothing where that cannot be written.
func (c *Console) Reveal(ctx context.Context, actor Actor, database, id string) (records []admin.Record, err error) {
	if err := errors.Join(checkMessage(id), checkText("actor", actor.Name)); err != nil {
		return nil, err
	}
	look := Action{Filter: admin.Filter{MessageIDs: []string{id}}}
	entry := admin.AuditEntry{Actor: actor.Name, Via: actor.Via, Action: actionReveal, Filter: look.record()}
	err = c.Record(ctx, database, entry, func(int64) (int64, error) {
		var err error
		records, err = c.Event(ctx, database, id)
		return int64(len(records)), err
	})
	if err != nil {
		return nil, err
	}
	return records, nil
}

// Workers lists the processes that run a relay on a database, oldest first.
func (c *Console) Workers(ctx context.Context, database string) ([]admin.Instance, error) {
	return ask(ctx, c, database, func(ctx context.Context, store admin.Administration) ([]admin.Instance, error) {
		return store.Instances(ctx)
	})
}

// Audit lists what operators have done, newest first: those entries before an id (0 = from the
// newest), up to limit, which must be at least 1.
func (c *Console) Audit(ctx context.Context, database string, before int64, limit int) ([]admin.AuditEntry, error) {
	if limit < 1 || before < 0 {
		return nil, refusef("audit: limit is %d and before is %d: use a limit of at least 1, and no negative id", limit, before)
	}
	return ask(ctx, c, database, func(ctx context.Context, store admin.Administration) ([]admin.AuditEntry, error) {
		return store.Audit(ctx, before, limit)
	})
}

// brokersOf is the broker itself, or where it is empty all that have rows in the database, sorted.
func (c *Console) brokersOf(ctx context.Context, database, broker string) ([]string, error) {
	if broker != "" {
		return []string{broker}, nil
	}
	return ask(ctx, c, database, func(ctx context.Context, store admin.Administration) ([]string, error) {
		overview, err := store.Overview(ctx, 1)
		names := make([]string, len(overview))
		for i := range overview {
			names[i] = overview[i].Broker
		}
		slices.Sort(names)
		return names, err
	})
}
