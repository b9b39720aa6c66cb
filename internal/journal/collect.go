package journal

import (
	"cmp"
	"slices"

	"github.com/gorm-fanout/fanout/envelope"
)

// Flush is one event that a commit is to write.
type Flush struct {
	*Raised
	Source  envelope.Source
	Context *envelope.Context // shared; read it only
	// CorrelationID is what the event gets in place of one of its context, where that has none: see Correlate.
	CorrelationID string

	recorder *Recorder
}

// MayBeWritten notes that a commit got no answer: see SetUnconfirmed. What the aggregate says next under the same version may be
// the second to say so, and has no sequence.
func (f *Flush) MayBeWritten() {
	f.SetUnconfirmed()
	if f.recorder != nil {
		f.recorder.WroteVersion(f.Source.Version)
	}
}

// Collect returns what a commit is to flush now, in the order in which it was raised. It changes
// nothing: should the commit fail, everything is still pending. With writes, other transactions leave
// these events alone until this one has ended. The error is a *SharedEventsError.
func (j *Journal) Collect(writes bool) ([]Flush, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ofCopies = nil
	if len(j.entries) == 0 {
		return nil, nil
	}
	var (
		flush []Flush
		seen  map[*Recorder]*entry
		mixed map[*Recorder]bool
	)
	if len(j.entries) > 1 { // most transactions write one aggregate and need no map
		seen = make(map[*Recorder]*entry, len(j.entries))
	}
	for i := len(j.entries) - 1; i >= 0; i-- { // the last write of an aggregate counts
		e := &j.entries[i]
		if e.event != nil {
			flush = append(flush, Flush{Raised: e.event, Context: e.context})
			continue
		}
		if last := seen[e.recorder]; last != nil {
			if last.instance() != e.instance() {
				if mixed == nil {
					mixed = make(map[*Recorder]bool)
				}
				mixed[e.recorder] = true
			}
			continue
		}
		if seen != nil {
			seen[e.recorder] = e
		}
		var err error
		if flush, err = j.collect(flush, e, writes); err != nil {
			return nil, err
		}
	}
	if mixed != nil {
		j.attribute(flush, mixed)
	}
	InOrder(flush)
	Correlate(flush, "", writes)
	return flush, nil
}

// InOrder sorts events into the order in which they were raised.
func InOrder(flush []Flush) {
	slices.SortFunc(flush, func(a, b Flush) int { return cmp.Compare(a.raisedAt, b.raisedAt) })
}

// collect appends the events of one aggregate that belong to the transaction, e being its last
// write.
func (j *Journal) collect(flush []Flush, e *entry, writes bool) ([]Flush, error) {
	e.recorder.mu.Lock()
	defer e.recorder.mu.Unlock()
	j.settleLocked(e.recorder)
	missed := j.missed[j.root(e.recorder)].at // a statement after the last write that changed no row
	sequence := 0
	for _, event := range e.recorder.events {
		undone := event.undoneAt > e.at
		inVain := e.at < event.raisedAt && event.raisedAt < missed
		if undone || inVain || event.Confirmed() || e.recorder.elsewhere(j, event) {
			continue
		}
		belongs, err := j.belongs(e, event)
		if err != nil {
			err.Aggregate, err.ID = e.source.Aggregate, e.source.ID
			return nil, err
		}
		if !belongs {
			if j.ofCopies == nil {
				j.ofCopies = make(map[string]int)
			}
			j.ofCopies[e.source.Aggregate]++
			continue
		}
		if writes {
			event.writer = j
		}
		sequence++
		f := Flush{Raised: event, Source: e.source, Context: e.context, recorder: e.recorder}
		f.Source.Sequence, f.Source.Version = sequence, e.recorder.ascending(e.source.Version)
		flush = append(flush, f)
	}
	return flush, nil
}

// instance is the row that an entry stands for.
type instance struct {
	recorder      *Recorder
	aggregate, id string
}

func (e *entry) instance() instance {
	return instance{recorder: e.recorder, aggregate: e.source.Aggregate, id: e.source.ID}
}

// attribute is for one list of events that the transaction wrote as several rows: a variable, or a
// copy, that got another key and was saved again. An event belongs to the row that was written next
// after it was raised.
func (j *Journal) attribute(flush []Flush, mixed map[*Recorder]bool) {
	writes := make(map[*Recorder][]*entry)
	last := make(map[instance]*entry) // the last write of a row counts
	for i := range j.entries {
		if e := &j.entries[i]; mixed[e.recorder] && e.source.ID != "" {
			writes[e.recorder] = append(writes[e.recorder], e)
			last[e.instance()] = e
		}
	}
	for i := range flush {
		f := &flush[i]
		after := writes[f.recorder]
		next, _ := slices.BinarySearchFunc(after, f.raisedAt, func(e *entry, raisedAt uint64) int { return cmp.Compare(e.at, raisedAt) })
		if next < len(after) {
			e := last[after[next].instance()]
			sequence := f.Source.Sequence
			f.Source, f.Context = e.source, e.context
			f.Source.Sequence, f.Source.Version = sequence, 0 // of several rows with one list it is not known which had it
		}
	}
}
