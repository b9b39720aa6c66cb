package monitor

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gorm-fanout/fanout/internal/limits"
)

// A Role is what an operator may do.
type Role string

// The roles. An operator may do what a viewer may.
const (
	RoleNone     Role = "none"     // nothing
	RoleViewer   Role = "viewer"   // look, but not into payloads and headers
	RoleOperator Role = "operator" // act, and look at payloads and headers
)

func (r Role) covers(wanted Role) bool {
	return r == RoleOperator || r == wanted || wanted == RoleNone
}

// An Identity is who asks. Name goes into the audit.
type Identity struct {
	Name string
	Role Role
}

// Tokens are secrets that give their holders a role. They are safe for concurrent use.
type Tokens struct{ entries []tokenEntry }

type tokenEntry struct {
	identity Identity
	token    string
	hash     [sha256.Size]byte
}

// MinToken is the length that a token must have at least, in bytes: it has to withstand guessing.
// Take a random one.
const MinToken = limits.MinToken

// NewTokens takes tokens by the names of their holders, who are known by them in the audit. All
// problems are reported in one error: a token that is too short, one that two have, a name in both
// maps.
func NewTokens(viewers, operators map[string]string) (*Tokens, error) {
	var (
		tokens   Tokens
		problems []error
	)
	add := func(role Role, named map[string]string) {
		for _, name := range slices.Sorted(maps.Keys(named)) {
			token := named[name]
			hash := sha256.Sum256([]byte(token))
			switch {
			case name == "" || checkText("name", name) != nil || strings.ContainsAny(name, "\r\n"):
				problems = append(problems, fmt.Errorf("monitor: %q is no name for the holder of a token", name))
			case len(token) < MinToken:
				problems = append(problems, fmt.Errorf("monitor: the token of %s %q has %d characters: use at least %d, best random ones", role, name, len(token), MinToken))
			}
			for i := range tokens.entries {
				switch first := &tokens.entries[i]; {
				case first.identity.Name == name:
					problems = append(problems, fmt.Errorf("monitor: %q is a viewer and an operator: an operator may look, too, so leave the viewer out", name))
				case first.hash == hash:
					problems = append(problems, fmt.Errorf("monitor: %q and %q have the same token: give each one of its own", first.identity.Name, name))
				}
			}
			tokens.entries = append(tokens.entries, tokenEntry{identity: Identity{Name: name, Role: role}, token: token, hash: hash})
		}
	}
	add(RoleViewer, viewers)
	add(RoleOperator, operators)
	return &tokens, errors.Join(problems...)
}

// find tells whose token it is. It takes as long for one token as for another.
func (t *Tokens) find(token string) (*tokenEntry, bool) {
	hash := sha256.Sum256([]byte(token))
	found := -1
	for i := range t.entries {
		if subtle.ConstantTimeCompare(hash[:], t.entries[i].hash[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return nil, false
	}
	return &t.entries[found], true
}

// key derives a secret from all tokens.
func (t *Tokens) key(purpose string) []byte {
	mac := hmac.New(sha256.New, []byte("fanout monitor "+purpose))
	for i := range t.entries {
		_, _ = mac.Write(t.entries[i].hash[:])
	}
	return mac.Sum(nil)
}

// bearer is the token that a request presents.
func bearer(r *http.Request) (token string, ok bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "Bearer")
}

// whoIs identifies the caller. An unknown caller has the role none. The error is for who has
// presented too many wrong tokens.
func (h *Handler) whoIs(r *http.Request) (Identity, error) {
	if token, ok := bearer(r); ok && h.cfg.Tokens != nil { // whoever presents a token wants to be who has it, not who the cookie says
		if err := h.guesses.check(r); err != nil {
			return Identity{Role: RoleNone}, err
		}
		if entry, ok := h.cfg.Tokens.find(token); ok {
			return entry.identity, nil
		}
		h.guesses.wrong(r)
		h.log.WarnContext(r.Context(), "monitor request refused: wrong bearer token", "from", r.RemoteAddr)
		return Identity{Role: RoleNone}, nil
	}
	return h.whoElse(r), nil
}

// whoElse tells who asks without a token.
func (h *Handler) whoElse(r *http.Request) Identity {
	unknown := Identity{Role: RoleNone}
	switch {
	case h.cfg.Authorise != nil:
		identity, err := h.cfg.Authorise(r)
		if err != nil || identity.Role != RoleViewer && identity.Role != RoleOperator {
			return unknown
		}
		if identity.Role == RoleOperator && strings.TrimSpace(identity.Name) == "" { // the audit would not say who
			h.log.WarnContext(r.Context(), "monitor operator without a name")
			return unknown
		}
		return identity
	case h.cfg.Tokens == nil:
		return Identity{Role: RoleViewer}
	}
	if identity, ok := h.session(r); ok {
		return identity
	}
	return unknown
}

// protected tells whether anybody is asked who they are.
func (h *Handler) protected() bool { return h.cfg.Authorise != nil || h.cfg.Tokens != nil }

// admit lets a request in, or says why not.
func (h *Handler) admit(q *request) error {
	var err error
	if q.identity, err = h.whoIs(q.Request); err != nil {
		return err
	}
	if err := q.checkParams(); err != nil {
		return err
	}
	if q.route.method == http.MethodPost {
		return h.admitPost(q)
	}
	if !q.route.open && foreign(q.Request) {
		return problemf(http.StatusForbidden, "a page of another site asks for this: open it by itself, or use the dashboard of this server")
	}
	if !q.route.open && !q.identity.Role.covers(q.route.role) {
		return h.denied(q)
	}
	return nil
}

// foreign tells whether a browser says that a page of another site asks, which could not read the
// answer, but could load the databases. Whoever follows a link from there may look.
func foreign(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return (site == "cross-site" || site == "same-site") && r.Header.Get("Sec-Fetch-Dest") != "document"
}

func (h *Handler) denied(q *request) error {
	switch {
	case q.identity.Role == RoleNone:
		return problemf(http.StatusUnauthorized, "say who you are: send the header \"Authorization: Bearer TOKEN\", or log in")
	case !h.protected():
		return problemf(http.StatusForbidden, "everything is read-only here, since callers cannot be distinguished: configure monitor.operator_tokens, or Config.Authorise")
	default:
		return problemf(http.StatusForbidden, "%q may look, but not act: that takes the token of an operator", q.identity.Name)
	}
}

// admitPost lets nothing in that another site has made a browser send.
func (h *Handler) admitPost(q *request) error {
	_, token := bearer(q.Request) // which a proxy may have added to what a browser sends: a browser is taken at its word all the same
	if !sameOrigin(q.Request, q.route.login || token) {
		return problemf(http.StatusForbidden, "the request comes from another site, or does not say from where: send a bearer token, "+
			"or use the dashboard of this server")
	}
	if q.route.login {
		return nil
	}
	if !q.identity.Role.covers(q.route.role) {
		return h.denied(q)
	}
	if kind, _, _ := strings.Cut(q.Header.Get("Content-Type"), ";"); !strings.EqualFold(strings.TrimSpace(kind), "application/json") {
		return problemf(http.StatusUnsupportedMediaType, "the body must be JSON: send the header \"Content-Type: application/json\"")
	}
	if token { // no browser sends it by itself
		return nil
	}
	given := q.Header.Get("X-Fanout-Csrf") // spelt as net/http does
	if subtle.ConstantTimeCompare([]byte(given), []byte(h.csrf(q.Request, q.identity))) != 1 {
		return problemf(http.StatusForbidden, "the header X-Fanout-CSRF is missing or stale: take it from api/me, or send a bearer token; behind a load balancer "+
			"all processes need the same monitor.csrf_key")
	}
	return nil
}

// sameOrigin tells whether a browser says that a page of this server sends the request. lenient
// takes a request that does not say, which a form's may be.
func sameOrigin(r *http.Request, lenient bool) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	origin := r.Header.Get("Origin")
	switch origin {
	case "":
		return lenient
	case "null": // a page that does not want to say
		return false
	}
	from, err := url.Parse(origin)
	return err == nil && from.Host != "" && strings.EqualFold(from.Host, r.Host)
}
