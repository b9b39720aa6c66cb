package sqladmin

import (
	"cmp"
	"context"
	"encoding/hex"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// A look is one statement of a search.
type look struct {
	by        admin.FindBy
	statement string
	given     args
	broker    string    // empty = all
	before    int64     // the row's id
	message   uuid.UUID // in place of a statement: the message whose rows, and those of its siblings, are looked for
}

// Find implements admin.Administration. Each thing that a term can name is one statement, which reads an index.
// SQL Server does not find the messages of an event by each other's ids.
func (a *Admin) Find(ctx context.Context, request admin.FindRequest) (found admin.Found, err error) {
	request, err = request.WithDefaults()
	if err != nil {
		return found, a.failed(err, "find messages in %s", a.table)
	}
	before, common := pageArgs(&request)
	err = a.withContent(func(suffix string) error {
		return a.read(ctx, Browse, func(ctx context.Context, conn Conn) error {
			s := search{limit: request.Limit, lists: request.Filter != nil}
			for _, look := range looksFor(request) {
				look.broker, look.before = request.Broker, before
				if maps.Copy(look.given, common); s.lists {
					look.statement += inLists
				}
				if err := s.take(ctx, a, conn, look, suffix); err != nil {
					return err
				}
			}
			found = s.page()
			return a.states(ctx, conn, found.Records)
		})
	})
	if err != nil {
		return admin.Found{}, a.failed(err, "find messages by %.100q in %s", request.Term, a.table)
	}
	return found, nil
}

// inLists is added to the name of a statement for a search within lists.
const inLists = " in lists"

// pageArgs are what part_search_page.sql and part_search_lists.sql use, and the id before which rows are looked for.
func pageArgs(request *admin.FindRequest) (before int64, given args) {
	before = beforeID(request.After)
	given = args{"broker": request.Broker, "after_id": before, "limit": int64(request.Limit) + 1}
	if request.Filter == nil {
		return before, given
	}
	maps.Copy(given, matchArgs(request.Filter))
	maps.Copy(given, args{
		"broker": cmp.Or(request.Broker, request.Filter.Broker), "statuses": List{words(request.Filter.Statuses)}, "after_id": int64(math.MaxInt64),
		"after_broker": request.After.Broker, "after_rank": int64(slices.Index(outbox.Statuses(), request.After.Status)), "after": request.After.Time, "after_row": before,
	})
	return before, given
}

// looksFor are the statements of a search.
func looksFor(request admin.FindRequest) (looks []look) {
	term := request.Term
	add := func(by admin.FindBy, given args) *look {
		looks = append(looks, look{by: by, statement: "search_" + string(by), given: given})
		return &looks[len(looks)-1]
	}
	for _, by := range request.By {
		switch by {
		case admin.ByMessage:
			if id, ok := parsedID(term); ok {
				add(by, args{}).message = id
			}
		case admin.ByAggregate:
			add(by, args{"term": Text(term), "aggregate_type": Text("")})
			for _, separator := range []string{"-", " "} { // no type has either
				if kind, id, ok := strings.Cut(term, separator); ok && kind != "" && id != "" {
					add(by, args{"term": Text(id), "aggregate_type": Text(kind)})
				}
			}
		case admin.ByTrace:
			if id, ok := traceID(term); ok {
				add(by, args{"term": id})
			}
		case admin.ByCausation, admin.ByCorrelation:
			add(by, args{"term": Text(term)})
			if id, ok := parsedID(term); ok && id.String() != term {
				add(by, args{"term": id.String()})
			}
		default:
			add(by, args{"term": Text(term)})
		}
	}
	return looks
}

// The forms of an id in hexadecimal digits.
const (
	plainUUID  = 32
	hyphenUUID = 36
)

// parsedID reads an id of a message in either form, in any case.
func parsedID(term string) (uuid.UUID, bool) {
	id, err := uuid.Parse(term)
	return id, err == nil && (len(term) == plainUUID || len(term) == hyphenUUID)
}

// traceID reads a trace id, or that of a W3C traceparent.
func traceID(term string) (string, bool) {
	const parts = 4
	if fields := strings.Split(term, "-"); len(fields) == parts && len(fields[0]) == 2 {
		term = fields[1]
	}
	bytes, err := hex.DecodeString(term)
	return strings.ToLower(term), err == nil && len(bytes) == plainUUID/2
}

// search puts together what statements find.
type search struct {
	limit int
	lists bool // within lists
	found admin.Found
}

// take adds what a look finds. A row that was found already has one reason more.
func (s *search) take(ctx context.Context, a *Admin, conn Conn, l look, suffix string) error {
	rows, err := a.found(ctx, conn, l, suffix)
	if err != nil {
		return err
	}
	for i := range rows {
		same := func(other admin.Record) bool {
			return other.ID == rows[i].ID && other.MessageID == rows[i].MessageID && other.Broker == rows[i].Broker
		}
		at := slices.IndexFunc(s.found.Records, same)
		switch {
		case at < 0:
			s.found.Records, s.found.By = append(s.found.Records, rows[i]), append(s.found.By, []admin.FindBy{l.by})
		case !slices.Contains(s.found.By[at], l.by):
			s.found.By[at] = append(s.found.By[at], l.by)
		}
	}
	return nil
}

// found are the rows of one look, without what is in them.
func (a *Admin) found(ctx context.Context, conn Conn, l look, suffix string) (rows []admin.Record, err error) {
	if l.message != uuid.Nil {
		all, err := a.rowsOf(ctx, conn, suffix, l.message, true, 0)
		for _, r := range all {
			if r.ID < l.before && (l.broker == "" || l.broker == r.Broker) {
				r.Payload, r.Headers = nil, ""
				rows = append(rows, r)
			}
		}
		return rows, err
	}
	err = a.query(ctx, conn, l.statement+suffix, l.given, func(scan scanner) error {
		var r record
		err := scan(r.fields()...)
		rows = append(rows, r.read())
		return err
	})
	return rows, err
}

// page is the newest of what was found.
func (s *search) page() admin.Found {
	order := make([]int, len(s.found.Records))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		one, other := &s.found.Records[i], &s.found.Records[j]
		if !s.lists {
			return cmp.Compare(other.ID, one.ID)
		}
		statuses := outbox.Statuses()
		return cmp.Or(
			cmp.Compare(one.Broker, other.Broker), cmp.Compare(slices.Index(statuses, one.Status), slices.Index(statuses, other.Status)),
			position(other).Time.Compare(position(one).Time), cmp.Compare(other.ID, one.ID),
		)
	})
	var page admin.Found
	for _, i := range order {
		if len(page.Records) == s.limit {
			last := &page.Records[s.limit-1]
			if page.Next = (admin.Position{ID: last.ID}); s.lists {
				page.Next = position(last)
			}
			break
		}
		page.Records, page.By = append(page.Records, s.found.Records[i]), append(page.By, s.found.By[i])
	}
	return page
}

// position is the place of a row within lists.
func position(r *admin.Record) admin.Position {
	at := admin.Position{ID: r.ID, Broker: r.Broker, Status: r.Status}
	switch r.Status {
	case outbox.StatusPublished:
		at.Time = r.PublishedAt
	case outbox.StatusAbandoned:
		at.Time = r.FinishedAt
	default: // rows that are not finished are ordered by their ids
	}
	return at
}
