package monitor

import (
	"context"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// How many messages a page may have.
const (
	DefaultPage = 50
	MaxPage     = 500
)

// scanPage is how many rows are looked at for one page, whether they match or not, so that a rare
// type costs no more than a common one.
const scanPage = 5000

// MessagesQuery asks for one page of messages. Zero fields match everything.
type MessagesQuery struct {
	// Broker whose rows are listed. Default: those of all brokers, one after the other in the order
	// of their names.
	Broker string
	// Statuses that are listed, one after the other in the order of [outbox.Statuses]. Default:
	// all.
	Statuses []outbox.Status
	// Type, Key, ErrorClass, Since and Until are those of [admin.Filter]. Deferred rows are listed
	// in their status like all others.
	Type, Key, ErrorClass string
	Since, Until          time.Time
	// Cursor is the Next of the page before, of a query that was otherwise the same; empty = the
	// first page.
	Cursor string
	// Limit is the most messages on the page. Default: [DefaultPage]; most: [MaxPage].
	Limit int
}

// MessagesPage is one page of messages, within each broker and status newest first.
type MessagesPage struct {
	Records []admin.Record
	// Next is the cursor of the next page; empty = there is none. A page may hold few messages, or
	// none, and have a next one.
	Next string
	// Scanned is how many rows were looked at.
	Scanned int
}

// Messages lists one page.
func (c *Console) Messages(ctx context.Context, database string, query MessagesQuery) (MessagesPage, error) {
	page, err := c.messages(ctx, database, query)
	if err == nil {
		err = c.outages(ctx, database, page.Records)
	}
	return page, err
}

// outages makes rows that are due unavailable where relays say that their broker or their destination
// is: a database does not know of breakers.
func (c *Console) outages(ctx context.Context, database string, records []admin.Record) error {
	due := func(r *admin.Record) bool { return r.State == outbox.StateDue }
	if !slices.ContainsFunc(records, func(r admin.Record) bool { return due(&r) }) {
		return nil
	}
	relays, err := c.Workers(ctx, database)
	if err != nil {
		return err
	}
	out := unavailable(relays, time.Now())
	for i := range records {
		r := &records[i]
		if due(r) && (slices.Contains(out, admin.Unavailable{Broker: r.Broker}) || slices.Contains(out, admin.Unavailable{Broker: r.Broker, Destination: r.Stream})) {
			r.State = outbox.StateUnavailable
		}
	}
	return nil
}

func (c *Console) messages(ctx context.Context, database string, query MessagesQuery) (MessagesPage, error) {
	from, err := query.check()
	if err != nil {
		return MessagesPage{}, err
	}
	brokers, err := c.brokersOf(ctx, database, query.Broker)
	if err != nil {
		return MessagesPage{}, err
	}
	var page MessagesPage
	for _, list := range listsFrom(brokers, query.Statuses, from) {
		if len(page.Records) == query.Limit || page.Scanned >= scanPage {
			page.Next = list.encode()
			return page, nil
		}
		found, err := ask(ctx, c, database, func(ctx context.Context, store admin.Administration) (admin.List, error) {
			limit := query.Limit - len(page.Records)
			return store.List(ctx, admin.ListRequest{
				Broker: list.Broker, Status: list.Status, Type: query.Type, Key: query.Key, ErrorClass: query.ErrorClass,
				Since: query.Since, Until: query.Until, After: list.After, Limit: limit, Scan: max(limit, scanPage-page.Scanned),
			})
		})
		if err != nil {
			return MessagesPage{}, err
		}
		page.Records = append(page.Records, found.Records...)
		page.Scanned += found.Scanned
		if found.Next != (admin.Position{}) {
			page.Next = cursor{Broker: list.Broker, Status: list.Status, After: found.Next}.encode()
			return page, nil
		}
	}
	return page, nil
}

// check fills in the defaults and reads the cursor.
func (q *MessagesQuery) check() (cursor, error) {
	if q.Limit == 0 {
		q.Limit = DefaultPage
	}
	if q.Limit < 1 || q.Limit > MaxPage {
		return cursor{}, refusef("messages: the limit is %d: use 1 to %d", q.Limit, MaxPage)
	}
	filter := admin.Filter{
		Broker: q.Broker, Statuses: q.Statuses, Type: q.Type, Key: q.Key, ErrorClass: q.ErrorClass, Since: q.Since, Until: q.Until,
	}
	filter, err := filter.For("messages", q.Limit, outbox.Statuses()...)
	if err != nil {
		return cursor{}, refusef("%v", err)
	}
	q.Statuses = nil
	for _, status := range outbox.Statuses() { // in their order, each once
		if slices.Contains(filter.Statuses, status) {
			q.Statuses = append(q.Statuses, status)
		}
	}
	if q.Cursor == "" {
		return cursor{}, nil
	}
	from, err := decodeCursor(q.Cursor)
	if err != nil {
		return cursor{}, err
	}
	if q.Broker != "" && from.Broker != q.Broker || !slices.Contains(q.Statuses, from.Status) {
		return cursor{}, refusef("messages: the cursor belongs to another query: begin without a cursor")
	}
	return from, nil
}

// listsFrom are the lists of all brokers and statuses, from where a cursor stands.
func listsFrom(brokers []string, statuses []outbox.Status, from cursor) []cursor {
	var lists []cursor
	for _, broker := range brokers {
		if broker < from.Broker {
			continue
		}
		for _, status := range statuses {
			list := cursor{Broker: broker, Status: status}
			if broker == from.Broker {
				at, here := slices.Index(statuses, from.Status), slices.Index(statuses, status)
				if here < at {
					continue
				}
				if here == at {
					list.After = from.After
				}
			}
			lists = append(lists, list)
		}
	}
	return lists
}
