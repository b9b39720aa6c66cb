package envelope_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
)

type (
	moment struct{ time.Time }
	label  struct{ text string }
	// marker sends nothing, deep sends a sum.
	marker struct{}
	deep   struct{ Shown }
	Shown  struct{ Sum int }

	// PaidWhole says all itself, by a method on the value, and PaidPointed by one on the pointer.
	PaidWhole struct {
		time.Time
		Amount int
	}
	PaidPointed struct {
		time.Time
		Amount int
	}
)

func (l *label) MarshalText() ([]byte, error) { return []byte(l.text), nil }

func (p PaidWhole) MarshalJSON() ([]byte, error) { return json.Marshal(p.Amount) }

func (p *PaidPointed) MarshalJSON() ([]byte, error) { return json.Marshal(p.Amount) }

// registers returns what Register says of a type.
func registers[E any]() error {
	c := envelope.NewCatalog("billing")
	envelope.Register[E](c, envelope.Name("Paid"))
	return c.Err()
}

// Where a struct gets MarshalJSON from something that it embeds, its other fields are not sent.
func TestPromotedMarshalJSON(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"its JSON is that of time.Time, which it embeds: Amount would not be sent": registers[struct {
			time.Time
			Amount int
		}](),
		"its JSON is that of *envelope_test.moment, which it embeds: Amount, Fee would not be sent": registers[struct {
			*moment
			Amount, Fee int
		}](),
		"its JSON is that of envelope_test.label, which it embeds: Amount would not be sent": registers[struct {
			label
			Amount int
		}](),
		"its JSON is that of time.Time, which it embeds: deep would not be sent": registers[struct {
			time.Time
			deep
		}](),
	} {
		require.ErrorContains(t, err, want+": give the field a name, or the type a MarshalJSON of its own")
	}
	require.NoError(t, registers[PaidWhole]())
	require.NoError(t, registers[PaidPointed]())
	require.NoError(t, registers[struct {
		marker
		time.Time
		Note  string `json:"-"`
		count int
	}]())
}
