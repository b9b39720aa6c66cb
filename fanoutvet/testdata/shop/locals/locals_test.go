package locals

import (
	"testing"

	"example.com/shop/domain"
)

// A test may try something on a copy.
func TestCopyIsOnItsOwn(t *testing.T) {
	order := domain.Order{Status: "open"}
	other := order
	other.Pay()
	if !order.IsOpen() {
		t.Error(order.Status)
	}
}
