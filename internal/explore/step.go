package explore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gorm-fanout/fanout/internal/core"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// A Protocol holds what is fixed while a world runs. Its methods may be used by several goroutines.
type Protocol struct {
	// MaxAttempts after which a row is abandoned.
	MaxAttempts int
	// BlockAbandoned makes the key of an abandoned row wait for an operator.
	BlockAbandoned bool
	// DeletePublished removes a row as it becomes published.
	DeletePublished bool
	// AdvanceBlocks and AdvanceRows bound what one claim brings back: blocks that are done, and
	// followers of each of these.
	AdvanceBlocks, AdvanceRows int

	broken mutation
	// mistake stands in for [core.State] in tests.
	mistake func(*core.Facts) outbox.State
}

// Default is the protocol as the stores have it.
func Default() *Protocol {
	return &Protocol{MaxAttempts: 5, AdvanceBlocks: driver.MaxDone, AdvanceRows: driver.MaxFollowers}
}

// Step is the transition function: what an action makes of a state, and what a store answers. The
// state is not changed. An error says that the action is not possible in this state.
func (p *Protocol) Step(s *State, a *Action) (State, Reply, error) {
	next := s.clone()
	if a.Kind >= kinds {
		return *s, Reply{}, fmt.Errorf("explore: there is no action of kind %d", a.Kind)
	}
	if a.Worker < 0 || a.Worker >= len(s.Workers) {
		return *s, Reply{}, fmt.Errorf("explore: there is no worker %d", a.Worker)
	}
	reply, err := steps[a.Kind](p, &next, a)
	if err != nil {
		return *s, Reply{}, fmt.Errorf("explore: %w", err)
	}
	return next, reply, nil
}

var steps = [kinds]func(*Protocol, *State, *Action) (Reply, error){
	Write: (*Protocol).stepWrite, Claim: (*Protocol).stepClaim, Look: (*Protocol).stepLook, Take: (*Protocol).stepTake,
	Renew: (*Protocol).stepRenew, Send: (*Protocol).stepSend, Answer: (*Protocol).stepAnswer, Complete: (*Protocol).stepComplete,
	GiveUp: (*Protocol).stepGiveUp, Crash: (*Protocol).stepCrash, Expire: (*Protocol).stepExpire, Pass: (*Protocol).stepPass,
	Defer: (*Protocol).stepDefer, PlanDefer: (*Protocol).stepPlan, PlanLift: (*Protocol).stepPlan,
	Apply: (*Protocol).stepApply, Forget: (*Protocol).stepApply,
	Requeue: (*Protocol).stepOperator, Replay: (*Protocol).stepOperator, Drop: (*Protocol).stepOperator,
	UnblockKey: (*Protocol).stepOperator, Mark: (*Protocol).stepMark, Remove: (*Protocol).stepRemove,
}

func (*Protocol) stepWrite(s *State, a *Action) (Reply, error) {
	for _, n := range a.Rows {
		if s.Entry(n.ID) != nil {
			return Reply{}, fmt.Errorf("row %d is there", n.ID)
		}
		s.insert(Row{ID: n.ID, Key: n.Key, Class: n.Class, At: n.At, Size: n.Size, Dead: n.Dead, Waits: n.Scheduled, Scheduled: n.Scheduled})
		s.enter(Entry{ID: n.ID, Key: n.Key, Class: n.Class})
	}
	return Reply{}, nil
}

func (*Protocol) stepExpire(s *State, a *Action) (Reply, error) {
	found := false
	for i := range s.Rows {
		if r := &s.Rows[i]; r.leased() && r.Token == a.Token {
			found, r.Waits = true, false
			s.Entry(r.ID).Excused = true
		}
	}
	if w := s.holder(a.Token); w != nil {
		found, w.Late = true, true // its own clock starts earlier and runs for less
	}
	if !found {
		return Reply{}, fmt.Errorf("token %d has no lease", a.Token)
	}
	return Reply{}, nil
}

func (*Protocol) stepPass(s *State, a *Action) (Reply, error) {
	r, g := s.Row(a.ID), s.block(a.ID)
	if r == nil && g == nil || r != nil && r.leased() {
		return Reply{}, fmt.Errorf("row %d waits for no time", a.ID)
	}
	if r != nil {
		r.Waits = false
	}
	if g != nil && g.Wake == Rests {
		g.Wake = Due
	}
	return Reply{}, nil
}

func (p *Protocol) stepDefer(s *State, a *Action) (Reply, error) {
	plan := p.planDefer(&s.Table, a.Request)
	return Reply{Deferred: p.apply(&s.Table, &plan)}, nil
}

func (p *Protocol) stepPlan(s *State, a *Action) (Reply, error) {
	plan := p.planLift(&s.Table, a.Request)
	if a.Kind == PlanDefer {
		plan = p.planDefer(&s.Table, a.Request)
	}
	if plan.nothing() {
		return Reply{}, errors.New("there is nothing to change")
	}
	s.Plans = append(s.Plans, plan)
	return Reply{}, nil
}

func (p *Protocol) stepApply(s *State, a *Action) (reply Reply, err error) {
	if a.ID < 0 || a.ID >= len(s.Plans) {
		return Reply{}, fmt.Errorf("there is no plan %d", a.ID)
	}
	plan := s.Plans[a.ID]
	s.Plans = slices.Delete(s.Plans, a.ID, a.ID+1)
	if a.Kind == Apply {
		reply.Deferred = p.apply(&s.Table, &plan)
	}
	return reply, nil
}

func (p *Protocol) stepOperator(s *State, a *Action) (Reply, error) {
	if a.Kind == UnblockKey {
		classes, err := p.unblockKey(&s.Table, a.Key)
		for _, class := range classes {
			s.letGo(a.Key, class)
		}
		return Reply{}, err
	}
	ids := []int{a.ID}
	if a.Also != 0 {
		ids = append(ids, a.Also)
	}
	if a.Kind != Drop {
		for _, id := range ids {
			if g := s.block(id); g != nil && g.Wake == Operator { // who requeues the row that blocks a key decides about the key
				s.letGo(g.Key, g.Shard)
			}
		}
	}
	if err := p.operate(&s.Table, acts[a.Kind], ids...); err != nil {
		return Reply{}, err
	}
	for _, id := range ids {
		e := s.Entry(id)
		if a.Kind == Drop {
			e.LetGo = true
		} else {
			e.Back, e.Excused = true, true
		}
	}
	return Reply{}, nil
}

// letGo notes that the abandoned rows of a key in a class, purged ones included, do not hold it back
// any more.
func (s *State) letGo(key int, class Class) {
	for i := range s.Ledger {
		e := &s.Ledger[i]
		if r := s.Row(e.ID); e.Key == key && e.Class == class && (e.Gone || r != nil && r.Status == Abandoned) {
			e.LetGo = true
		}
	}
}

func (p *Protocol) stepMark(s *State, a *Action) (Reply, error) {
	if !a.Status.Terminal() || len(s.Victims) > 0 {
		return Reply{}, fmt.Errorf("rows that are %s cannot be purged now", a.Status)
	}
	s.Victims, s.Purging = p.victims(&s.Table, a.Status, a.Limit), a.Status
	return Reply{}, nil
}

func (p *Protocol) stepRemove(s *State, _ *Action) (Reply, error) {
	removed := p.remove(&s.Table, s.Victims, s.Purging)
	for _, id := range removed {
		s.Entry(id).Gone = true
	}
	s.Victims, s.Purging = nil, 0
	return Reply{Rows: removed}, nil
}
