package monitor

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox/admin"
)

// guessing is a handler whose time stands still, and its log.
func guessing(t *testing.T) (h *Handler, log *bytes.Buffer, now *time.Time) {
	t.Helper()
	log, now = &bytes.Buffer{}, new(time.Time)
	*now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	h = newHandler(t, &fake{}, func(cfg *Config) { cfg.Log = slog.New(slog.NewTextHandler(log, nil)) })
	h.now = func() time.Time { return *now }
	return h, log, now
}

func from(h http.Handler, address, method, path, body, token string) int {
	r := httptest.NewRequest(method, "http://fanout.example"+path, strings.NewReader(body)) //nolint:noctx // of httptest
	r.RemoteAddr = address
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// Whoever tries tokens is seen in the log and gets no further than ten at once and one each second,
// however the token is presented.
func TestWrongTokensAreLoggedAndLimited(t *testing.T) {
	t.Parallel()
	for name, try := range map[string]func(h http.Handler, address string) int{
		"bearer": func(h http.Handler, address string) int {
			return from(h, address, "GET", "/api/outbox", "", "guess-0123456789")
		},
		"login": func(h http.Handler, address string) int {
			return from(h, address, "POST", "/api/login", `{"token":"guess-0123456789"}`, "")
		},
	} {
		h, log, now := guessing(t)
		codes := map[int]int{}
		for range 3000 {
			codes[try(h, "192.0.2.1:4711")]++
		}
		assert.Equal(t, map[int]int{401: guessBurst, 429: 3000 - guessBurst}, codes, name)
		assert.Equal(t, guessBurst+1, strings.Count(log.String(), "\n"), name)
		assert.Contains(t, log.String(), "from=192.0.2.1:4711", name)
		assert.NotContains(t, log.String(), "guess-", name)
		assert.Equal(t, 429, from(h, "192.0.2.1:4712", "GET", "/api/outbox", "", operatorToken), "%s: whose guesses are not looked at", name)
		assert.Equal(t, 200, from(h, "192.0.2.2:4711", "GET", "/api/outbox", "", operatorToken), "%s: from elsewhere", name)
		*now = now.Add(guessEvery)
		assert.Equal(t, 200, from(h, "192.0.2.1:4711", "GET", "/api/outbox", "", operatorToken), "%s: later", name)
		assert.Equal(t, 401, try(h, "192.0.2.1:4711"), name)
		assert.Equal(t, 429, try(h, "192.0.2.1:4711"), name)
	}
}

// The addresses of one network of IPv6 count as one, and however many there are, no more than a
// bounded number is remembered.
func TestGuessersAreBounded(t *testing.T) {
	t.Parallel()
	h, _, now := guessing(t)
	for i := range guessBurst {
		require.Equal(t, 401, from(h, fmt.Sprintf("[2001:db8::%d]:1", i+1), "GET", "/api/outbox", "", "x"))
	}
	assert.Equal(t, 429, from(h, "[2001:db8::ffff]:1", "GET", "/api/outbox", "", "x"))
	assert.Equal(t, 401, from(h, "[2001:db8:1::1]:1", "GET", "/api/outbox", "", "x"))
	for i := range maxGuessers + 100 {
		from(h, fmt.Sprintf("10.0.%d.%d:1", i/256, i%256), "GET", "/api/outbox", "", "x")
	}
	assert.Len(t, h.guesses.known, maxGuessers)
	assert.Equal(t, 429, from(h, "[2001:db8::1]:1", "GET", "/api/outbox", "", "x"), "who guesses most is remembered")
	*now = now.Add(time.Hour)
	from(h, "192.0.2.1:1", "GET", "/api/outbox", "", "x")
	assert.Len(t, h.guesses.known, 1, "the others are forgotten")
}

// Any replica takes what another one's page sends, and so does a process after its restart.
func TestReplicasAgreeOnCSRF(t *testing.T) {
	t.Parallel()
	whoIs := func(*http.Request) (Identity, error) { return Identity{Name: "ada", Role: RoleOperator}, nil }
	for name, change := range map[string]func(*Config){
		"key":    func(cfg *Config) { cfg.Tokens, cfg.Authorise, cfg.CSRFKey = nil, whoIs, "0123456789abcdef" },
		"tokens": func(*Config) {},
	} {
		one, another := newHandler(t, &fake{}, change), newHandler(t, &fake{}, change)
		page := header{"Sec-Fetch-Site": "same-origin"}
		if name == "tokens" {
			page["Cookie"] = "fanout=" + one.cfg.Tokens.entries[1].newSession(time.Now())
		}
		csrf := decoded[meAnswer](t, call(one, "GET", "/api/me", "", page)).CSRF
		w := call(another, "POST", "/api/outbox/main/brokers/default/pause", "{}", page.with("X-Fanout-CSRF", csrf))
		assert.Equal(t, 200, w.Code, "%s: %s", name, w.Body)
	}
	_, err := New(Config{Console: NewConsole(nil), CSRFKey: "short"})
	require.ErrorContains(t, err, "CSRFKey has 5 characters: use at least 16")
}

// A look at a payload leaves a trace; none is shown where it cannot.
func TestLooksAtPayloadsAreAudited(t *testing.T) {
	t.Parallel()
	id := uuid.NewString()
	store := (&fake{}).add(2, func(_ int, r *admin.Record) { r.MessageID, r.Payload = id, []byte("secret") })
	h := newHandler(t, store)
	address := "/api/outbox/main/messages/" + id
	require.Equal(t, 200, call(h, "GET", address, "", as(operatorToken)).Code)
	require.Equal(t, 403, call(h, "GET", address+"?payload=1", "", as(viewerToken)).Code)
	assert.Empty(t, store.audit)
	w := call(h, "GET", address+"?payload=1", "", as(operatorToken))
	require.Equal(t, 200, w.Code)
	assert.Contains(t, w.Body.String(), "secret")
	require.Len(t, store.audit, 1)
	e := store.audit[0]
	assert.Equal(t, []any{"oncall", "http", "reveal", `{"message_ids":["` + id + `"]}`, int64(2), false},
		[]any{e.Actor, e.Via, e.Action, e.Filter, e.Rows, e.EndedAt.IsZero()})
	_, err := h.console.Reveal(t.Context(), Actor{Name: "a"}, "main", "7")
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	assert.Len(t, store.audit, 1)

	store.down = http.ErrServerClosed
	w = call(h, "GET", address+"?payload=1", "", as(operatorToken))
	assert.Equal(t, 503, w.Code)
	assert.NotContains(t, w.Body.String(), "secret")
}
