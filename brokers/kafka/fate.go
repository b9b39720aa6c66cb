package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// fates says why the partitions have not confirmed a round that ended for a reason: their servers are out,
// or slow, also for a caller with a deadline of its own. It is nil where it is not a part of the cluster that is
// out: no server answers, or the caller has given the call up.
func (p *publication) fates(caller context.Context, c *client, why error) map[partition]error {
	slow := errors.Is(why, context.DeadlineExceeded) && c.answered(noServer)
	if errors.Is(caller.Err(), context.Canceled) || !slow && !errors.Is(why, errPartOut) {
		return nil
	}
	fate := map[partition]error{}
	for _, of := range c.waiting() {
		leader := c.leader(of)
		switch out := p.servers.isOut(leader); {
		case out != nil:
			fate[of] = out
		case c.hangsUp(leader):
			fate[of] = errHungUp
		case c.throttles(leader):
			fate[of] = errThrottled
		default:
			fate[of] = errSlow
		}
	}
	return fate
}

// unreached says why the client has given records up although servers answered, and adds it to the fate of
// partitions. The server that it could not connect to is out. Where that is not the one that leads the partition, it
// was asked for a producer's number, or where the partition is: the record was not sent.
func (p *publication) unreached(c *client, items []item, fate map[partition]error) map[partition]error {
	answer := map[int32]bool{} // others than a server do
	for i := range items {
		it := &items[i]
		of := partition{it.record.Topic, it.record.Partition}
		if it.err == nil || fate[of] != nil || errors.As(it.err, new(*unsent)) || c.said.of(of) != nil {
			continue
		}
		leader := c.leader(of)
		culprit, why := c.suspected(leader, it.err)
		if why == nil && !errors.Is(it.err, kgo.ErrRecordRetries) {
			continue
		}
		if _, asked := answer[culprit]; !asked {
			answer[culprit] = p.othersAnswer(c, culprit)
		}
		if !answer[culprit] {
			continue
		}
		if why != nil {
			p.servers.lose(culprit, c.known(), why)
			if culprit != leader {
				it.err = &misplaced{why}
				continue
			}
		}
		if fate == nil {
			fate = map[partition]error{}
		}
		if fate[of] = p.servers.isOut(leader); fate[of] == nil {
			fate[of] = errUnreached
		}
	}
	return fate
}

// explain is the error of an item: what ended the round, where it has no answer, and what its server said
// last, where the client has words of its own.
func (c *client) explain(it *item, why error, fate map[partition]error) error {
	err := it.err
	if err == nil || errors.As(err, new(*unsent)) || errors.As(err, new(*misplaced)) {
		return err
	}
	of := partition{it.record.Topic, it.record.Partition}
	switch {
	case fate[of] != nil && code(fate[of]) != 0: // of a login
		err = fate[of]
	case code(err) != 0:
	case fate[of] != nil:
		err = fmt.Errorf("not confirmed, and perhaps published: %w (%w)", fate[of], err)
	case why != nil && fate != nil:
		err = fmt.Errorf("%w (%w)", errUnplaced, err)
	case why != nil:
		err = fmt.Errorf("not confirmed, and perhaps published: %w (%w)", why, err)
	}
	if last := c.said.of(of); code(err) == 0 && last != nil {
		err = fmt.Errorf("%w (last answer: %w)", err, last)
	}
	return err
}
