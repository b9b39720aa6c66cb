package dedup

import (
	"slices"

	"github.com/google/uuid"
)

// An Outbox is the part of an entity that knows the messages that were taken in and are not
// finished with. Encode it as JSON. It is empty most of the time, and holds one entry for each
// claimed message otherwise.
type Outbox struct {
	Pending []Pending `json:"pending,omitempty"`
}

// Empty reports whether nothing is claimed: only then may an entity be deleted.
func (o *Outbox) Empty() bool { return len(o.Pending) == 0 }

// Pending is a message whose effect is in the state of its entity, and that is not finished with.
type Pending struct {
	// Consumer is the message's, Key its identity; see inbox.Message.
	Consumer string    `json:"consumer"`
	Key      uuid.UUID `json:"key"`
	// Token of the message that came in; empty without tokens.
	Token string `json:"token,omitempty"`
	// Phase says whether the outgoing messages may be dispatched.
	Phase Phase `json:"phase"`
	// Outgoing is what the handler has returned, with its ids and tokens.
	Outgoing []Outgoing `json:"outgoing,omitempty"`
	// Replaced are tokens that were drawn for Outgoing and never sent, the newest at the end.
	Replaced []Token `json:"replaced,omitempty"`
}

// A Phase is how far a message is.
type Phase string

// The phases.
const (
	// Drawn means that the tokens of the outgoing messages may have been created or not. Only who
	// has drawn them may create them.
	Drawn Phase = "drawn"
	// Ready means that the outgoing messages can be dispatched, as they are here.
	Ready Phase = "ready"
)

// maxReplaced bounds an outbox while the store of tokens is out for long: each attempt draws. What
// is dropped here depends on age.
const maxReplaced = 64

// tokens that the receivers of the outgoing messages need.
func (p *Pending) tokens() (tokens []Token) {
	for i := range p.Outgoing {
		for _, receiver := range p.Outgoing[i].Receivers {
			tokens = append(tokens, Token{Consumer: receiver, Value: p.Outgoing[i].Token})
		}
	}
	return tokens
}

// draw gives fresh tokens to the outgoing messages that need one, and notes those that they had.
func (p *Pending) draw(fresh func() (uuid.UUID, error)) error {
	for _, old := range p.tokens() {
		if old.Value != "" {
			p.Replaced = append(p.Replaced, old)
		}
	}
	p.Replaced = slices.Clone(p.Replaced[max(len(p.Replaced)-maxReplaced, 0):])
	p.Phase = Ready
	for i := range p.Outgoing {
		if len(p.Outgoing[i].Receivers) == 0 {
			continue
		}
		token, err := fresh()
		if err != nil {
			return err
		}
		p.Outgoing[i].Token, p.Phase = token.String(), Drawn
	}
	return nil
}

// find returns the entry of a message, nil if there is none. It is valid until the outbox changes.
func (o *Outbox) find(consumer string, key uuid.UUID) *Pending {
	for i := range o.Pending {
		if o.Pending[i].Consumer == consumer && o.Pending[i].Key == key {
			return &o.Pending[i]
		}
	}
	return nil
}

// remove forgets a message.
func (o *Outbox) remove(consumer string, key uuid.UUID) {
	o.Pending = slices.DeleteFunc(slices.Clone(o.Pending), func(p Pending) bool { return p.Consumer == consumer && p.Key == key })
	if len(o.Pending) == 0 {
		o.Pending = nil
	}
}
