package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/monitor"
)

// progress shows how far long work is: as a bar that is drawn again on a terminal, and as a line
// now and then elsewhere.
type progress struct {
	w     io.Writer
	verb  string
	bar   bool
	now   func() time.Time
	shown time.Time
	last  monitor.Progress
	drawn bool
}

const (
	barEvery  = 100 * time.Millisecond
	lineEvery = 5 * time.Second
	barWidth  = 30
)

func newProgress(w io.Writer, verb string) *progress {
	p := &progress{w: w, verb: verb, bar: isTerminal(w), now: time.Now}
	p.shown = p.now()
	return p
}

// step is called after each chunk.
func (p *progress) step(step monitor.Progress) {
	if p.last.Database != step.Database {
		p.end()
	}
	p.last = step
	every := lineEvery
	if p.bar {
		every = barEvery
	}
	if now := p.now(); now.Sub(p.shown) >= every {
		p.shown = now
		p.show()
	}
}

func (p *progress) show() {
	line := fmt.Sprintf("%s: %s %s of %s rows", p.last.Database, p.verb, thousands(p.last.Done), countText(p.last.Matched))
	if !p.bar {
		_, _ = fmt.Fprintln(p.w, line)
		return
	}
	filled := 0
	if p.last.Matched.N > 0 {
		filled = int(min(barWidth, barWidth*p.last.Done/p.last.Matched.N))
	}
	_, _ = fmt.Fprintf(p.w, "\r\x1b[K[%s%s] %s", strings.Repeat("#", filled), strings.Repeat(".", barWidth-filled), line)
	p.drawn = true
}

// end leaves the terminal in order: the result follows in a line of its own.
func (p *progress) end() {
	if p.drawn {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
	}
	p.drawn = false
}
