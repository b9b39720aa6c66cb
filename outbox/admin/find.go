package admin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gorm-fanout/fanout/outbox"
)

// A FindBy is what a search term names.
type FindBy string

// What a search term can name. Those up to ByTrace lead to single messages, the others give lists.
const (
	ByMessage     FindBy = "message"     // its id, or that of the event that it tells to partners
	ByKey         FindBy = "key"         // its ordering key, with its context or without: ordering::order-42, order-42
	ByAggregate   FindBy = "aggregate"   // the aggregate's id, with its type or without: order-42, 42
	ByCorrelation FindBy = "correlation" // its correlation id
	ByCausation   FindBy = "causation"   // the id of what caused it
	ByTrace       FindBy = "trace"       // the trace id, of 32 hexadecimal digits, or a whole traceparent
	ByTenant      FindBy = "tenant"      // the tenant's id
	ByType        FindBy = "type"        // the type on the wire
)

// FindBys lists them all.
func FindBys() []FindBy {
	return []FindBy{ByMessage, ByKey, ByAggregate, ByCorrelation, ByCausation, ByTrace, ByTenant, ByType}
}

// MaxTermBytes bounds a search term.
const MaxTermBytes = 512

// A FindRequest asks for one page of the rows that a term names.
type FindRequest struct {
	// Term is compared with the whole value, in its case; ids of messages and traces in any.
	Term string
	// By is what the term may name. Default: all but ByTenant and ByType.
	By []FindBy
	// Broker limits the search to one broker's rows. Default: all.
	Broker string
	// Filter makes it a search within lists: of the rows that the term names those that the filter
	// selects, by its Broker, Statuses and what [ListRequest.Filter] has, in the order of lists: by
	// broker, by status in the order of [outbox.Statuses], and then as [Administration] lists them.
	// Default: all rows, newest first by the time at which they were written.
	Filter *Filter
	// After is where the page before ended; zero = the first page. Within lists it has Broker and
	// Status.
	After Position
	// Limit is the most rows to return, at least 1.
	Limit int
}

// Found is one page of a search, in the order of the request.
type Found struct {
	Records []Record
	// By says for each record what of it the term names.
	By [][]FindBy
	// Next is where the next page begins; zero = there is none.
	Next Position
}

// WithDefaults fills in what the term may name, and says what is wrong with the request.
func (r FindRequest) WithDefaults() (FindRequest, error) {
	if len(r.By) == 0 {
		r.By = FindBys()[:6]
	}
	var problems []error
	for _, by := range r.By {
		if !slices.Contains(FindBys(), by) {
			problems = append(problems, fmt.Errorf("search: %q is nothing that a term can name: use %s", by, names()))
		}
	}
	switch {
	case r.Term == "":
		problems = append(problems, errors.New("search: there is no term: give an id, or an ordering key"))
	case len(r.Term) > MaxTermBytes:
		problems = append(problems, fmt.Errorf("search: the term has %d bytes, and no value has more than %d", len(r.Term), MaxTermBytes))
	case !utf8.ValidString(r.Term) || strings.ContainsRune(r.Term, 0):
		problems = append(problems, errors.New("search: the term is not valid UTF-8 without NUL, as all values are"))
	}
	if r.Filter != nil {
		filter, err := r.Filter.For("search", max(r.Limit, 1), outbox.Statuses()...)
		r.Filter, problems = &filter, append(problems, err)
		if slices.Contains(r.By, ByMessage) {
			problems = append(problems, errors.New("search: the rows of a message are no list: read them by its id"))
		}
	}
	if r.Limit < 1 {
		problems = append(problems, fmt.Errorf("search: the limit is %d: use at least 1", r.Limit))
	}
	return r, errors.Join(problems...)
}

func names() string {
	all := make([]string, 0, len(FindBys()))
	for _, by := range FindBys() {
		all = append(all, string(by))
	}
	return strings.Join(all, ", ")
}
