package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

const (
	viewerToken   = "viewer-0123456789"
	operatorToken = "operator-0123456789"
)

func testTokens(t *testing.T) *Tokens {
	t.Helper()
	tokens, err := NewTokens(map[string]string{"grafana": viewerToken}, map[string]string{"oncall": operatorToken})
	require.NoError(t, err)
	return tokens
}

// newHandler makes one with tokens, which the test may change.
func newHandler(t *testing.T, f *fake, change ...func(*Config)) *Handler {
	t.Helper()
	cfg := Config{Console: consoleOf(f, WithBrokers("default")), Tokens: testTokens(t), Log: slog.New(slog.DiscardHandler), Version: "v1.2.3"}
	for _, c := range change {
		c(&cfg)
	}
	h, err := New(cfg)
	require.NoError(t, err)
	return h
}

type header map[string]string

func as(token string) header { return header{"Authorization": "Bearer " + token} }

func (h header) with(name, value string) header {
	all := header{name: value}
	for n, v := range h {
		if n != name {
			all[n] = v
		}
	}
	return all
}

func call(h http.Handler, method, target, body string, headers header) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), method, "http://fanout.example/", strings.NewReader(body))
	parsed, err := url.Parse(target)
	if err != nil {
		panic(err)
	}
	r.URL.Path, r.URL.RawPath, r.URL.RawQuery = parsed.Path, parsed.RawPath, parsed.RawQuery
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range headers {
		r.Header.Set(name, value)
		if value == "" {
			r.Header.Del(name)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func decoded[T any](t *testing.T, w *httptest.ResponseRecorder) T {
	t.Helper()
	var value T
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &value), w.Body.String())
	return value
}

// wantProblem expects an error in its form, with the status and a detail that says it.
func wantProblem(t *testing.T, w *httptest.ResponseRecorder, status int, detail string) {
	t.Helper()
	require.Equal(t, status, w.Code, w.Body.String())
	assert.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	p := decoded[problem](t, w)
	assert.Equal(t, status, p.Status)
	assert.Equal(t, http.StatusText(status), p.Title)
	assert.Contains(t, p.Detail, detail)
}

const actions = "/api/outbox/main/actions"

func TestSecurity(t *testing.T) {
	t.Parallel()
	id := uuid.NewString()
	store := (&fake{}).add(3, func(_ int, r *admin.Record) { r.MessageID, r.Status, r.Headers = id, outbox.StatusFailed, "{}" })
	open := func(cfg *Config) { cfg.Tokens = nil }
	own := func(cfg *Config) {
		cfg.Tokens, cfg.Authorise = nil, func(r *http.Request) (Identity, error) {
			if r.Header.Get("X-User") == "" {
				return Identity{Name: "nobody", Role: RoleOperator}, errors.New("who?")
			}
			return Identity{Name: r.Header.Get("X-User"), Role: Role(r.Header.Get("X-Role"))}, nil
		}
	}
	viewer, operator := as(viewerToken), as(operatorToken)
	message := "/api/outbox/main/messages/" + id
	requeue := `{"action": "requeue", "type": "*"}`
	ben := header{"X-User": "ben", "X-Role": "operator"}
	for name, test := range map[string]struct {
		change               func(*Config)
		method, target, body string
		headers              header
		status               int
		detail               string
	}{
		"no token":                 {nil, "GET", "/api/outbox", "", nil, 401, "Bearer TOKEN"},
		"empty token":              {nil, "GET", "/api/outbox", "", as(""), 401, ""},
		"another scheme":           {nil, "GET", "/api/outbox", "", header{"Authorization": "Basic " + viewerToken}, 401, ""},
		"metrics":                  {nil, "GET", "/metrics", "", nil, 401, ""},
		"post without token":       {nil, "POST", actions, requeue, header{"Sec-Fetch-Site": "same-origin"}, 401, ""},
		"viewer posts":             {nil, "POST", actions, requeue, viewer, 403, `"grafana" may look, but not act`},
		"viewer pauses":            {nil, "POST", "/api/outbox/main/brokers/default/pause", "{}", viewer, 403, "may look"},
		"viewer wants a payload":   {nil, "GET", message + "?payload=1", "", viewer, 403, "for operators"},
		"open: a payload":          {open, "GET", message + "?payload=1", "", nil, 403, "for operators"},
		"open: post":               {open, "POST", actions, requeue, header{"Sec-Fetch-Site": "same-origin"}, 403, "monitor.operator_tokens"},
		"open: post with a bearer": {open, "POST", actions, requeue, operator, 403, "monitor.operator_tokens"},
		"open: login":              {open, "POST", "/api/login", `{"token": "x"}`, nil, 404, "no tokens"},
		"own: nobody":              {own, "GET", "/api/outbox", "", nil, 401, ""},
		"own: no such role":        {own, "GET", "/api/outbox", "", header{"X-User": "eve", "X-Role": "root"}, 401, ""},
		"own: no CSRF":             {own, "POST", actions, requeue, ben.with("Sec-Fetch-Site", "same-origin"), 403, "X-Fanout-CSRF"},
		"own: wrong CSRF":          {own, "POST", actions, requeue, ben.with("Sec-Fetch-Site", "same-origin").with("X-Fanout-CSRF", "aa"), 403, "X-Fanout-CSRF"},
		"own: cross-site":          {own, "POST", actions, requeue, ben.with("Sec-Fetch-Site", "cross-site"), 403, "another site"},
		"own: same-site":           {own, "POST", actions, requeue, ben.with("Sec-Fetch-Site", "same-site"), 403, "another site"},
		"own: another origin":      {own, "POST", actions, requeue, ben.with("Origin", "http://evil.example"), 403, "another site"},
		"own: null origin":         {own, "POST", actions, requeue, ben.with("Origin", "null"), 403, "another site"},
		"own: no origin":           {own, "POST", actions, requeue, ben, 403, "another site"},
		"bearer: cross-site":       {nil, "POST", actions, requeue, operator.with("Sec-Fetch-Site", "cross-site"), 403, "another site"},
		"bearer: another origin":   {nil, "POST", actions, requeue, operator.with("Origin", "http://evil.example"), 403, "another site"},
		"login from another site":  {nil, "POST", "/login", "token=" + operatorToken, header{"Sec-Fetch-Site": "cross-site"}, 403, "another site"},
		"login by another origin":  {nil, "POST", "/api/login", "{}", header{"Origin": "http://evil.example"}, 403, "another site"},
		"login with a bearer":      {nil, "POST", "/api/login", "{}", operator.with("Sec-Fetch-Site", "cross-site"), 403, "another site"},
		"login with a wrong token": {nil, "POST", "/api/login", `{"token": "nope"}`, nil, 401, "not known"},
		"form":                     {nil, "POST", actions, "action=requeue", operator.with("Content-Type", "application/x-www-form-urlencoded"), 415, "application/json"},
		"no type":                  {nil, "POST", actions, requeue, operator.with("Content-Type", ""), 415, ""},
		"oversized":                {nil, "POST", actions, `{"reason": "` + strings.Repeat("x", actionBody) + `"}`, operator, 413, "larger"},
		"long reason":              {nil, "POST", actions, `{"action": "requeue", "reason": "` + strings.Repeat("x", 3000) + `"}`, operator, 400, "at most 2000"},
		"no verb":                  {nil, "POST", actions, "{}", operator, 400, "there is no action"},
		"abandon everything":       {nil, "POST", actions, `{"action": "abandon"}`, operator, 400, "every row"},
		"requeue everything":       {nil, "POST", actions, `{"action": "requeue", "status": ["failed"]}`, operator, 400, "every row"},
		"bad time":                 {nil, "POST", actions, `{"action": "requeue", "since": "yesterday"}`, operator, 400, "since"},
		"endless age":              {nil, "POST", actions, `{"action": "purge", "published_before_seconds": 1e300}`, operator, 400, "hundred years"},
		"no such database":         {nil, "GET", "/api/outbox/other/workers", "", viewer, 404, `no database "other"`},
		"no such message":          {nil, "GET", "/api/outbox/main/messages/" + uuid.NewString(), "", viewer, 404, "purged"},
		"no id":                    {nil, "GET", "/api/outbox/main/messages/7", "", viewer, 400, "no UUID"},
		"no such broker to pause":  {nil, "POST", "/api/outbox/main/brokers/x%2f..%2fy/pause", "{}", operator, 400, "no broker"},
		"dots":                     {nil, "GET", "/api/outbox/../me", "", viewer, 404, "no such address"},
		"encoded dots":             {nil, "GET", "/api/outbox/%2e%2e/workers", "", viewer, 404, `no database ".."`},
		"encoded slash":            {nil, "GET", "/api%2foutbox", "", viewer, 404, ""},
		"double slash":             {nil, "GET", "//api/outbox", "", viewer, 404, ""},
		"asset outside, encoded":   {nil, "GET", "/assets/%2e%2e/%2e%2e/etc/passwd", "", nil, 404, ""},
		"asset with a backslash":   {nil, "GET", `/assets/..%5c..%5cx`, "", nil, 404, ""},
		"a line break in a value":  {nil, "GET", "/api/outbox/main%0d%0aX-Evil:1/workers", "", viewer, 404, "no database"},
		"a zero byte":              {nil, "GET", "/api/outbox/main/failures?broker=%00", "", viewer, 400, "no text"},
		"unknown parameter":        {nil, "GET", "/api/outbox/main/messages?brokr=x", "", viewer, 400, `"brokr"`},
		"parameter where none is":  {nil, "GET", "/api/outbox?x=1", "", viewer, 400, "takes none"},
		"parameter twice":          {nil, "GET", "/api/outbox/main/messages?broker=a&broker=b", "", viewer, 400, "2 times"},
		"bad query":                {nil, "GET", "/api/outbox/main/messages?a;b", "", viewer, 400, "cannot be read"},
		"long query":               {nil, "GET", "/api/outbox/main/messages?key=" + strings.Repeat("x", maxQuery), "", viewer, 414, ""},
		"limit":                    {nil, "GET", "/api/outbox/main/messages?limit=9999", "", viewer, 400, "from 1 to 500"},
		"wrong method":             {nil, "DELETE", "/api/outbox", "", operator, 405, "GET, HEAD"},
		"get of an action":         {nil, "GET", actions, "", operator, 405, "POST"},
		"nowhere":                  {nil, "GET", "/x", "", operator, 404, "openapi.json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := test.change
			if change == nil {
				change = func(*Config) {}
			}
			w := call(newHandler(t, store, change), test.method, test.target, test.body, test.headers)
			wantProblem(t, w, test.status, test.detail)
			for name := range w.Header() {
				assert.NotContains(t, name, "Evil")
			}
			assert.Empty(t, w.Header().Get("Set-Cookie"))
		})
	}
	t.Cleanup(func() { assert.Empty(t, store.calls, "nothing of this may have changed a row") })
}

func TestWhatIsOpen(t *testing.T) {
	t.Parallel()
	h := newHandler(t, &fake{})
	for _, target := range []string{"/", "/healthz", "/readyz", "/openapi.json", "/api/me"} {
		w := call(h, "GET", target, "", nil)
		require.Equal(t, 200, w.Code, target)
		assert.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "+
			"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		assert.Equal(t, "no-referrer", w.Header().Get("Referrer-Policy"))
		assert.Equal(t, 200, call(h, "HEAD", target, "", nil).Code)
	}
	assert.Equal(t, meAnswer{Role: RoleNone}, decoded[meAnswer](t, call(h, "GET", "/api/me", "", nil)), "nobody learns the version")
}

func TestLogin(t *testing.T) {
	t.Parallel()
	store := (&fake{}).add(3, failed("retryable", "x"))
	for name, secure := range map[string]bool{"__Host-fanout": true, "fanout": false} {
		h := newHandler(t, store)
		site := header{"Sec-Fetch-Site": "same-origin"}
		if secure {
			site["X-Forwarded-Proto"] = "https"
		}
		w := call(h, "POST", "/api/login", `{"token": "`+operatorToken+`"}`, site)
		require.Equal(t, 200, w.Code, w.Body.String())
		me := decoded[meAnswer](t, w)
		assert.Equal(t, RoleOperator, me.Role)
		cookies := w.Result().Cookies()
		require.Len(t, cookies, 1)
		c := cookies[0]
		assert.Equal(t, name, c.Name)
		assert.Equal(t, []any{true, secure, http.SameSiteStrictMode, "/", ""}, []any{c.HttpOnly, c.Secure, c.SameSite, c.Path, c.Domain})
		assert.NotContains(t, c.Value, operatorToken)

		in := site.with("Cookie", c.Name+"="+c.Value)
		assert.Equal(t, me, decoded[meAnswer](t, call(h, "GET", "/api/me", "", in)))
		assert.Equal(t, 200, call(h, "GET", "/api/outbox", "", in).Code)
		wantProblem(t, call(h, "POST", actions, `{"action": "requeue", "dry_run": true}`, in), 403, "X-Fanout-CSRF")
		with := in.with("X-Fanout-CSRF", me.CSRF)
		assert.Equal(t, 200, call(h, "POST", actions, `{"action": "requeue", "dry_run": true}`, with).Code)
		wantProblem(t, call(h, "POST", actions, `{"action": "requeue", "dry_run": true}`, with.with("Sec-Fetch-Site", "cross-site")), 403, "another site")

		// What was changed, has ended, or belongs to another operator, is nobody's.
		for _, forged := range []string{c.Value + "x", strings.Replace(c.Value, ".", ".9", 1), "b25jYWxs.99999999999.", "x", "", "Z3JhZmFuYQ" + c.Value[strings.IndexByte(c.Value, '.'):]} {
			wantProblem(t, call(h, "GET", "/api/outbox", "", site.with("Cookie", c.Name+"="+forged)), 401, "")
		}
		other := newHandler(t, store, func(cfg *Config) {
			cfg.Tokens, _ = NewTokens(nil, map[string]string{"oncall": "another-0123456789"})
		})
		wantProblem(t, call(other, "GET", "/api/outbox", "", in), 401, "")
		assert.Equal(t, 200, call(newHandler(t, store), "POST", actions, `{"action": "requeue", "dry_run": true}`, with).Code, "another process with the same tokens")
		later := newHandler(t, store)
		later.now = func() time.Time { return h.now().Add(sessionTime) }
		wantProblem(t, call(later, "GET", "/api/outbox", "", in), 401, "")

		out := call(h, "POST", "/api/logout", "{}", with)
		assert.Equal(t, 200, out.Code)
		assert.Negative(t, out.Result().Cookies()[0].MaxAge)
	}
}

func TestLoginByForm(t *testing.T) {
	t.Parallel()
	h := newHandler(t, &fake{})
	form := header{"Content-Type": "application/x-www-form-urlencoded", "Origin": "http://fanout.example"}
	w := call(h, "POST", "/login", url.Values{"token": {viewerToken}}.Encode(), form)
	assert.Equal(t, 303, w.Code)
	assert.Equal(t, "./", w.Header().Get("Location"))
	assert.Len(t, w.Result().Cookies(), 1)
	wantProblem(t, call(h, "POST", "/login?token="+viewerToken, "", form), 400, "no parameter")
	wantProblem(t, call(h, "POST", "/login", "token=x", form), 401, "not known")
	assert.Equal(t, 303, call(h, "POST", "/logout", "", form).Code)
}

func TestTokensAreChecked(t *testing.T) {
	t.Parallel()
	_, err := NewTokens(map[string]string{"a": "short", "b": viewerToken, "": operatorToken}, map[string]string{"b": "operator-9876543210", "c": viewerToken})
	for _, want := range []string{`viewer "a" has 5 characters`, `"" is no name`, `"b" is a viewer and an operator`, `"b" and "c" have the same token`} {
		require.ErrorContains(t, err, want)
	}
	assert.NotContains(t, err.Error(), viewerToken)
	_, err = New(Config{Authorise: func(*http.Request) (Identity, error) { return Identity{}, nil }, Tokens: testTokens(t), MaxCount: -1})
	for _, want := range []string{"no console", "both set", "MaxCount"} {
		require.ErrorContains(t, err, want)
	}
}

func TestActionsOverHTTP(t *testing.T) {
	t.Parallel()
	store := (&fake{}).add(1100, failed("retryable", "x %d"))
	h := newHandler(t, store)
	w := call(h, "POST", actions, `{"action": "requeue", "dry_run": true}`, as(operatorToken))
	assert.JSONEq(t, `{"matched": 1100, "more": false, "refused": 0, "changed": 0, "audit_id": 0, "left": {}, "left_more": false}`, w.Body.String())

	w = call(h, "POST", actions, `{"action": "requeue", "type": "*", "reason": "fixed"}`, as(operatorToken).with("Accept", ndjson))
	assert.Equal(t, "application/x-ndjson", w.Header().Get("Content-Type"))
	assert.Equal(t, `{"matched":1100,"more":false,"done":500}
{"matched":1100,"more":false,"done":1000}
{"matched":1100,"more":false,"done":1100}
{"result":{"matched":1100,"more":false,"refused":0,"changed":1100,"audit_id":1,"left":{},"left_more":false}}
`, w.Body.String())
	assert.Equal(t, "oncall", store.audit[0].Actor)
	assert.Equal(t, "http", store.audit[0].Via)

	w = call(h, "POST", "/api/outbox/main/brokers/default/pause", `{"reason": "why"}`, as(operatorToken))
	assert.JSONEq(t, `{"changed": true}`, w.Body.String())
	assert.Equal(t, admin.Pause{Broker: "default", Since: start, By: "oncall", Reason: "why"}, store.pauses[0])
	w = call(h, "POST", "/api/outbox/main/brokers/default/resume", `{}`, as(operatorToken))
	assert.JSONEq(t, `{"changed": true}`, w.Body.String())
}

// A proxy that checks bodies, and we, must read the same in them.
func TestBodiesAreUnambiguous(t *testing.T) {
	t.Parallel()
	store := (&fake{}).add(1, func(_ int, r *admin.Record) { r.Status = outbox.StatusFailed })
	h := newHandler(t, store)
	for body, want := range map[string]string{
		`{"action":"abandon","type":"x","ACTION":"requeue"}`: `member "ACTION" is not "action": names are case-sensitive`,
		`{"action":"abandon","type":"x","action":"requeue"}`: `member "action" occurs twice: leave one out`,
		`{"Action":"requeue","type":"x"}`:                    `member "Action" is not "action"`,
		`{"action":"requeue","typo":"x"}`:                    `unknown field "typo"`,
		`{"action":"requeue","type":"x"} {}`:                 `after top-level value`,
		`null`:                                               `it is null`,
	} {
		wantProblem(t, call(h, "POST", actions, body, as(operatorToken)), http.StatusBadRequest, "the body is not the JSON object that is wanted: ")
		wantProblem(t, call(h, "POST", actions, body, as(operatorToken)), http.StatusBadRequest, want)
	}
	wantProblem(t, call(h, "POST", "/api/login", `{"token":"x","TOKEN":"`+operatorToken+`"}`, nil), http.StatusBadRequest, `"TOKEN" is not "token"`)
}

// An action that fails half-way says how far it came.
func TestActionFailsHalfWay(t *testing.T) {
	t.Parallel()
	for _, accept := range []string{"", ndjson} {
		store := (&fake{}).add(700, failed("retryable", "x %d"))
		store.after = func() { store.down = errors.New("connection reset") }
		w := call(newHandler(t, store), "POST", actions, `{"action": "requeue", "type": "*"}`, as(operatorToken).with("Accept", accept))
		if accept == "" {
			wantProblem(t, w, 503, "500 rows were changed before that")
		} else {
			lines := strings.Split(strings.TrimSpace(w.Body.String()), "\n")
			require.Len(t, lines, 2)
			var last lastLine
			require.NoError(t, json.Unmarshal([]byte(lines[1]), &last))
			assert.EqualValues(t, 500, last.Result.Changed)
			assert.Contains(t, last.Problem.Detail, "connection reset")
		}
		assert.EqualValues(t, 500, store.audit[0].Rows)
		assert.Contains(t, store.audit[0].Failure, "connection reset")
	}
}

func TestReady(t *testing.T) {
	t.Parallel()
	running := false
	store := &fake{down: errors.New("password=hunter2")}
	h := newHandler(t, store, func(cfg *Config) { cfg.Running = func() bool { return running } })
	w := call(h, "GET", "/readyz", "", nil)
	assert.Equal(t, 503, w.Code)
	assert.JSONEq(t, `{"status": "unavailable", "reasons": ["database main does not answer", "the engine does not run"]}`, w.Body.String())
	store.down, running = nil, true
	h.now = func() time.Time { return start } // the answer of before is no longer fresh
	assert.JSONEq(t, `{"status": "ok", "reasons": []}`, call(h, "GET", "/readyz", "", nil).Body.String())
	assert.Equal(t, 200, call(h, "GET", "/healthz", "", nil).Code)
}

// One tenant of many that does not answer, or is just falling asleep, takes no process out of service.
func TestReadyWithoutATenant(t *testing.T) {
	t.Parallel()
	h := newHandler(t, &fake{}, func(cfg *Config) {
		WithMore(func() map[string]admin.Administration {
			return map[string]admin.Administration{"acme": &fake{down: errors.New("closed pool")}}
		})(cfg.Console)
	})
	assert.JSONEq(t, `{"status": "ok", "reasons": []}`, call(h, "GET", "/readyz", "", nil).Body.String())
}

// A tenant that sleeps is not taken for one that does not exist: the answer says what asks it.
func TestATenantThatIsAsleep(t *testing.T) {
	t.Parallel()
	h := newHandler(t, &fake{}, func(cfg *Config) { WithMore(func() map[string]admin.Administration { return nil })(cfg.Console) })
	for _, path := range []string{"/api/outbox/newco/workers", "/api/outbox/newco/messages"} {
		w := call(h, "GET", path, "", as(viewerToken))
		wantProblem(t, w, 404, `there is no database "newco": there are ["main"]`)
		wantProblem(t, w, 404, `; a tenant that is asleep is not shown here: "fanout trace TERM --database newco" asks it`)
	}
	assert.NotContains(t, call(newHandler(t, &fake{}), "GET", "/api/outbox/newco/workers", "", as(viewerToken)).Body.String(), "asleep")
}

func TestAssetsAndMetrics(t *testing.T) {
	t.Parallel()
	h := newHandler(t, &fake{}, func(cfg *Config) {
		cfg.Assets = fstest.MapFS{"index.html": {Data: []byte("<p>hi")}, "main.js": {Data: []byte("1")}, "sub/a.bin": {Data: []byte("2")}}
		cfg.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up 1\n") })
	})
	mounted := http.StripPrefix("/ops", h)
	assert.Equal(t, "<p>hi", call(mounted, "GET", "/ops/", "", nil).Body.String())
	w := call(mounted, "GET", "/ops/assets/main.js", "", nil)
	assert.Equal(t, "text/javascript; charset=utf-8", w.Header().Get("Content-Type"))
	assert.Equal(t, "2", call(h, "GET", "/assets/sub/a.bin", "", nil).Body.String())
	wantProblem(t, call(h, "GET", "/assets/sub", "", nil), 404, "no such file")
	wantProblem(t, call(h, "GET", "/assets/none.js", "", nil), 404, "no such file")
	assert.Equal(t, "up 1\n", call(h, "GET", "/metrics?name[]=a", "", as(viewerToken)).Body.String())
	wantProblem(t, call(newHandler(t, &fake{}), "GET", "/metrics", "", as(viewerToken)), 404, "no metrics")
}

func FuzzQuery(f *testing.F) {
	f.Add("broker=a&status=failed,pending&status=x&since=2026-01-02T03:04:05Z&limit=7&cursor=e30&type=T*")
	f.Add("since=9999999-01-01T00:00:00Z&limit=-1")
	f.Fuzz(func(t *testing.T, query string) {
		h := newHandler(t, (&fake{}).add(2, func(int, *admin.Record) {}))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.URL.Path, r.URL.RawQuery = "/api/outbox/main/messages", query
		r.Header.Set("Authorization", "Bearer "+viewerToken)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Contains(t, []int{200, 400, 414}, w.Code, w.Body.String())
		require.True(t, json.Valid(w.Body.Bytes()))
	})
}

func FuzzAction(f *testing.F) {
	f.Add(`{"action": "requeue", "broker": "default", "status": ["failed"], "limit": 3, "dry_run": true}`)
	f.Add(`{"action": "purge", "published_before_seconds": 0.5, "since": "2026-01-02T03:04:05Z"}`)
	f.Add(`{"action": "unblock", "broker": "default", "key": "k", "message_ids": ["x"], "fingerprint": "0123456789ab"}`)
	f.Fuzz(func(t *testing.T, body string) {
		store := (&fake{}).add(2, failed("retryable", "x"))
		w := call(newHandler(t, store), "POST", actions, body, as(operatorToken))
		require.Contains(t, []int{200, 400, 413}, w.Code, w.Body.String())
		require.True(t, json.Valid(w.Body.Bytes()))
		if w.Code != 200 {
			require.Empty(t, store.audit, "what is refused is not begun")
		}
	})
}

// A database does not know that a broker is unavailable; a relay in this process does.
func TestUnavailableMessages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state outbox.State
		stats relay.Stats
		want  outbox.State
	}{
		{outbox.StateDue, relay.Stats{Breaker: relay.BreakerOpen}, outbox.StateUnavailable},
		{outbox.StateDue, relay.Stats{UnavailableDestinations: []string{"ordering"}}, outbox.StateUnavailable},
		{outbox.StateDue, relay.Stats{UnavailableDestinations: []string{"others"}}, outbox.StateDue},
		{outbox.StateDue, relay.Stats{Breaker: relay.BreakerHalfOpen}, outbox.StateDue},
		{outbox.StateBackoff, relay.Stats{Breaker: relay.BreakerOpen}, outbox.StateBackoff},
	} {
		row := &admin.Record{Broker: "default", State: c.state, Stream: "ordering"}
		assert.Equal(t, c.want, record("main", row, map[series]*relay.Stats{{"main", "default"}: &c.stats}).State)
		assert.Equal(t, c.state, record("other", row, map[series]*relay.Stats{{"main", "default"}: &c.stats}).State, "it runs elsewhere")
	}
}
