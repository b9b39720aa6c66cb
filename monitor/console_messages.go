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

// scanPage is how many rows are looked at for one page, whether they match or not, before the index
// of searches is asked.
const scanPage = 5000

// MessagesQuery asks for one page of messages.
type MessagesQuery struct {
	// Filter says which: by Broker (default: all brokers, one after the other in the order of their
	// names), Statuses (default: all, one after the other in the order of [outbox.Statuses]), and what
	// [admin.ListRequest] has of a filter. Deferred rows are listed in their status like all others.
	Filter admin.Filter
	// Trace is the id of a trace, or a W3C traceparent. Default: any.
	Trace string
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
	// none, and have a next one, where the query names no trace, correlation id, ordering key,
	// aggregate, tenant or whole type, by which rows are found at once; or where that took too long.
	Next string
	// Reached is the place of Next; zero = the end.
	Reached admin.Position
	// Scanned is how many rows were looked at. Rows that the index of searches rules out do not count.
	Scanned int
}

// end ends a page where it goes on at a place.
func (p *MessagesPage) end(at cursor) MessagesPage {
	p.Next, p.Reached = at.encode(), at.position()
	return *p
}

// Messages lists one page. First rows are looked at in the order of the list, so that a page of what
// is common costs little. What has not filled a page after 5,000 rows is rare, and is searched for by index.
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
	brokers, err := c.brokersOf(ctx, database, query.Filter.Broker)
	if err != nil {
		return MessagesPage{}, err
	}
	var page MessagesPage
	term, by := query.term()
	if from.Walks && by != admin.ByTrace { // which a walk does not see
		by = ""
	}
	for _, list := range listsFrom(brokers, query.Filter.Statuses, from) {
		if len(page.Records) == query.Limit {
			return page.end(list), nil
		}
		if by == admin.ByTrace || by != "" && page.Scanned >= scanPage {
			return c.searched(ctx, database, &query, term, by, list, page)
		}
		if page.Scanned >= scanPage {
			return page.end(list), nil
		}
		found, err := ask(ctx, c, database, func(ctx context.Context, store admin.Administration) (admin.List, error) {
			limit := query.Limit - len(page.Records)
			return store.List(ctx, admin.ListRequest{
				Broker: list.Broker, Status: list.Status, Filter: query.Filter, After: list.After, Limit: limit, Scan: max(limit, scanPage-page.Scanned),
			})
		})
		if err != nil {
			return MessagesPage{}, err
		}
		page.Records = append(page.Records, found.Records...)
		page.Scanned += found.Scanned
		if found.Next == (admin.Position{}) {
			continue
		}
		list.After = found.Next
		if len(page.Records) < query.Limit && by != "" {
			return c.searched(ctx, database, &query, term, by, list, page)
		}
		return page.end(list), nil
	}
	return page, nil
}

// searched adds what the index of searches finds from a place on. The search reads all rows of its term,
// which may be most of the table, and takes too long then: there the page ends where it was, and the list goes on row by row.
func (c *Console) searched(ctx context.Context, database string, query *MessagesQuery, term string, by admin.FindBy, from cursor, page MessagesPage) (MessagesPage, error) {
	found, err := ask(ctx, c, database, func(ctx context.Context, store admin.Administration) (admin.Found, error) {
		return store.Find(ctx, admin.FindRequest{
			Term: term, By: []admin.FindBy{by}, Filter: &query.Filter, After: from.position(), Limit: query.Limit - len(page.Records),
		})
	})
	switch {
	case err != nil && ctx.Err() == nil && by != admin.ByTrace:
		from.Walks = true
		return page.end(from), nil
	case err != nil:
		return MessagesPage{}, err
	}
	page.Records = append(page.Records, found.Records...)
	page.Scanned += len(found.Records)
	if next := found.Next; next != (admin.Position{}) {
		return page.end(cursor{Broker: next.Broker, Status: next.Status, After: admin.Position{Time: next.Time, ID: next.ID}}), nil
	}
	return page, nil
}

// term is what a query names that most likely has the fewest rows, of what is indexed. by is empty where there is none.
func (q *MessagesQuery) term() (term string, by admin.FindBy) {
	exact, _ := q.Filter.TypePattern()
	for _, named := range []struct {
		term string
		by   admin.FindBy
	}{
		{q.Trace, admin.ByTrace},
		{q.Filter.Correlation, admin.ByCorrelation},
		{q.Filter.Key, admin.ByKey},
		{q.Filter.Aggregate, admin.ByAggregate},
		{q.Filter.Tenant, admin.ByTenant},
		{exact, admin.ByType},
	} {
		if named.term != "" {
			return named.term, named.by
		}
	}
	return "", ""
}

// check fills in the defaults and reads the cursor.
func (q *MessagesQuery) check() (cursor, error) {
	if q.Limit == 0 {
		q.Limit = DefaultPage
	}
	if q.Limit < 1 || q.Limit > MaxPage {
		return cursor{}, refusef("messages: the limit is %d: use 1 to %d", q.Limit, MaxPage)
	}
	filter, err := q.Filter.For("messages", q.Limit, outbox.Statuses()...)
	if err != nil {
		return cursor{}, refusef("%v", err)
	}
	if term, by := q.term(); by != "" {
		if _, err := (admin.FindRequest{Term: term, By: []admin.FindBy{by}, Limit: q.Limit}).WithDefaults(); err != nil {
			return cursor{}, refusef("messages: %s: %v", by, err)
		}
	}
	q.Filter.Statuses = nil
	for _, status := range outbox.Statuses() { // in their order, each once
		if slices.Contains(filter.Statuses, status) {
			q.Filter.Statuses = append(q.Filter.Statuses, status)
		}
	}
	if q.Cursor == "" {
		return cursor{}, nil
	}
	from, err := decodeCursor(q.Cursor)
	if err != nil {
		return cursor{}, err
	}
	if q.Filter.Broker != "" && from.Broker != q.Filter.Broker || !slices.Contains(q.Filter.Statuses, from.Status) {
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
			list := cursor{Broker: broker, Status: status, Walks: from.Walks}
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
