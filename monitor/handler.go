package monitor

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/outbox/relay"
)

// Config of a handler. Zero values take the defaults.
type Config struct {
	// Console that the handler shows. Required.
	Console *Console
	// Stats returns the counters of the engine that runs in this process. They give the rates, the
	// breakers and the listeners. Default: none runs here; rates then come from the database as far
	// as it knows them.
	Stats func() []relay.Stats
	// Running tells whether that engine runs; /readyz asks it. Default: no check.
	Running func() bool
	// Authorise says who asks. An error is answered with 401 and is not shown. Default: by Tokens;
	// without them anyone may look, and no one may act or see a payload.
	Authorise func(*http.Request) (Identity, error)
	// Tokens that may be presented, as bearer tokens or to log in. Not together with Authorise.
	Tokens *Tokens
	// CSRFKey is a secret of at least [MinToken] characters from which the proof is made that a
	// page of this server sends a request. All processes behind one load balancer need the same, or
	// each refuses what another one's pages send. Default: one derived from Tokens, so that
	// processes with the same tokens agree; with Authorise a random one of this process alone,
	// which ends with it.
	CSRFKey string
	// Assets of the dashboard, index.html among them. Default: a plain page that names the API.
	Assets fs.FS
	// Metrics answers GET /metrics, to those who may look. Default: 404.
	Metrics http.Handler
	// MaxCount is where counts end; more takes longer. Default: [DefaultMaxCount].
	MaxCount int
	// Timeout of one request that changes nothing. Default 30 s. Actions have ten minutes.
	Timeout time.Duration
	// Version of the program, for those who look.
	Version string
	// Log gets what went wrong inside. Default: slog.Default().
	Log *slog.Logger
}

const (
	defaultRequestTime = 30 * time.Second
	actionTime         = 10 * time.Minute
)

// A Handler is the HTTP interface of a console: the API, the probes and the dashboard. It can be
// mounted under any prefix, with http.StripPrefix. It is safe for concurrent use.
type Handler struct {
	console *Console
	cfg     Config
	log     *slog.Logger
	routes  []route
	csrfKey []byte
	guesses *guesses
	now     func() time.Time

	history *history
	turns   sync.Map // of those who look into one database
	latest  latest[map[string]DatabaseStatus]
	ready   latest[[]string]
	// behind is asked for less often than the rest: it looks at what was published.
	behind latest[[]ConsumerStatus]

	failures rested[failuresOf, FailureGroups]
}

// New checks the configuration; all problems are reported in one error.
func New(cfg Config) (*Handler, error) {
	var problems []error
	if cfg.Console == nil {
		problems = append(problems, errors.New("monitor: the handler has no console: give it one of NewConsole"))
	}
	if cfg.Authorise != nil && cfg.Tokens != nil {
		problems = append(problems, errors.New("monitor: Authorise and Tokens are both set: use one"))
	}
	if cfg.MaxCount < 0 || cfg.Timeout < 0 {
		problems = append(problems, fmt.Errorf("monitor: MaxCount is %d and Timeout is %s: use positive values, or 0 for the default", cfg.MaxCount, cfg.Timeout))
	}
	if n := len(cfg.CSRFKey); n > 0 && n < MinToken {
		problems = append(problems, fmt.Errorf("monitor: CSRFKey has %d characters: use at least %d, best random ones", n, MinToken))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if cfg.MaxCount == 0 {
		cfg.MaxCount = DefaultMaxCount
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultRequestTime
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	h := &Handler{console: cfg.Console, cfg: cfg, log: cfg.Log, now: time.Now, history: newHistory(), behind: latest[[]ConsumerStatus]{keep: keepBehind}}
	h.guesses = newGuesses(h.log, func() time.Time { return h.now() })
	switch { // the same in all processes that have the same key or the same tokens, so that any of them may answer
	case cfg.CSRFKey != "":
		key := hmac.New(sha256.New, []byte(cfg.CSRFKey))
		_, _ = key.Write([]byte("fanout monitor csrf"))
		h.csrfKey = key.Sum(nil)
	case cfg.Tokens != nil:
		h.csrfKey = cfg.Tokens.key("csrf")
	default:
		h.csrfKey = make([]byte, 32)
		_, _ = rand.Read(h.csrfKey) // it never fails
	}
	h.routes = h.table()
	return h, nil
}

// Run takes the samples of /api/outbox/history until ctx ends, and then returns nil. Without it the
// history stays empty.
func (h *Handler) Run(ctx context.Context) error {
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	for {
		h.sample(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	headers(w.Header())
	match, values, allowed := h.find(r.Method, r.URL.EscapedPath())
	switch {
	case match == nil && len(allowed) > 0:
		w.Header()["Allow"] = []string{allowed}
		h.fail(w, r, problemf(http.StatusMethodNotAllowed, "this address takes %s", allowed))
		return
	case match == nil:
		h.fail(w, r, problemf(http.StatusNotFound, "there is no such address: see openapi.json"))
		return
	}
	limit := h.cfg.Timeout
	if match.slow {
		limit = actionTime
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	r = r.WithContext(ctx)
	r.Body = http.MaxBytesReader(w, r.Body, match.maxBody())
	q := &request{Request: r, values: values, route: match}
	err := h.admit(q)
	if err == nil {
		err = h.serve(w, q)
	}
	if err != nil {
		h.fail(w, r, err)
	}
}

// maxLookers is how many requests may look into one database at a time; the others wait. They share
// its connections with the engine, which has three to spare.
const maxLookers = 2

// turn has a place for each who looks into a database; nil where there is no such database.
func (h *Handler) turn(database string) chan struct{} {
	if _, err := h.console.store(database); err != nil {
		return nil
	}
	turn, _ := h.turns.LoadOrStore(database, make(chan struct{}, maxLookers))
	return turn.(chan struct{}) //nolint:forcetypeassert // nothing else is in it
}

func (h *Handler) serve(w http.ResponseWriter, q *request) error {
	if turn := h.turn(q.values["db"]); turn != nil && q.route.method == http.MethodGet {
		select {
		case turn <- struct{}{}:
			release := sync.OnceFunc(func() { <-turn })
			defer release()
			w = &turnWriter{w, release}
		case <-q.Context().Done():
			return problemf(http.StatusServiceUnavailable, "too many look into database %s at once: try again later", q.values["db"])
		}
	}
	return q.route.serve(w, q)
}

// turnWriter ends a turn once there is an answer: a slow reader keeps no other request waiting.
type turnWriter struct {
	http.ResponseWriter

	release func()
}

// WriteHeader implements http.ResponseWriter.
func (t *turnWriter) WriteHeader(status int) {
	t.release()
	t.ResponseWriter.WriteHeader(status)
}

// headers that every answer has: nothing is loaded from elsewhere, framed, guessed, kept or told to
// others.
func headers(header http.Header) {
	header.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
}

// request is a request that was matched with its route.
type request struct {
	*http.Request

	values   map[string]string
	route    *route
	identity Identity
}

// latest keeps an answer for a short while, so that many who look cost the database no more than
// one. One asks, and the others wait for it.
type latest[T any] struct {
	// keep is how long; default keepLatest.
	keep  time.Duration
	mu    sync.Mutex
	at    time.Time
	value T
}

// keepLatest is how long most answers are kept.
const keepLatest = time.Second

func (l *latest[T]) get(ctx context.Context, now func() time.Time, ask func(context.Context) T) T {
	l.mu.Lock()
	defer l.mu.Unlock()
	if age := now().Sub(l.at); l.at.IsZero() || age < 0 || age >= cmp.Or(l.keep, keepLatest) {
		value := ask(context.WithoutCancel(ctx)) // others will read it, also when this one has gone
		l.value, l.at = value, now()
	}
	return l.value
}
