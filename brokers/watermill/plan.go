package watermill

import "github.com/gorm-fanout/fanout/brokers"

// A chain is messages, by index, that go one after the other as long as they succeed: those of a
// key, or one without a key.
type chain struct {
	key     string
	indexes []int
}

// plan sorts messages into chains, in the order of their first messages. A message that cannot be
// sent gets its result here; the later ones of its key are held.
func (p *publication) plan() {
	places, held := map[string]int{}, map[string]error{} // by key
	for i := range p.msgs {
		m := &p.msgs[i]
		if why := held[m.OrderingKey]; why != nil && m.OrderingKey != "" {
			p.settle(i, brokers.NotSentBecause(why))
			continue
		}
		topic, err := p.options.address(m)
		if err != nil {
			p.settle(i, err)
			held[m.OrderingKey] = err
			continue
		}
		p.topics[i] = topic
		at, begun := places[m.OrderingKey]
		if begun && m.OrderingKey != "" {
			p.chains[at].indexes = append(p.chains[at].indexes, i)
			continue
		}
		places[m.OrderingKey] = len(p.chains)
		p.chains = append(p.chains, chain{m.OrderingKey, []int{i}})
	}
}
