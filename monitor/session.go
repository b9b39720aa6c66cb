package monitor

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// sessionTime is how long a login lasts.
const sessionTime = 12 * time.Hour

// The cookie's name: a browser takes the first one over TLS alone, for this host alone, and from no
// subdomain.
const (
	secureCookie = "__Host-fanout"
	plainCookie  = "fanout"
)

// isSecure tells whether the client speaks TLS, to us or to the proxy in front of us. One who
// pretends to only harms himself.
func isSecure(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

func cookieName(r *http.Request) string {
	if isSecure(r) {
		return secureCookie
	}
	return plainCookie
}

// sign makes the seal of a session. It is made with the token itself: when the token goes, so do
// its sessions, and any process that has the token knows them.
func (e *tokenEntry) sign(payload string) string {
	mac := hmac.New(sha256.New, []byte(e.token))
	_, _ = mac.Write([]byte("fanout monitor session\x00" + payload))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// newSession is the value of the cookie: name, end and seal.
func (e *tokenEntry) newSession(now time.Time) string {
	payload := base64.RawURLEncoding.EncodeToString([]byte(e.identity.Name)) + "." + strconv.FormatInt(now.Add(sessionTime).Unix(), 10)
	return payload + "." + e.sign(payload)
}

// session reads the cookie of a request.
func (h *Handler) session(r *http.Request) (Identity, bool) {
	cookie, err := r.Cookie(cookieName(r))
	if err != nil {
		return Identity{}, false
	}
	at := strings.LastIndexByte(cookie.Value, '.')
	if at < 0 {
		return Identity{}, false
	}
	payload, seal := cookie.Value[:at], cookie.Value[at+1:]
	encoded, end, _ := strings.Cut(payload, ".")
	name, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return Identity{}, false
	}
	until, err := strconv.ParseInt(end, 10, 64)
	if err != nil || h.now().Unix() >= until {
		return Identity{}, false
	}
	for i := range h.cfg.Tokens.entries {
		entry := &h.cfg.Tokens.entries[i]
		if entry.identity.Name == string(name) {
			return entry.identity, hmac.Equal([]byte(entry.sign(payload)), []byte(seal))
		}
	}
	return Identity{}, false
}

// csrf is what a page of this server knows and a page of another one cannot: it belongs to a person
// and, after a login, to the session.
func (h *Handler) csrf(r *http.Request, who Identity) string {
	if who.Role == RoleNone {
		return ""
	}
	mac := hmac.New(sha256.New, h.csrfKey)
	_, _ = mac.Write([]byte(string(who.Role) + "\x00" + who.Name + "\x00"))
	if h.cfg.Tokens != nil {
		if cookie, err := r.Cookie(cookieName(r)); err == nil {
			_, _ = mac.Write([]byte(cookie.Value))
		}
	}
	return hex.EncodeToString(mac.Sum(nil))
}

func (h *Handler) setCookie(w http.ResponseWriter, r *http.Request, value string, age int) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure is set where the client speaks TLS
		Name: cookieName(r), Value: value, Path: "/", MaxAge: age, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: isSecure(r), // over plain HTTP, as on the loopback interface, a browser would not keep it
	})
}

// logIn checks a token and sets the cookie.
func (h *Handler) logIn(w http.ResponseWriter, r *http.Request, token string) (*tokenEntry, string, error) {
	if h.cfg.Tokens == nil {
		return nil, "", problemf(http.StatusNotFound, "there is nothing to log in to: this server has no tokens")
	}
	if err := h.guesses.check(r); err != nil {
		return nil, "", err
	}
	entry, ok := h.cfg.Tokens.find(token)
	if !ok {
		h.guesses.wrong(r)
		h.log.WarnContext(r.Context(), "monitor login refused: wrong token", "from", r.RemoteAddr)
		return nil, "", problemf(http.StatusUnauthorized, "this token is not known")
	}
	session := entry.newSession(h.now())
	h.setCookie(w, r, session, int(sessionTime.Seconds()))
	return entry, session, nil
}

type loginBody struct {
	Token string `json:"token"`
}

// postLogin is the dashboard's.
func (h *Handler) postLogin(w http.ResponseWriter, q *request) error {
	var body loginBody
	if err := q.decode(&body); err != nil {
		return err
	}
	entry, session, err := h.logIn(w, q.Request, body.Token)
	if err != nil {
		return err
	}
	after := q.Clone(q.Context())
	after.Header.Set("Cookie", cookieName(q.Request)+"="+session)
	return answer(w, h.me(after, entry.identity))
}

func (h *Handler) postLogout(w http.ResponseWriter, q *request) error {
	h.setCookie(w, q.Request, "", -1)
	return answer(w, h.me(q.Request, Identity{Role: RoleNone}))
}

// formLogin is for a form without a script: the field is named token.
func (h *Handler) formLogin(w http.ResponseWriter, q *request) error {
	if err := q.ParseForm(); err != nil {
		return problemf(http.StatusBadRequest, "the form cannot be read")
	}
	if _, _, err := h.logIn(w, q.Request, q.PostForm.Get("token")); err != nil {
		return err
	}
	return home(w)
}

func (h *Handler) formLogout(w http.ResponseWriter, q *request) error {
	h.setCookie(w, q.Request, "", -1)
	return home(w)
}

// home leads to the dashboard, whatever the prefix is.
func home(w http.ResponseWriter) error {
	w.Header().Set("Location", "./")
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// meAnswer is who asks.
type meAnswer struct {
	Name    string `json:"name"`
	Role    Role   `json:"role"`
	Actions bool   `json:"actions"`
	CSRF    string `json:"csrf"`
	Version string `json:"version"`
}

func (h *Handler) me(r *http.Request, who Identity) meAnswer {
	me := meAnswer{Name: who.Name, Role: who.Role, Actions: who.Role == RoleOperator, CSRF: h.csrf(r, who)}
	if who.Role != RoleNone {
		me.Version = h.cfg.Version
	}
	return me
}

func (h *Handler) getMe(w http.ResponseWriter, q *request) error {
	return answer(w, h.me(q.Request, q.identity))
}
