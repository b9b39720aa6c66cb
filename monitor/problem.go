package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/gorm-fanout/fanout/internal/discreet"
)

// A problem is an error as RFC 9457 has it.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func (p *problem) Error() string { return p.Detail }

func problemf(status int, format string, args ...any) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

// problemOf turns what went wrong into an answer.
func problemOf(err error) *problem {
	var (
		known    *problem
		refused  *RefusedError
		notFound *NotFoundError
		tooLarge *http.MaxBytesError
	)
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &refused):
		return problemf(http.StatusBadRequest, "%s", refused.Reason)
	case errors.As(err, &notFound):
		return problemf(http.StatusNotFound, "%s", notFound.Reason)
	case errors.As(err, &tooLarge):
		return problemf(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", tooLarge.Limit)
	case errors.Is(err, context.DeadlineExceeded):
		return problemf(http.StatusGatewayTimeout, "the database did not answer in time: %s", discreet.Text(err.Error()))
	default:
		return problemf(http.StatusServiceUnavailable, "%s", discreet.Text(err.Error()))
	}
}

// fail answers with an error. What is the server's fault goes to the log, too.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	if p.Status >= http.StatusInternalServerError && r.Context().Err() == nil {
		h.log.WarnContext(r.Context(), "monitor request failed", "method", r.Method, "path", r.URL.Path, "status", p.Status, "error", p.Detail)
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="fanout"`)
	}
	write(w, p.Status, "application/problem+json", p)
}

// answer sends a value as JSON.
func answer(w http.ResponseWriter, value any) error {
	write(w, http.StatusOK, "application/json", value)
	return nil
}

func write(w http.ResponseWriter, status int, contentType string, value any) {
	body, err := json.Marshal(value)
	if err != nil { // a time beyond the year 9999 has no text
		contentType, status = "application/problem+json", http.StatusInternalServerError
		body = []byte(`{"type":"about:blank","title":"Internal Server Error","status":500,"detail":"the answer has no JSON form"}`)
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a client that has gone cannot be told
}
