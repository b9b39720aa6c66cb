package kafkaconsumer

import (
	"container/list"

	"github.com/twmb/franz-go/pkg/kgo"
)

// progress is what was delivered of a partition and cannot be committed yet, in the order of
// delivery. It keeps each message that is not done, and of those that are done between two of these
// the last offset and their number alone: so it is as long as what is claimed, however much is done
// behind a message that is not. It counts messages, as offsets have gaps: compaction removes
// messages, and transactions write markers.
//
// The zero value knows no offset. It is not safe for concurrent use.
type progress struct {
	marks       list.List       // of *mark; the first one is not done, and no two in a row are
	open        int             // messages that are not done
	uncommitted int             // messages that are done, behind one that is not
	next        kgo.EpochOffset // where the group is to go on: all before it is done
	begun       bool            // next is known
}

// A mark is a message that is not done, or messages in a row that are.
type mark struct {
	claim *claim          // nil: they are done
	last  kgo.EpochOffset // of the last one
	n     int             // of those that are done
}

// begin notes where a partition is read from, before anything is.
func (p *progress) begin(at int64) {
	p.next, p.begun = kgo.EpochOffset{Epoch: -1, Offset: at}, true
}

// add notes a message that was delivered.
func (p *progress) add(c *claim) *list.Element {
	p.open++
	return p.marks.PushBack(&mark{claim: c, last: kgo.EpochOffset{Epoch: c.record.LeaderEpoch, Offset: c.record.Offset}})
}

// done notes that a message is done.
func (p *progress) done(at *list.Element) {
	p.open--
	p.uncommitted++
	m := at.Value.(*mark) //nolint:forcetypeassert // the only kind there is
	m.claim, m.n = nil, 1
	if before := doneAt(at.Prev()); before != nil {
		m.n += before.n
		p.marks.Remove(at.Prev())
	}
	if behind := doneAt(at.Next()); behind != nil {
		behind.n += m.n
		p.marks.Remove(at)
	}
	front := p.marks.Front()
	if first := doneAt(front); first != nil {
		p.next, p.begun = kgo.EpochOffset{Epoch: first.last.Epoch, Offset: first.last.Offset + 1}, true
		p.uncommitted -= first.n
		p.marks.Remove(front)
	}
}

// doneAt is the mark at a place, where it is of messages that are done.
func doneAt(at *list.Element) *mark {
	if at == nil {
		return nil
	}
	if m := at.Value.(*mark); m.claim == nil { //nolint:forcetypeassert // the only kind there is
		return m
	}
	return nil
}

// head is the first message that is not done; nil where all are.
func (p *progress) head() *claim {
	front := p.marks.Front()
	if front == nil {
		return nil
	}
	return front.Value.(*mark).claim //nolint:forcetypeassert // the only kind there is
}
