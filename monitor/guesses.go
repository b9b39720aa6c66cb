package monitor

import (
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	// guessBurst is how many wrong tokens an address may present at once.
	guessBurst = 10
	// guessEvery is how often it may present another one after that.
	guessEvery = time.Second
	// maxGuessers is of how many addresses we know that they have presented a wrong token. More of
	// them share the room of those that were quiet for longest.
	maxGuessers = 4096
)

// guesses limits how fast an address can try tokens, be they bearer tokens or logins. It is safe
// for concurrent use.
type guesses struct {
	log *slog.Logger
	now func() time.Time

	mu    sync.Mutex
	known map[string]*guesser
}

// guesser is an address that has presented wrong tokens.
type guesser struct {
	free time.Time // when all of its burst is there again
	told bool      // that it is refused
}

func newGuesses(log *slog.Logger, now func() time.Time) *guesses {
	return &guesses{log: log, now: now, known: map[string]*guesser{}}
}

// check refuses an address that has presented too many wrong tokens, without a look at the one that
// it presents now.
func (g *guesses) check(r *http.Request) error {
	from := origin(r)
	g.mu.Lock()
	defer g.mu.Unlock()
	who := g.known[from]
	if who == nil || who.free.Sub(g.now()) <= (guessBurst-1)*guessEvery {
		return nil
	}
	if !who.told {
		who.told = true
		g.log.WarnContext(r.Context(), "monitor address refused: too many wrong tokens", "from", from)
	}
	return problemf(http.StatusTooManyRequests, "too many wrong tokens came from this address: wait a few seconds, then try again with the right one")
}

// wrong notes an unknown token.
func (g *guesses) wrong(r *http.Request) {
	from := origin(r)
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	who := g.known[from]
	if who == nil {
		g.makeRoom(now)
		who = &guesser{}
		g.known[from] = who
	}
	if who.free.Before(now) {
		who.free, who.told = now, false
	}
	who.free = who.free.Add(guessEvery)
}

// makeRoom forgets those whose burst is there again, and where that is not enough, the one that was
// quiet for longest.
func (g *guesses) makeRoom(now time.Time) {
	if len(g.known) < maxGuessers {
		return
	}
	var quiet string
	for from, who := range g.known {
		switch {
		case !who.free.After(now):
			delete(g.known, from)
		case quiet == "" || who.free.Before(g.known[quiet].free):
			quiet = from
		}
	}
	if len(g.known) >= maxGuessers {
		delete(g.known, quiet)
	}
}

// origin is the address that a request comes from, by which it is counted. Whoever has one address
// of IPv6 has the 2^64 around it. What a proxy says about it is not believed, since anybody can say
// it: behind one, all share one address.
func origin(r *http.Request) string {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	address := at.Addr().Unmap().WithZone("")
	if prefix, err := address.Prefix(64); address.Is6() && err == nil {
		return prefix.String()
	}
	return address.String()
}
