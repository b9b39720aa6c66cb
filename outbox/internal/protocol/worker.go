package protocol

import (
	"errors"
	"fmt"
	"slices"
)

// What workers do: claim, send, complete, and die (package outbox: worker.go, delivery.go, lease.go, classify.go).

var errPhase = errors.New("the worker is about something else")

func (s *State) enter(e Entry) {
	at, _ := slices.BinarySearchFunc(s.Ledger, e.ID, func(e Entry, id int) int { return e.ID - id })
	s.Ledger = slices.Insert(s.Ledger, at, e)
}

func (p *Protocol) stepClaim(s *State, a *Action) (Reply, error) {
	w := &s.Workers[a.Worker]
	if w.Phase != Idle || s.Lock != 0 {
		return Reply{}, errPhase
	}
	before := s.Table
	before.Rows, before.Blocks = slices.Clone(s.Rows), slices.Clone(s.Blocks)
	if a.Request.Wake {
		p.wake(&s.Table, a.Request.Shard)
		p.advance(&s.Table, a.Request.Shard)
	}
	var reply Reply
	p.hand(s, w, a, p.choose(&s.Table, a.Request, &reply), &reply)
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
func (p *Protocol) hand(s *State, w *Worker, a *Action, chosen []*Row, reply *Reply) {
	*w = Worker{}
	if len(chosen) == 0 {
		return
	}
	slices.SortFunc(chosen, func(a, b *Row) int { return a.ID - b.ID })
	reply.Token = p.take(&s.Table, chosen)
	held := Worker{Phase: Working, Token: reply.Token, Request: a.Request, Batch: make([]Held, len(chosen))}
	for i, r := range chosen {
		reply.Rows = append(reply.Rows, r.ID)
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
	if w.Phase != Idle || s.Lock != 0 {
		return Reply{}, errPhase
	}
	var reply Reply
	chosen := p.choose(&s.Table, a.Request, &reply)
	*w = Worker{Phase: Choosing, Request: a.Request, Chosen: make([]Row, len(chosen))}
	for i, r := range chosen {
		w.Chosen[i] = *r
	}
	s.Lock = 1 + a.Worker
	return reply, nil
}

func (p *Protocol) stepTake(s *State, a *Action) (Reply, error) {
	w := &s.Workers[a.Worker]
	if w.Phase != Choosing {
		return Reply{}, errPhase
	}
	s.Lock = 0
	chosen := make([]*Row, 0, len(w.Chosen))
	for i := range w.Chosen {
		r := s.Row(w.Chosen[i].ID)
		changed := r == nil || *r != w.Chosen[i]
		if changed && !p.is(takesBlindly) { // the claim breaks off, to be made anew
			*w = Worker{}
			return Reply{}, nil
		}
		if r != nil {
			chosen = append(chosen, r)
		}
	}
	reply := Reply{Seen: len(chosen)}
	p.hand(s, w, a, chosen, &reply)
	return reply, nil
}

func (p *Protocol) stepRenew(s *State, a *Action) (Reply, error) {
	w := &s.Workers[a.Worker]
	if w.Phase != Working || s.Lock != 0 {
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

// stepSend hands rows to the broker, but for what cannot be sent, what has no attempt left, and what must wait for an earlier
// failure of its key.
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

// holds reports whether a row must wait for the outcome of another one of its key, which is to be written first.
func (p *Protocol) holds(w *Worker, h *Held) bool {
	if h.Key == 0 || w.Request.Unordered || p.is(sendsFollowers) {
		return false
	}
	return slices.ContainsFunc(w.Batch, func(other Held) bool {
		return other.Key == h.Key && other.Decided && other.Outcome.Status != Published
	})
}

// stepAnswer is what becomes of the first row that is with the broker. A broker stops a key at its first failure.
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
	h.Decided, h.Outcome = true, p.decide(h, a.Result)
	for i := range w.Batch {
		other := &w.Batch[i]
		notSent := other.Sent && p.holds(w, other) || !other.Sent && a.Result == Unavailable
		if !other.Decided && notSent {
			other.Decided, other.Outcome = true, other.release()
		}
	}
	return Reply{}, nil
}

// decide is the outcome of a row that was sent.
func (p *Protocol) decide(h *Held, result Result) Outcome {
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
	isOther := func(o Outcome) bool { return o.Status != Published }
	if s.Lock != 0 && slices.ContainsFunc(outcomes, isOther) {
		return Reply{}, errLocked // marks of published rows need no lock
	}
	var reply Reply
	if a.Fate != Missed {
		before := s.clone()
		blocks := p.BlockAbandoned && !w.Request.Unordered
		reply.Lost = p.complete(&s.Table, w.Token, outcomes, blocks)
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
		g := s.blockOf(r.Key)
		held := blocks && g != nil && g.Row <= r.ID
		if r.Status == Abandoned && before.Rows[i].Status != Abandoned && !held {
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
	if s.Lock == 1+a.Worker {
		s.Lock = 0
	}
	s.Workers[a.Worker] = Worker{}
	return Reply{}, nil
}
