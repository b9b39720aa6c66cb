package monitor

import (
	"net/http"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

func (h *Handler) getTrace(w http.ResponseWriter, q *request) error {
	query := TraceQuery{Term: q.text("term"), Databases: []string{q.values["db"]}}
	for word := range strings.SplitSeq(q.text("by"), ",") {
		if word = strings.TrimSpace(word); word != "" {
			query.By = append(query.By, admin.FindBy(word))
		}
	}
	trace, err := h.console.Trace(q.Context(), query)
	if err != nil {
		return err
	}
	stats := h.stats()
	for i := range trace.Messages {
		for j := range trace.Messages[i].Rows {
			row := &trace.Messages[i].Rows[j]
			s := stats[series{q.values["db"], row.Row.Broker}]
			if row.Row.State == outbox.StateDue && isUnavailable(s, row.Row.Stream) {
				row.Row.State = outbox.StateUnavailable
				explain(row, time.Now())
			}
		}
	}
	return answer(w, trace)
}
