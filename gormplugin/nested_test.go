package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// Three transactions inside each other, and which of them fail.
func TestNestedTransactions(t *testing.T) {
	t.Parallel()
	cases := map[string]func(b *bench){}
	// fails says which of three levels fail, the outermost first; want is what is written.
	for _, levels := range []struct {
		name  string
		fails [3]bool
		want  []string
	}{
		{"all three levels succeed", [3]bool{}, []string{"0: x", "1: x", "2: x"}},
		{"the innermost fails", [3]bool{2: true}, []string{"0: x", "1: x"}},
		{"the middle fails", [3]bool{1: true}, []string{"0: x"}},
		{"the middle and the innermost fail", [3]bool{1: true, 2: true}, []string{"0: x"}},
		{"the outermost fails", [3]bool{0: true}, nil},
		{"the outermost and the innermost fail", [3]bool{0: true, 2: true}, nil},
		{"the outermost and the middle fail", [3]bool{0: true, 1: true}, nil},
		{"all three levels fail", [3]bool{true, true, true}, nil},
	} {
		cases[levels.name] = func(b *bench) {
			orders := []*Order{order("0", "x"), order("1", "x"), order("2", "x")}
			outcome := map[bool]error{true: errRefused}
			require.ErrorIs(b.t, b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(orders[0]).Error)
				require.ErrorIs(b.t, tx.Transaction(func(tx *gorm.DB) error {
					b.ok(tx.Create(orders[1]).Error)
					require.ErrorIs(b.t, tx.Transaction(func(tx *gorm.DB) error {
						b.ok(tx.Create(orders[2]).Error)
						return outcome[levels.fails[2]]
					}), outcome[levels.fails[2]])
					return outcome[levels.fails[1]]
				}), outcome[levels.fails[1]])
				return outcome[levels.fails[0]]
			}), outcome[levels.fails[0]])
			b.want(levels.want...)
			assert.Equal(b.t, len(levels.want), b.orders())
			for i, o := range orders {
				if i < len(levels.want) {
					b.pending(o)
				} else {
					b.pending(o, "x")
				}
			}
		}
	}
	runCases(t, cases)
}
