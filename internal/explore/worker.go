package explore

import (
	"errors"
	"fmt"
	"slices"
)

// What workers do: claim, send, complete, and die (package outbox: worker.go, delivery.go,
// lease.go, classify.go).

var errPhase = errors.New("the worker is about something else")

func (s *State) enter(e Entry) {
	at, _ := slices.BinarySearchFunc(s.Ledger, e.ID, func(e Entry, id int) int { return e.ID - id })
	s.Ledger = slices.Insert(s.Ledger, at, e)
}

func (p *Protocol) stepClaim(s *State, a *Action) (Reply, error) {
	w := &s.Workers[a.Worker]
	if w.Phase != Idle {
		return Reply{}, errPhase
	}
	before := s.Table
	before.Rows, before.Blocks = slices.Clone(s.Rows), slices.Clone(s.Blocks)
	var reply Reply
	window := p.window(&s.Table, a.Request)
	plan := Plan{}
	if a.Request.Wake {
		plan = p.planLift(&s.Table, a.Request)
	}
	lifts := !plan.nothing()
	if lifts && !simple(&window, a.Request) {
		_ = p.apply(&s.Table, &plan)
		window, lifts = p.window(&s.Table, a.Request), false
	}
	p.hand(s, w, a, p.decide(&s.Table, a.Request, &window, &reply), &reply)
	if lifts { // what was taken unchanged has no block
		_ = p.apply(&s.Table, &plan)
	}
	if a.Fate == Undone {
		before.Token = s.Token // a token is never given out again
		s.Table = before
		w.Undone = true
		for _, id := range reply.Rows {
			s.Entry(id).Excused = true
		}
	}
	return reply, nil
}

// hand gives the chosen rows to a worker, unless it does not learn of it.
func (p *Protocol) hand(s *State, w *Worker, a *Action, chosen []int, reply *Reply) {
	request := a.Request
	if a.Kind == Take {
		request = w.Request
	}
	request.Held = 0 // it was for the window alone
	*w = Worker{}
	if len(chosen) == 0 {
		return
	}
	reply.Token, reply.Rows = p.take(&s.Table, chosen), chosen
	held := Worker{Phase: Working, Token: reply.Token, Request: request, Batch: make([]Held, len(chosen))}
	for i, id := range chosen {
		r := s.Row(id)
		if r == nil {
			continue
		}
		s.Entry(r.ID).Passed = s.scheduledBefore(r)
		held.Batch[i] = Held{ID: r.ID, Key: r.Key, Attempts: r.Attempts, Dead: r.Dead}
		if a.Fate != Undone {
			s.Entry(r.ID).Shared = len(chosen) > 1
		}
	}
	if a.Fate != Lost {
		*w = held
	}
}

func (p *Protocol) stepLook(s *State, a *Action) (Reply, error) {
	w := &s.Workers[a.Worker]
	if w.Phase != Idle {
		return Reply{}, errPhase
	}
	var reply Reply
	window := p.window(&s.Table, a.Request)
	chosen := p.decide(&s.Table, a.Request, &window, &reply)
	if len(chosen) == 0 {
		return reply, nil
	}
	*w = Worker{Phase: Choosing, Request: a.Request, Chosen: chosen, Version: s.Version}
	return reply, nil
}

func (p *Protocol) stepTake(s *State, a *Action) (Reply, error) {
	w := &s.Workers[a.Worker]
	if w.Phase != Choosing {
		return Reply{}, errPhase
	}
	if !p.mayTake(&s.Table, w.Version, w.Chosen) { // the claim breaks off, to be made anew
		*w = Worker{}
		return Reply{}, nil
	}
	reply := Reply{Seen: len(w.Chosen)}
	p.hand(s, w, a, w.Chosen, &reply)
	return reply, nil
}

func (p *Protocol) stepRenew(s *State, a *Action) (Reply, error) {
	w := &s.Workers[a.Worker]
	if w.Phase != Working {
		return Reply{}, errPhase
	}
	reply := Reply{}
	if a.Fate != Missed {
		reply.Kept = p.renew(&s.Table, w.Token)
	}
	if a.Fate == Known && reply.Kept < len(w.Batch) {
		w.Late = true
	}
	return reply, nil
}

// stepSend hands rows to the broker, but for what cannot be sent, what has no attempt left, and
// what must wait for an earlier failure of its key.
func (p *Protocol) stepSend(s *State, a *Action) (Reply, error) {
	w := &s.Workers[a.Worker]
	if w.Phase != Working || len(w.Flying()) > 0 || !w.Undecided() || w.Late && !p.is(sendsLate) {
		return Reply{}, errPhase
	}
	for _, h := range p.chunk(w, a.Limit) {
		if p.holds(w, h) {
			h.Decided, h.Outcome = true, h.release()
		} else {
			h.Sent = true
		}
	}
	return Reply{Rows: w.Flying()}, nil
}

// chunk collects what can be sent, and abandons on its way what never can.
func (p *Protocol) chunk(w *Worker, limit int) (chunk []*Held) {
	for i := range w.Batch {
		h := &w.Batch[i]
		switch {
		case h.Sent || h.Decided || len(chunk) == limit:
		case h.Dead || h.Attempts >= p.MaxAttempts && !p.is(neverGivesUp):
			o := Outcome{ID: h.ID, Status: Abandoned}
			if p.BlockAbandoned && p.holds(w, h) {
				o = h.release() // its key is blocked behind the first one
			}
			h.Decided, h.Outcome = true, o
		default:
			chunk = append(chunk, h)
		}
	}
	return chunk
}

// holds reports whether a row must wait for the outcome of another one of its key, which is to be
// written first.
func (p *Protocol) holds(w *Worker, h *Held) bool {
	if h.Key == 0 || w.Request.Unordered || p.is(sendsFollowers) {
		return false
	}
	return slices.ContainsFunc(w.Batch, func(other Held) bool {
		return other.Key == h.Key && other.Decided && other.Outcome.Status != Published
	})
}

// stepAnswer is what becomes of the first row that is with the broker. A broker stops a key at its
// first failure.
func (p *Protocol) stepAnswer(s *State, a *Action) (Reply, error) {
	w := &s.Workers[a.Worker]
	flying := w.Flying()
	if len(flying) == 0 {
		return Reply{}, errPhase
	}
	at := slices.IndexFunc(w.Batch, func(h Held) bool { return h.ID == flying[0] })
	h := &w.Batch[at]
	if a.Result == Accepted || a.Result == AnswerLost {
		e := s.Entry(h.ID)
		if e == nil {
			return Reply{}, fmt.Errorf("row %d was never committed", h.ID)
		}
		e.Delivered++
		e.Excused = e.Excused || a.Result == AnswerLost
	}
	h.Decided, h.Outcome = true, p.outcome(h, a.Result)
	for i := range w.Batch {
		other := &w.Batch[i]
		notSent := other.Sent && p.holds(w, other) || !other.Sent && a.Result == Unavailable
		if !other.Decided && notSent {
			other.Decided, other.Outcome = true, other.release()
		}
	}
	return Reply{}, nil
}

// outcome is that of a row that was sent.
func (p *Protocol) outcome(h *Held, result Result) Outcome {
	o := h.release()
	switch {
	case result == Accepted && p.is(forgetsDelivered):
		return o
	case result != Refused && p.is(guessesPublished):
		return Outcome{ID: h.ID, Status: Published, Spent: true}
	}
	switch result {
	case Accepted:
		return Outcome{ID: h.ID, Status: Published, Spent: true}
	case Refused:
		return Outcome{ID: h.ID, Status: Abandoned, Spent: true}
	case Unavailable, Closed:
		o.Wait, o.Spent = result == Closed, p.is(spendsOnOutage)
	default:
		if h.Attempts+1 >= p.MaxAttempts && !p.is(neverGivesUp) {
			return Outcome{ID: h.ID, Status: Abandoned, Spent: true}
		}
		o = Outcome{ID: h.ID, Status: Failed, Wait: true, Spent: true}
	}
	return o
}

func (p *Protocol) stepComplete(s *State, a *Action) (Reply, error) {
	w := &s.Workers[a.Worker]
	if w.Phase != Working && w.Phase != Asking || len(w.Flying()) > 0 {
		return Reply{}, errPhase
	}
	outcomes := a.Outcomes
	if outcomes == nil {
		outcomes = w.Outcomes()
	}
	var reply Reply
	if a.Fate != Missed {
		before := s.clone()
		blocks := p.BlockAbandoned && !w.Request.Unordered
		var gone []int
		reply.Lost, gone = p.complete(&s.Table, w.Token, outcomes, blocks)
		for _, id := range gone {
			s.Entry(id).Gone = true
		}
		s.noteAbandoned(&before, blocks)
	}
	if a.Fate == Known {
		*w = Worker{}
	} else {
		w.Phase = Asking
	}
	return reply, nil
}

// noteAbandoned notes whose keys go on without them.
func (s *State) noteAbandoned(before *State, blocks bool) {
	for i := range s.Rows {
		r := &s.Rows[i]
		g := s.blockOf(r.Key, r.Class)
		held := blocks && g != nil && g.Row <= r.ID
		if r.Status == Abandoned && before.Row(r.ID).Status != Abandoned && !held {
			s.Entry(r.ID).LetGo = true
		}
	}
}

func (*Protocol) stepGiveUp(s *State, a *Action) (Reply, error) {
	if s.Workers[a.Worker].Phase != Asking {
		return Reply{}, errPhase
	}
	s.Workers[a.Worker] = Worker{}
	return Reply{}, nil
}

func (*Protocol) stepCrash(s *State, a *Action) (Reply, error) {
	s.Workers[a.Worker] = Worker{}
	return Reply{}, nil
}
