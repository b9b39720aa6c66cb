package envelope_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
)

type moment struct{ time.Time }

type (
	// PaidAt sends a time alone.
	PaidAt struct {
		time.Time
		Amount int `json:"amount"`
	}
	PaidThen struct {
		*moment
		Amount, Fee int
	}
	PaidText struct {
		label
		Amount int
	}
	label struct{ text string }

	// PaidWhole says all itself, by a method on the value or on the pointer.
	PaidWhole struct {
		time.Time
		Amount int
	}
	PaidPointed struct {
		time.Time
		Amount int
	}
	// PaidMarked embeds something of which nothing is sent.
	PaidMarked struct {
		isEvent
		*hidden
		time.Time
	}
	isEvent struct{}
	hidden  struct{ sum int }
	// PaidDeep embeds something of which some is.
	PaidDeep struct {
		time.Time
		deep
	}
	deep struct{ Shown }
	// Shown is sent.
	Shown struct{ Sum int }
	// Paid has no other fields that are sent.
	Paid struct {
		time.Time
		Note  string `json:"-"`
		count int
	}
)

func (l *label) MarshalText() ([]byte, error) { return []byte(l.text), nil }

func (p PaidWhole) MarshalJSON() ([]byte, error) { return json.Marshal(p.Amount) }

func (p *PaidPointed) MarshalJSON() ([]byte, error) { return json.Marshal(p.Amount) }

// Where a struct gets MarshalJSON from something that it embeds, its other fields are not sent.
func TestPromotedMarshalJSON(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		register func(*envelope.Catalog)
		want     string
	}{
		"a value":              {func(c *envelope.Catalog) { envelope.Register[PaidAt](c) }, "PaidAt: its JSON is that of time.Time, which it embeds: Amount"},
		"a pointer, two deep":  {func(c *envelope.Catalog) { envelope.Register[PaidThen](c) }, "PaidThen: its JSON is that of *envelope_test.moment, which it embeds: Amount, Fee"},
		"a text of a pointer":  {func(c *envelope.Catalog) { envelope.Register[PaidText](c) }, "PaidText: its JSON is that of envelope_test.label, which it embeds: Amount"},
		"one of its own":       {func(c *envelope.Catalog) { envelope.Register[PaidWhole](c) }, ""},
		"one on the pointer":   {func(c *envelope.Catalog) { envelope.Register[PaidPointed](c) }, ""},
		"a marker":             {func(c *envelope.Catalog) { envelope.Register[PaidMarked](c) }, ""},
		"embedded fields":      {func(c *envelope.Catalog) { envelope.Register[PaidDeep](c) }, "PaidDeep: its JSON is that of time.Time, which it embeds: deep"},
		"nothing else to send": {func(c *envelope.Catalog) { envelope.Register[Paid](c) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := envelope.NewCatalog("billing")
			test.register(c)
			if test.want == "" {
				require.NoError(t, c.Err())
				return
			}
			require.EqualError(t, c.Err(), "envelope: register event envelope_test."+test.want+" would not be sent: give the field a name, or the type a MarshalJSON of its own")
		})
	}
	assert.Zero(t, Paid{}.count)
	assert.Zero(t, hidden{}.sum)
	assert.Zero(t, PaidMarked{}.isEvent)
	assert.Nil(t, PaidMarked{}.hidden)
}
