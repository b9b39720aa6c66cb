package monitor

import (
	"math"
	"net/http"
	"slices"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

type messagesAnswer struct {
	Messages []api.Record `json:"messages"`
	Next     string       `json:"next"`
	Scanned  int          `json:"scanned"`
}

func (h *Handler) getMessages(w http.ResponseWriter, q *request) error {
	query, err := q.messagesQuery()
	if err != nil {
		return err
	}
	page, err := h.console.Messages(q.Context(), q.values["db"], query)
	if err != nil {
		return err
	}
	result := messagesAnswer{Messages: make([]api.Record, len(page.Records)), Next: page.Next, Scanned: page.Scanned}
	stats := h.stats()
	for i := range page.Records {
		result.Messages[i] = record(q.values["db"], &page.Records[i], stats)
	}
	return answer(w, result)
}

// record is a row, of which a database does not know that its broker or its destination is unavailable.
// A relay in this process does.
func record(database string, r *admin.Record, stats map[series]*relay.Stats) api.Record {
	answer := api.NewRecord("", r)
	if r.State == outbox.StateDue && isUnavailable(stats[series{database, r.Broker}], r.Stream) {
		answer.State = outbox.StateUnavailable
	}
	return answer
}

// isUnavailable reports what a relay of this process knows of a broker, or of a destination there.
func isUnavailable(s *relay.Stats, destination string) bool {
	return s != nil && (s.Breaker == relay.BreakerOpen || slices.Contains(s.UnavailableDestinations, destination))
}

type rowsAnswer struct {
	MessageID string       `json:"message_id"`
	Rows      []api.Record `json:"rows"`
}

func (h *Handler) getMessage(w http.ResponseWriter, q *request) error {
	payload, err := q.number("payload", 0, 0, 1)
	if err != nil {
		return err
	}
	if payload == 1 && q.identity.Role != RoleOperator {
		return problemf(http.StatusForbidden, "payloads and headers are for operators: ask without \"payload\"")
	}
	var records []admin.Record
	if payload == 1 {
		records, err = h.console.Reveal(q.Context(), Actor{Name: q.identity.Name, Via: "http"}, q.values["db"], q.values["id"])
	} else {
		records, err = h.console.Event(q.Context(), q.values["db"], q.values["id"])
	}
	if err != nil {
		return err
	}
	if len(records) == 0 {
		return problemf(http.StatusNotFound, "there is no message %s in database %s: it may have been purged%s",
			q.values["id"], q.values["db"], h.console.orNotKept(""))
	}
	id, err := uuid.Parse(q.values["id"]) // as it has rows, it is one
	if err != nil {
		return err
	}
	result := rowsAnswer{MessageID: id.String(), Rows: make([]api.Record, len(records))}
	stats := h.stats()
	for i := range records {
		result.Rows[i] = record(q.values["db"], &records[i], stats)
		if payload == 1 {
			result.Rows[i].Reveal(&records[i])
		}
	}
	return answer(w, result)
}

// failuresOf is what is asked about failures.
type failuresOf struct{ database, broker string }

type groupsAnswer struct {
	Groups  []FailureGroup `json:"groups"`
	Scanned int            `json:"scanned"`
	More    bool           `json:"more"`
}

func (h *Handler) getFailures(w http.ResponseWriter, q *request) error {
	asked := failuresOf{q.values["db"], q.text("broker")}
	found, err := h.failures.get(asked, h.now, func() (FailureGroups, error) { return h.console.Failures(q.Context(), asked.database, asked.broker) })
	if err != nil {
		return err
	}
	return answer(w, groupsAnswer{Groups: append([]FailureGroup{}, found.Groups...), Scanned: found.Scanned, More: found.More})
}

type blockedAnswer struct {
	Keys []api.KeyBlock `json:"keys"`
	api.KeyTotals
}

func (h *Handler) getBlocked(w http.ResponseWriter, q *request) error {
	limit, err := q.number("limit", DefaultBlocked, 1, MaxBlocked)
	if err != nil {
		return err
	}
	found, err := h.console.Blocked(q.Context(), q.values["db"], q.text("broker"), int(limit))
	if err != nil {
		return err
	}
	result := blockedAnswer{Keys: make([]api.KeyBlock, len(found.Keys)), KeyTotals: api.NewKeyTotals("", &found)}
	for i := range found.Keys {
		result.Keys[i] = api.NewKeyBlock("", &found.Keys[i])
	}
	return answer(w, result)
}

type workersAnswer struct {
	Instances []api.Instance `json:"instances"`
}

func (h *Handler) getWorkers(w http.ResponseWriter, q *request) error {
	found, err := h.console.Workers(q.Context(), q.values["db"])
	if err != nil {
		return err
	}
	result := workersAnswer{Instances: make([]api.Instance, len(found))}
	for i := range found {
		result.Instances[i] = api.NewInstance("", &found[i], h.now())
	}
	return answer(w, result)
}

type auditAnswer struct {
	Entries []api.AuditEntry `json:"entries"`
}

func (h *Handler) getAudit(w http.ResponseWriter, q *request) error {
	before, err := q.number("before", 0, 0, math.MaxInt64)
	if err != nil {
		return err
	}
	limit, err := q.number("limit", DefaultPage, 1, MaxPage)
	if err != nil {
		return err
	}
	entries, err := h.console.Audit(q.Context(), q.values["db"], before, int(limit))
	if err != nil {
		return err
	}
	result := auditAnswer{Entries: make([]api.AuditEntry, len(entries))}
	for i := range entries {
		result.Entries[i] = api.NewAuditEntry("", &entries[i])
	}
	return answer(w, result)
}
