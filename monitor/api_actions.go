package monitor

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// actionRequest is what POST actions takes.
type actionRequest struct {
	Action      string          `json:"action"`
	Broker      string          `json:"broker"`
	Status      []outbox.Status `json:"status"`
	Type        string          `json:"type"`
	Key         string          `json:"key"`
	KeyPrefix   string          `json:"key_prefix"`
	Aggregate   string          `json:"aggregate"`
	Correlation string          `json:"correlation"`
	Tenant      string          `json:"tenant"`
	MessageIDs  []string        `json:"message_ids"`
	ErrorClass  string          `json:"error_class"`
	Fingerprint string          `json:"fingerprint"`
	Since       string          `json:"since"`
	Until       string          `json:"until"`
	Reason      string          `json:"reason"`
	Limit       int             `json:"limit"`
	DryRun      bool            `json:"dry_run"`
	// For requeue: a new time to live.
	TTLSeconds float64 `json:"ttl_seconds"`
	// For purge: how long ago rows must have been finished.
	PublishedBeforeSeconds float64 `json:"published_before_seconds"`
	AbandonedBeforeSeconds float64 `json:"abandoned_before_seconds"`
}

// maxAge bounds a number of seconds, which might not fit a duration.
const maxAge = 100 * 365 * 24 * time.Hour

// action turns the body into what the console does.
func (b *actionRequest) action(database string) (Action, error) {
	since, sinceErr := moment("since", b.Since)
	until, untilErr := moment("until", b.Until)
	action := Action{
		guarded: true,
		Verb:    b.Action, Database: database, Fingerprint: b.Fingerprint, Reason: b.Reason, Limit: b.Limit, DryRun: b.DryRun,
		Filter: admin.Filter{
			Broker: b.Broker, Statuses: b.Status, Type: b.Type, Key: b.Key, KeyPrefix: b.KeyPrefix, Aggregate: b.Aggregate,
			Correlation: b.Correlation, Tenant: b.Tenant, MessageIDs: b.MessageIDs, ErrorClass: b.ErrorClass, Since: since, Until: until,
		},
	}
	if b.Action == VerbUnblock && b.Key != "" {
		action.Key, action.Filter.Key = b.Key, ""
	}
	for _, age := range []struct {
		name    string
		seconds float64
		into    *time.Duration
	}{
		{"published_before_seconds", b.PublishedBeforeSeconds, &action.PublishedBefore},
		{"abandoned_before_seconds", b.AbandonedBeforeSeconds, &action.AbandonedBefore},
		{"ttl_seconds", b.TTLSeconds, &action.TTL},
	} {
		if age.seconds < 0 || age.seconds > maxAge.Seconds() {
			return Action{}, refusef("%s is %g: use a positive number of seconds, at most a hundred years", age.name, age.seconds)
		}
		*age.into = time.Duration(age.seconds * float64(time.Second))
	}
	return action, errors.Join(sinceErr, untilErr)
}

type resultAnswer struct {
	Matched int64 `json:"matched"`
	More    bool  `json:"more"`
	Refused int64 `json:"refused"`
	Changed int64 `json:"changed"`
	AuditID int64 `json:"audit_id"`
	// Left is never nil.
	Left     map[string]int64 `json:"left"`
	LeftMore bool             `json:"left_more"`
}

func newResultAnswer(r *Result) resultAnswer {
	left := r.Left
	if left == nil {
		left = map[string]int64{}
	}
	return resultAnswer{Matched: r.Matched.N, More: r.Matched.More, Refused: r.Refused, Changed: r.Changed, AuditID: r.AuditID, Left: left, LeftMore: r.LeftMore}
}

type progressAnswer struct {
	Matched int64 `json:"matched"`
	More    bool  `json:"more"`
	Done    int64 `json:"done"`
}

// lastLine ends a stream of progress. Problem is there when the action failed; what was changed
// before stays changed.
type lastLine struct {
	Result  resultAnswer `json:"result"`
	Problem *problem     `json:"problem,omitempty"`
}

const ndjson = "application/x-ndjson"

func (h *Handler) postAction(w http.ResponseWriter, q *request) error {
	var body actionRequest
	if err := q.decode(&body); err != nil {
		return err
	}
	action, err := body.action(q.values["db"])
	if err != nil {
		return err
	}
	var stream *lines
	if strings.Contains(q.Header.Get("Accept"), ndjson) {
		stream = &lines{w: w, control: http.NewResponseController(w)}
		action.Progress = func(p Progress) {
			stream.write(progressAnswer{Matched: p.Matched.N, More: p.Matched.More, Done: p.Done})
		}
	}
	// A server's own time for an answer is meant for those that are short.
	_ = http.NewResponseController(w).SetWriteDeadline(h.now().Add(actionTime)) // not every writer has one

	result, err := h.do(q, action)
	if stream == nil {
		if err != nil {
			return h.partly(err, result)
		}
		return answer(w, newResultAnswer(&result))
	}
	if err != nil && !stream.begun && result.AuditID == 0 {
		return err
	}
	last := lastLine{Result: newResultAnswer(&result)}
	if err != nil {
		last.Problem = problemOf(h.partly(err, result))
		h.log.WarnContext(q.Context(), "action failed", "action", action.Verb, "database", action.Database, "error", last.Problem.Detail)
	}
	stream.write(last)
	return nil
}

// do does it in one database, which it names.
func (h *Handler) do(q *request, action Action) (Result, error) {
	results, err := h.console.Do(q.Context(), Actor{Name: q.identity.Name, Via: "http"}, action)
	h.failures.forget()
	if len(results) == 0 {
		return Result{}, err
	}
	return results[0], err
}

// partly says in an error what was done before it.
func (h *Handler) partly(err error, result Result) error {
	if result.Changed == 0 {
		return err
	}
	p := problemOf(err)
	p.Detail = fmt.Sprintf("%s (%d rows were changed before that, and stay changed; audit entry %d)", p.Detail, result.Changed, result.AuditID)
	return p
}

// lines are JSON objects that are sent as they come.
type lines struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
}

func (l *lines) write(value any) {
	if !l.begun {
		l.w.Header().Set("Content-Type", ndjson)
		l.w.Header().Set("X-Accel-Buffering", "no") // a proxy must not wait for more
		l.w.WriteHeader(http.StatusOK)
		l.begun = true
	}
	text, err := json.Marshal(value)
	if err != nil { // numbers and texts always encode
		return
	}
	_, _ = l.w.Write(append(text, '\n')) // a client that has gone ends the request's context
	_ = l.control.Flush()
}

type reasonBody struct {
	Reason string `json:"reason"`
}

type changedAnswer struct {
	Changed bool `json:"changed"`
}

func (h *Handler) postPause(w http.ResponseWriter, q *request) error {
	return h.toggle(w, q, VerbPause)
}

func (h *Handler) postResume(w http.ResponseWriter, q *request) error {
	return h.toggle(w, q, VerbResume)
}

func (h *Handler) toggle(w http.ResponseWriter, q *request, verb string) error {
	var body reasonBody
	if err := q.decode(&body); err != nil {
		return err
	}
	result, err := h.do(q, Action{Verb: verb, Database: q.values["db"], Filter: admin.Filter{Broker: q.values["broker"]}, Reason: body.Reason})
	if err != nil {
		return err
	}
	return answer(w, changedAnswer{Changed: result.Changed > 0})
}
