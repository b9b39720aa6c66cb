package monitor

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestOtherSitesMakeNobodyLook(t *testing.T) {
	t.Parallel()
	h := newHandler(t, &fake{}, func(cfg *Config) { cfg.Tokens = nil })
	image := header{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
	for _, target := range []string{"/api/outbox", "/api/outbox/main/failures", "/metrics"} {
		wantProblem(t, call(h, "GET", target, "", image), 403, "another site")
		wantProblem(t, call(h, "HEAD", target, "", image.with("Sec-Fetch-Site", "same-site")), 403, "another site")
	}
	for _, target := range []string{"/", "/healthz", "/readyz", "/api/me"} {
		assert.Equal(t, 200, call(h, "GET", target, "", image).Code, target)
	}
	for _, fine := range []header{
		{},
		{"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Dest": "empty"},
		{"Sec-Fetch-Site": "none", "Sec-Fetch-Dest": "document"},
		{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"},
	} {
		assert.Equal(t, 200, call(h, "GET", "/api/outbox/main/failures", "", fine).Code, fine)
	}
}

func TestFewLookIntoOneDatabaseAtATime(t *testing.T) {
	t.Parallel()
	h := newHandler(t, &fake{})
	for range maxLookers {
		h.turn("main") <- struct{}{}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	look := func(ctx context.Context, method string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(ctx, method, "http://fanout.example/api/outbox/main/failures", http.NoBody)
		r.Header.Set("Authorization", "Bearer "+viewerToken)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	wantProblem(t, look(gone, "GET"), 503, "too many look into database main")
	wantProblem(t, look(gone, "HEAD"), 503, "too many look into database main")
	assert.Equal(t, 200, call(h, "GET", "/api/outbox", "", as(viewerToken)).Code)

	done := make(chan int)
	go func() { done <- look(t.Context(), "GET").Code }()
	<-h.turn("main")
	assert.Equal(t, 200, <-done)
	assert.Len(t, h.turn("main"), maxLookers-1)

	slow := &slowReader{ResponseRecorder: httptest.NewRecorder(), held: func() int { return len(h.turn("main")) }}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://fanout.example/api/outbox/main/failures", http.NoBody)
	r.Header.Set("Authorization", "Bearer "+viewerToken)
	h.ServeHTTP(slow, r)
	assert.Equal(t, maxLookers-1, slow.seen, "no turn is held while the answer is read")
}

type slowReader struct {
	*httptest.ResponseRecorder

	held func() int
	seen int
}

func (s *slowReader) Write(text []byte) (int, error) {
	s.seen = s.held()
	return s.ResponseRecorder.Write(text)
}

func TestOperatorsHaveNames(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"": 401, " ": 401, "ben": 200} {
		h := newHandler(t, &fake{}, func(cfg *Config) {
			cfg.Tokens, cfg.Authorise = nil, func(*http.Request) (Identity, error) { return Identity{Name: name, Role: RoleOperator}, nil }
		})
		w := call(h, "POST", actions, `{"action": "requeue", "dry_run": true}`, as("any"))
		assert.Equal(t, status, w.Code, w.Body.String())
	}
}
