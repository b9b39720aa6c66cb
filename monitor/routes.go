package monitor

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// route is one address of the interface.
type route struct {
	method string
	// path in segments; "{name}" stands for any one, and "*" for all the rest.
	path string
	// role that one must have.
	role Role
	// open says that the route judges by itself who asks.
	open bool
	// params are the names of the query that it knows.
	params []string
	// body is the most bytes that it reads.
	body int64
	// slow routes change many rows.
	slow bool
	// login routes are posted to by those who have no session yet.
	login bool
	serve func(http.ResponseWriter, *request) error
}

const (
	actionBody = 1 << 20 // 10,000 message ids fit
	smallBody  = 16 << 10
)

// maxBody is the most bytes of a request's body that are read.
func (r *route) maxBody() int64 { return r.body }

func (h *Handler) table() []route {
	messages := []string{"broker", "status", "type", "key", "aggregate", "correlation", "tenant", "trace", "error_class", "since", "until", "cursor", "limit"}
	return []route{
		{method: "GET", path: "api/outbox", role: RoleViewer, serve: h.getStatus},
		{method: "GET", path: "api/outbox/history", role: RoleViewer, serve: h.getHistory},
		{method: "GET", path: "api/outbox/consumers", role: RoleViewer, serve: h.getConsumers},
		{method: "GET", path: "api/outbox/{db}/messages", role: RoleViewer, params: messages, serve: h.getMessages},
		{method: "GET", path: "api/outbox/{db}/messages/{id}", role: RoleViewer, params: []string{"payload"}, serve: h.getMessage},
		{method: "GET", path: "api/outbox/{db}/trace", role: RoleViewer, params: []string{"term", "by"}, serve: h.getTrace},
		{method: "GET", path: "api/outbox/{db}/failures", role: RoleViewer, params: []string{"broker"}, serve: h.getFailures},
		{method: "GET", path: "api/outbox/{db}/blocked", role: RoleViewer, params: []string{"broker", "limit"}, serve: h.getBlocked},
		{method: "GET", path: "api/outbox/{db}/workers", role: RoleViewer, serve: h.getWorkers},
		{method: "GET", path: "api/outbox/{db}/audit", role: RoleViewer, params: []string{"before", "limit"}, serve: h.getAudit},
		{method: "POST", path: "api/outbox/{db}/actions", role: RoleOperator, body: actionBody, slow: true, serve: h.postAction},
		{method: "POST", path: "api/outbox/{db}/brokers/{broker}/pause", role: RoleOperator, body: smallBody, serve: h.postPause},
		{method: "POST", path: "api/outbox/{db}/brokers/{broker}/resume", role: RoleOperator, body: smallBody, serve: h.postResume},
		{method: "GET", path: "api/me", open: true, serve: h.getMe},
		{method: "POST", path: "api/login", open: true, login: true, body: smallBody, serve: h.postLogin},
		{method: "POST", path: "api/logout", open: true, login: true, body: smallBody, serve: h.postLogout},
		{method: "POST", path: "login", open: true, login: true, body: smallBody, serve: h.formLogin},
		{method: "POST", path: "logout", open: true, login: true, body: smallBody, serve: h.formLogout},
		{method: "GET", path: "healthz", open: true, serve: h.getHealth},
		{method: "GET", path: "readyz", open: true, serve: h.getReady},
		{method: "GET", path: "metrics", role: RoleViewer, params: []string{"*"}, serve: h.getMetrics},
		{method: "GET", path: "openapi.json", open: true, serve: h.getOpenAPI},
		{method: "GET", path: "", open: true, params: []string{"*"}, serve: h.getIndex},
		{method: "GET", path: "assets/*", open: true, params: []string{"*"}, serve: h.getAsset},
	}
}

// find looks a request up. The path is compared segment by segment as the client has sent it,
// before anything in it is decoded: no dot, no double slash and no encoded slash makes another
// address of it. allowed are the methods where only the method is wrong.
func (h *Handler) find(method, escaped string) (match *route, values map[string]string, allowed string) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	var methods []string
	parts := strings.Split(strings.TrimPrefix(escaped, "/"), "/")
	for i := range h.routes {
		values, ok := fit(h.routes[i].path, parts)
		switch {
		case !ok:
		case h.routes[i].method == method:
			return &h.routes[i], values, ""
		case !slices.Contains(methods, h.routes[i].method):
			methods = append(methods, h.routes[i].method)
			if h.routes[i].method == http.MethodGet {
				methods = append(methods, http.MethodHead)
			}
		}
	}
	return nil, nil, strings.Join(methods, ", ")
}

// fit matches segments with a route's path.
func fit(path string, parts []string) (values map[string]string, ok bool) {
	want := strings.Split(path, "/")
	values = map[string]string{}
	for i, segment := range want {
		if segment == "*" {
			rest, err := url.PathUnescape(strings.Join(parts[min(i, len(parts)):], "/"))
			values["*"] = rest
			return values, err == nil && rest != ""
		}
		if i >= len(parts) {
			return nil, false
		}
		if name, variable := strings.CutPrefix(segment, "{"); variable {
			value, err := url.PathUnescape(parts[i])
			if err != nil || value == "" {
				return nil, false
			}
			values[strings.TrimSuffix(name, "}")] = value
		} else if segment != parts[i] {
			return nil, false
		}
	}
	return values, len(want) == len(parts)
}
