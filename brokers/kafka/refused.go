package kafka

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
)

// refused remembers messages that a partition has refused, perhaps as it refuses all: which one it is that is
// to blame, only others of the partition tell, and few of them may come in one call. It is empty, as a rule.
type refused struct {
	some   atomic.Bool
	mu     sync.Mutex
	since  map[string]time.Time    // when a message was refused, first or since that was proven, by id
	passed map[partition]time.Time // when the last round began in which a partition has confirmed something
	tidied time.Time
}

const (
	// mostRefused bounds the messages in it. Where there are more, all begins anew.
	mostRefused = 10_000
	// refusedFor is how long a message is remembered that does not come again: it was abandoned, say.
	refusedFor = time.Hour
)

// pass notes that a partition has confirmed a message, in a round that began then.
func (r *refused) pass(at partition, id string, began time.Time) {
	if !r.some.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.since, id)
	if len(r.since) == 0 {
		r.forget()
		return
	}
	if _, known := r.passed[at]; known || len(r.passed) < mostRemembered {
		r.passed[at] = began
	}
}

// note notes that a partition has refused a message, be it with others.
func (r *refused) note(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since == nil || len(r.since) >= mostRefused {
		r.forget()
	}
	if _, known := r.since[id]; !known {
		r.since[id] = time.Now()
	}
	r.some.Store(true)
}

// tidy forgets what does not come again.
func (r *refused) tidy() {
	if !r.some.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Sub(r.tidied) < refusedFor/8 {
		return
	}
	r.tidied = now
	maps.DeleteFunc(r.since, func(_ string, since time.Time) bool { return now.Sub(since) > refusedFor })
	if len(r.since) == 0 {
		r.forget()
	}
}

// proven reports whether a partition has confirmed others since a message was refused, which then counts once: it
// may begin to refuse all.
func (r *refused) proven(at partition, id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	since, known := r.since[id]
	if !known || !r.passed[at].After(since) {
		return false
	}
	r.since[id] = time.Now()
	return true
}

func (r *refused) forget() {
	r.since, r.passed = map[string]time.Time{}, map[partition]time.Time{}
	r.some.Store(false)
}

// refuse takes note of an item that was refused, where the partition may refuse all.
func (p *publication) refuse(it item) {
	if errors.Is(it.err, errHungUp) || rules[code(it.err)].scope == brokers.ScopePartition {
		p.refused.note(p.msgs[it.index].ID)
	}
}

// judge makes the refusal of an item by its partition one of the destination, where the partition takes others.
// Else it is asked again at the end of the call.
func (p *publication) judge(it item, failure error) error {
	by, refused := brokers.Refusal(failure)
	switch {
	case !refused || by != brokers.ScopePartition:
	case p.refused.proven(partition{it.record.Topic, it.record.Partition}, p.msgs[it.index].ID):
		return ofTopic(failure)
	default:
		p.doubted = append(p.doubted, it)
	}
	return failure
}

// judgeAgain does so at the end of a call.
func (p *publication) judgeAgain() {
	for _, it := range p.doubted {
		if p.refused.proven(partition{it.record.Topic, it.record.Partition}, p.msgs[it.index].ID) {
			p.Settle(it.index, ofTopic(p.classified(it, it.err)))
		}
	}
}
