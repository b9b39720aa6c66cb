package monitor

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

const (
	// maxFailures is how many rows of one broker are looked at to group its failures.
	maxFailures = 10_000
	// failuresPage is how many rows are read at a time.
	failuresPage = 500
	// maxSample is how many message ids stand for a group.
	maxSample = 5
)

// FailureGroups are failures that have the same cause, as far as their errors tell; the largest
// group first.
type FailureGroups struct {
	Groups []FailureGroup
	// Scanned is how many rows were looked at, and More is true when there are others: the counts
	// are those of the newest rows then.
	Scanned int
	More    bool
}

// A FailureGroup holds the failed and abandoned rows of one broker whose errors have the same
// [Fingerprint].
type FailureGroup struct {
	Fingerprint string `json:"fingerprint"`
	Broker      string `json:"broker"`
	// Class and Message of the newest error.
	Class   string `json:"class"`
	Message string `json:"message"`
	// Count of the rows, ByStatus and by Types.
	Count    int                   `json:"count"`
	ByStatus map[outbox.Status]int `json:"by_status"`
	Types    map[string]int        `json:"types"`
	// FirstAt and LastAt are the times of the first and the last error.
	FirstAt time.Time `json:"first_at,omitzero"`
	LastAt  time.Time `json:"last_at,omitzero"`
	// Sample holds up to five message ids.
	Sample []string `json:"sample"`
	// Keys is how many ordering keys are affected.
	Keys int `json:"keys"`
}

// failureStatuses are those whose rows carry an error that matters.
var failureStatuses = []outbox.Status{outbox.StatusFailed, outbox.StatusAbandoned}

// Failures groups what has failed and what was abandoned, of all brokers where broker is empty. Of
// each broker the newest 10,000 rows are looked at.
func (c *Console) Failures(ctx context.Context, database, broker string) (FailureGroups, error) {
	if err := checkText("broker", broker); err != nil {
		return FailureGroups{}, err
	}
	brokers, err := c.brokersOf(ctx, database, broker)
	if err != nil {
		return FailureGroups{}, err
	}
	var result FailureGroups
	for _, name := range brokers {
		groups, prints := newGrouping(name), newPrints(name)
		left := maxFailures
		for _, status := range failureStatuses {
			request := admin.ListRequest{Broker: name, Status: status}
			more, err := c.walk(ctx, database, request, left, func(r *admin.Record) { groups.add(r, prints.of(r)) })
			if err != nil {
				return FailureGroups{}, err
			}
			left = maxFailures - groups.seen
			result.More = result.More || more
		}
		result.Scanned += groups.seen
		result.Groups = append(result.Groups, groups.list()...)
	}
	slices.SortFunc(result.Groups, func(a, b FailureGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), b.LastAt.Compare(a.LastAt), strings.Compare(a.Fingerprint, b.Fingerprint))
	})
	return result, nil
}

// walk looks at no more than the given number of rows of a list, page by page. more is true when
// there are others.
func (c *Console) walk(ctx context.Context, database string, request admin.ListRequest, rows int, visit func(*admin.Record)) (more bool, err error) {
	for rows > 0 {
		request.Limit = min(failuresPage, rows)
		request.Scan = max(request.Limit, scanPage)
		page, err := ask(ctx, c, database, func(ctx context.Context, store admin.Administration) (admin.List, error) {
			return store.List(ctx, request)
		})
		if err != nil {
			return false, err
		}
		for i := range page.Records {
			visit(&page.Records[i])
		}
		rows -= len(page.Records)
		if page.Next == (admin.Position{}) {
			return false, nil
		}
		request.After = page.Next
	}
	return c.any(ctx, database, request)
}

// any tells whether a list goes on.
func (c *Console) any(ctx context.Context, database string, request admin.ListRequest) (bool, error) {
	request.Limit, request.Scan = 1, scanPage
	page, err := ask(ctx, c, database, func(ctx context.Context, store admin.Administration) (admin.List, error) {
		return store.List(ctx, request)
	})
	return len(page.Records) > 0 || page.Next != (admin.Position{}), err
}

// prints knows the fingerprints of the messages that came by: most of them come many times.
type prints struct {
	broker string
	known  map[outbox.LastError]string
}

func newPrints(broker string) *prints {
	return &prints{broker: broker, known: map[outbox.LastError]string{}}
}

func (p *prints) of(r *admin.Record) string {
	var what outbox.LastError // without when, and at which attempt
	if r.LastError != nil {
		what.Class, what.Message = r.LastError.Class, r.LastError.Message
	}
	text, ok := p.known[what]
	if !ok {
		text = Fingerprint(p.broker, &what)
		if len(p.known) < maxFailures {
			p.known[what] = text
		}
	}
	return text
}

// grouping gathers the groups of one broker.
type grouping struct {
	broker string
	groups map[string]*FailureGroup
	keys   map[string]map[string]bool
	seen   int
}

func newGrouping(broker string) *grouping {
	return &grouping{broker: broker, groups: map[string]*FailureGroup{}, keys: map[string]map[string]bool{}}
}

func (g *grouping) add(r *admin.Record, fingerprint string) {
	g.seen++
	group := g.groups[fingerprint]
	if group == nil {
		group = &FailureGroup{Fingerprint: fingerprint, Broker: g.broker, ByStatus: map[outbox.Status]int{}, Types: map[string]int{}}
		g.groups[fingerprint], g.keys[fingerprint] = group, map[string]bool{}
	}
	group.Count++
	group.ByStatus[r.Status]++
	group.Types[r.Type]++
	if r.OrderingKey != "" {
		g.keys[fingerprint][r.OrderingKey] = true
	}
	if len(group.Sample) < maxSample {
		group.Sample = append(group.Sample, r.MessageID)
	}
	if e := r.LastError; e != nil {
		at := e.At.UTC()
		if group.Class == "" && group.Message == "" || at.After(group.LastAt) {
			group.Class, group.Message, group.LastAt = e.Class, e.Message, at
		}
		if group.FirstAt.IsZero() || at.Before(group.FirstAt) {
			group.FirstAt = at
		}
	}
}

func (g *grouping) list() []FailureGroup {
	groups := make([]FailureGroup, 0, len(g.groups))
	for fingerprint, group := range g.groups {
		group.Keys = len(g.keys[fingerprint])
		groups = append(groups, *group)
	}
	return groups
}
