package parameters

import (
	"testing"

	"example.com/shop/domain"
)

// A test looks at the copy, which is all that it wants.
func check(t *testing.T, o domain.Order, want string) { // want check:`^passes on, changes and raises, passes on$`
	t.Helper()
	o.Pay()
	if o.Status != want {
		t.Error(o.Status)
	}
}

func blind(t *testing.T, o domain.Order) { // want blind:`^passes on, raises$`
	t.Helper()
	o.Raise(domain.Paid{}) // want `o.Raise raises`
}

func TestPay(t *testing.T) {
	check(t, domain.Order{}, "paid")
	blind(t, domain.Order{})
}
