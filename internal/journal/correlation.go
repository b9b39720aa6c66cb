package journal

// Correlate gives the events whose context has no correlation id a common one: unit, if their unit of
// work has written events before; else the id that one of them got when it was written before, by a
// transaction that may have committed; else the message id of the first. The latter is the correlation
// id that a consumer takes for an event without one, so that a unit of one event needs no other, and it
// is the same in a repeated attempt, as message ids are. An event that was written before keeps the id
// that it got then, even if the unit has another one. With writes the events keep what they got. It
// returns the common id; "" where every event has one of its own.
func Correlate(flush []Flush, unit string, writes bool) string {
	lacks := func(f *Flush) bool { return f.Context == nil || f.Context.CorrelationID == "" }
	first := -1
	for i := range flush {
		f := &flush[i]
		if !lacks(f) {
			continue
		}
		if first < 0 {
			first = i
		}
		if f.CorrelationID = f.keptCorrelation(); unit == "" {
			unit = f.CorrelationID
		}
	}
	if first < 0 {
		return unit
	}
	if unit == "" {
		unit = flush[first].ID.String()
	}
	for i := first; i < len(flush); i++ {
		f := &flush[i]
		if f.CorrelationID != "" || !lacks(f) {
			continue
		}
		f.CorrelationID = unit
		if writes {
			f.keepCorrelation(unit)
		}
	}
	return unit
}

func (r *Raised) keptCorrelation() string {
	recorder := r.lock()
	defer recorder.unlock()
	return r.correlation
}

func (r *Raised) keepCorrelation(id string) {
	recorder := r.lock()
	defer recorder.unlock()
	r.correlation = id
}

// lock locks the aggregate of an event; nil where it has none, and is that of one transaction.
func (r *Raised) lock() *Recorder {
	for {
		recorder := r.recorder.Load()
		if recorder == nil {
			return nil
		}
		recorder.mu.Lock()
		if r.recorder.Load() == recorder { // else a rollback has given the value one of its own
			return recorder
		}
		recorder.mu.Unlock()
	}
}

func (r *Recorder) unlock() {
	if r != nil {
		r.mu.Unlock()
	}
}

// takeOver makes r the same message as one that it is raised again for.
func (r *Raised) takeOver(before *Raised) {
	r.ID, r.Time, r.correlation = before.ID, before.Time, before.correlation
	if before.Unconfirmed() {
		r.SetUnconfirmed()
	}
}
