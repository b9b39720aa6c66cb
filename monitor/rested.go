package monitor

import (
	"sync"
	"time"
)

const (
	// restFactor is for how many times as long as it took to make it an answer is given again: whoever
	// asks, and whatever stands in the rows, it takes a tenth of a processor.
	restFactor = 10
	// cheap is what is not kept: invented names would push out what costs something.
	cheap = 50 * time.Millisecond
	// maxRested is how many answers are kept.
	maxRested = 64
)

// rested keeps answers that may take long to make. One is made at a time for each key. It is safe for
// concurrent use.
type rested[K comparable, V any] struct {
	mu      sync.Mutex
	answers map[K]*restedAnswer[V]
}

type restedAnswer[V any] struct {
	mu    sync.Mutex
	until time.Time
	value V
}

// get returns the answer that is kept, or makes it. An error is not kept.
func (r *rested[K, V]) get(key K, now func() time.Time, ask func() (V, error)) (V, error) {
	answer := r.of(key)
	answer.mu.Lock()
	defer answer.mu.Unlock()
	began := now()
	if began.Before(answer.until) {
		return answer.value, nil
	}
	value, err := ask()
	if err == nil {
		ended := now()
		answer.value, answer.until = value, ended.Add(restFactor*ended.Sub(began))
		if ended.Sub(began) < cheap {
			r.drop(key, answer)
		}
	}
	return value, err
}

func (r *rested[K, V]) of(key K) *restedAnswer[V] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answers == nil || len(r.answers) >= maxRested && r.answers[key] == nil {
		r.answers = map[K]*restedAnswer[V]{}
	}
	if r.answers[key] == nil {
		r.answers[key] = &restedAnswer[V]{}
	}
	return r.answers[key]
}

// drop keeps an answer no longer.
func (r *rested[K, V]) drop(key K, answer *restedAnswer[V]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answers[key] == answer {
		delete(r.answers, key)
	}
}

// forget makes all answers anew, after something was done.
func (r *rested[K, V]) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers = nil
}
