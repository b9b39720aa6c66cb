package monitor

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/internal/strictjson"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// maxQuery bounds the part of an address after "?".
const maxQuery = 16 << 10

// checkParams refuses a query that the route does not know: a typing error must not look like a
// filter.
func (q *request) checkParams() error {
	if slices.Contains(q.route.params, "*") {
		return nil
	}
	if len(q.URL.RawQuery) > maxQuery {
		return problemf(http.StatusRequestURITooLong, "the query is longer than %d bytes", maxQuery)
	}
	values, err := url.ParseQuery(q.URL.RawQuery)
	if err != nil {
		return problemf(http.StatusBadRequest, "the query cannot be read")
	}
	for name, given := range values {
		if !slices.Contains(q.route.params, name) {
			if len(q.route.params) == 0 {
				return problemf(http.StatusBadRequest, "there is no parameter %q: this address takes none", name)
			}
			return problemf(http.StatusBadRequest, "there is no parameter %q: use %s", name, strings.Join(q.route.params, ", "))
		}
		if len(given) > 1 && name != "status" {
			return problemf(http.StatusBadRequest, "the parameter %q is given %d times", name, len(given))
		}
		for _, text := range given {
			if err := checkText("parameter "+name, text); err != nil {
				return err
			}
		}
	}
	return nil
}

func (q *request) text(name string) string { return q.URL.Query().Get(name) }

// number reads a whole number from least to most; fallback where there is none.
func (q *request) number(name string, fallback, least, most int64) (int64, error) {
	text := q.text(name)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, refusef("%s is %q: use a whole number from %d to %d", name, text, least, most)
	}
	return n, nil
}

// moment reads a time.
func moment(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, refusef("%s is %q: use a time as in 2006-01-02T15:04:05Z", name, text)
	}
	if at.Year() < 1 || at.Year() > 9999 {
		return time.Time{}, refusef("%s is %q: use a year from 1 to 9999", name, text)
	}
	return at.UTC(), nil
}

// statuses reads a list: the parameter may be repeated, and hold several with commas between them.
func (q *request) statuses() []outbox.Status {
	var list []outbox.Status
	for _, given := range q.URL.Query()["status"] {
		for name := range strings.SplitSeq(given, ",") {
			if name = strings.TrimSpace(name); name != "" {
				list = append(list, outbox.Status(name))
			}
		}
	}
	return list
}

// messagesQuery reads what a list of messages is asked for.
func (q *request) messagesQuery() (MessagesQuery, error) {
	limit, limitErr := q.number("limit", DefaultPage, 1, MaxPage)
	since, sinceErr := moment("since", q.text("since"))
	until, untilErr := moment("until", q.text("until"))
	return MessagesQuery{
		Filter: admin.Filter{
			Broker: q.text("broker"), Statuses: q.statuses(), Type: q.text("type"), Key: q.text("key"), Aggregate: q.text("aggregate"),
			Correlation: q.text("correlation"), Tenant: q.text("tenant"), ErrorClass: q.text("error_class"), Since: since, Until: until,
		},
		Trace: q.text("trace"), Cursor: q.text("cursor"), Limit: int(limit),
	}, errors.Join(limitErr, sinceErr, untilErr)
}

// decode reads the body, which is one JSON object with no key that is not known, and none twice.
func (q *request) decode(into any) error { return decodeBody(q.Body, into) }

func decodeBody(body io.Reader, into any) error {
	text, err := io.ReadAll(body) // the route bounds it
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return err
		}
		return problemf(http.StatusBadRequest, "the body cannot be read to its end")
	}
	if string(bytes.TrimSpace(text)) == "null" {
		err = errors.New("it is null")
	} else {
		err = strictjson.UnmarshalKnown(text, into)
	}
	if err == nil {
		return nil
	}
	return problemf(http.StatusBadRequest, "the body is not the JSON object that is wanted: %s", strings.TrimPrefix(err.Error(), "json: "))
}
