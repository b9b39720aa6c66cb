package monitor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

const (
	// lookedBack is how many published rows of a database are looked at to find what a consumer has
	// recorded last, and lookBack their greatest age: inboxes forget what was handled after a week.
	lookedBack = 10_000
	lookBack   = 6 * 24 * time.Hour
	// maxTaken is how many kinds of messages of each consumer are remembered.
	maxTaken = 1000
)

// ConsumerStatus is how far a consumer is behind what was published for it, as its inbox shows: whether
// it runs or not, it need not say so itself.
type ConsumerStatus struct {
	Name, Broker string
	// Waiting are the messages that were published since the last one that it has recorded, of each type
	// and stream of which it records messages. Those that are out at this moment count.
	Waiting admin.Count
	// Behind is how long ago the first of these was published; 0 where there is none.
	Behind time.Duration
	// Silent is true where it has recorded none of the messages that were looked at, of which there are
	// some, and none of their types: it takes other ones, or it has not run since its records were purged,
	// or it keeps nothing of what was handled (inbox.WithTokens). Waiting and Behind say nothing then.
	Silent bool
	// NotKept is true where rows of its broker are removed as they are delivered (WithNotKept): how far it is behind is not
	// known then.
	NotKept bool
	// Err is why it, or one of the databases, could not be asked.
	Err error
}

// kind is what a consumer takes or does not take.
type kind struct{ database, stream, eventType string }

// habits are the kinds of messages that consumers have been seen to record, so that one which stopped is
// known as late though all that it has recorded lies further back than is looked.
type habits struct {
	mu    sync.Mutex
	kinds map[string]map[kind]bool
}

func (t *habits) add(consumer string, k kind) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kinds == nil {
		t.kinds = map[string]map[kind]bool{}
	}
	if t.kinds[consumer] == nil {
		t.kinds[consumer] = map[kind]bool{}
	}
	if len(t.kinds[consumer]) < maxTaken {
		t.kinds[consumer][k] = true
	}
}

func (t *habits) has(consumer string, k kind) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.kinds[consumer][k]
}

// Consumers asks the inboxes of all consumers ([WithConsumers]) at once, by name, how far they are behind.
// It looks at published messages, newest first, until it has found what each consumer has recorded
// last: 10,000 of each database at most, and none that is older than six days. One of which it finds
// nothing there is behind with those of the types that its inbox has recorded ([Consumer.Types]).
func (c *Console) Consumers(ctx context.Context) []ConsumerStatus {
	names := slices.Sorted(maps.Keys(c.consumers))
	all := make([]ConsumerStatus, len(names))
	var group sync.WaitGroup
	for i, name := range names {
		group.Go(func() {
			status := &all[i]
			status.Name, status.Broker = name, c.consumers[name].Broker
			if status.NotKept = !c.keeps(status.Broker); status.NotKept {
				return
			}
			looking := &behind{console: c, status: status, now: time.Now()}
			if status.Err = looking.learn(ctx); status.Err != nil {
				return
			}
			for _, database := range c.Databases() {
				if status.Err = looking.in(ctx, database); status.Err != nil {
					return
				}
			}
			status.Silent = looking.seen > 0 && !looking.recorded
		})
	}
	group.Wait()
	return all
}

// behind is one look at what a consumer has not recorded.
type behind struct {
	console  *Console
	status   *ConsumerStatus
	now      time.Time
	types    map[string]bool // that it has recorded
	seen     int
	recorded bool
}

// learn asks which types the consumer takes: one that died has recorded none of what was published since, however much that is.
func (b *behind) learn(ctx context.Context) error {
	ask := b.console.consumers[b.status.Name].Types
	if ask == nil {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, b.console.timeout)
	defer cancel()
	types, err := ask(asking)
	if err != nil {
		return fmt.Errorf("the inbox of consumer %s does not answer: %w", b.status.Name, err)
	}
	b.types = make(map[string]bool, len(types))
	for _, name := range types {
		b.types[name] = true
	}
	return nil
}

// takes reports whether the consumer takes messages of a kind of which it has recorded none so far. Of a type that it has recorded from
// another stream it need not take them from this one.
func (b *behind) takes(k kind, piles map[kind]*pile) bool {
	if b.console.habits.has(b.status.Name, k) {
		return true
	}
	if !b.types[k.eventType] {
		return false
	}
	for other, p := range piles {
		if other.eventType == k.eventType && p.found {
			return false
		}
	}
	return true
}

// pile is what of one kind is newer than what the consumer has recorded.
type pile struct {
	found   bool // what it has recorded
	waiting int64
	first   time.Time
}

// in looks at one database.
func (b *behind) in(ctx context.Context, database string) error {
	piles, more := map[kind]*pile{}, false
	request := admin.ListRequest{Broker: b.status.Broker, Status: outbox.StatusPublished, Filter: admin.Filter{Since: b.now.Add(-lookBack)}, Limit: MaxPage, Scan: MaxPage}
	for looked := 0; ; {
		page, err := ask(ctx, b.console, database, func(ctx context.Context, store admin.Administration) (admin.List, error) {
			return store.List(ctx, request)
		})
		if err != nil {
			return err
		}
		if err := b.pile(ctx, database, page.Records, piles); err != nil {
			return err
		}
		looked += page.Scanned
		request.After = page.Next
		if page.Next == (admin.Position{}) || b.enough(piles) {
			break
		}
		if looked >= lookedBack {
			more = true
			break
		}
	}
	for k, p := range piles {
		if p.waiting == 0 || !p.found && !b.takes(k, piles) {
			continue
		}
		b.recorded = true
		b.status.Waiting.N += p.waiting
		b.status.Waiting.More = b.status.Waiting.More || more && !p.found
		b.status.Behind = max(b.status.Behind, b.now.Sub(p.first))
	}
	return nil
}

// pile puts rows on their piles, newest first, up to what the consumer has recorded.
func (b *behind) pile(ctx context.Context, database string, records []admin.Record, piles map[kind]*pile) error {
	if len(records) == 0 {
		return nil
	}
	ids := make([]uuid.UUID, len(records))
	for i := range records {
		ids[i], _ = uuid.Parse(records[i].MessageID) // one that cannot be read is a message that no inbox knows
	}
	asking, cancel := context.WithTimeout(ctx, b.console.timeout)
	defer cancel()
	progress, err := b.console.consumers[b.status.Name].Progress(asking, ids, nil)
	if err != nil {
		return fmt.Errorf("the inbox of consumer %s does not answer: %w", b.status.Name, err)
	}
	for i := range records {
		b.seen++
		r := &records[i]
		k := kind{database, r.Stream, r.Type}
		p := piles[k]
		if p == nil {
			p = &pile{}
			piles[k] = p
		}
		switch {
		case p.found:
		case len(progress[ids[i]]) > 0:
			p.found, b.recorded = true, true
			b.console.habits.add(b.status.Name, k)
		default:
			p.waiting++
			p.first = r.PublishedAt
		}
	}
	return nil
}

// enough reports whether it is known of all kinds that the consumer takes what it has recorded last.
func (b *behind) enough(piles map[kind]*pile) bool {
	for k, p := range piles {
		if !p.found && b.takes(k, piles) {
			return false
		}
	}
	return b.recorded
}
