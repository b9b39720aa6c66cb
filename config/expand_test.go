package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestExpand(t *testing.T) {
	t.Parallel()
	lookup := func(name string) (string, bool) {
		value, ok := map[string]string{"A": "one", "_b2": "two", "EMPTY": "", "TRICK": "${A}$$"}[name]
		return value, ok
	}
	for _, test := range []struct {
		in, want string
		variable bool
	}{
		{"", "", false},
		{"plain", "plain", false},
		{"${A}", "one", true},
		{"x${A}y${_b2}z", "xoneytwoz", true},
		{"${EMPTY}", "", true},
		{"${EMPTY:-x}", "x", true},
		{"${NONE:-x y:-z}", "x y:-z", true},
		{"${NONE:-}", "", true},
		{"${A:-x}", "one", true},
		{"$$", "$", false},
		{"$${A}", "${A}", false},
		{"$$${A}", "$one", true},
		{"${TRICK}", "${A}$$", true}, // what a variable contains is not expanded again
		{"$A pa$word $", "$A pa$word $", false},
		{"{A}", "{A}", false},
	} {
		got, variable, flaws := expand(test.in, lookup)
		assert.Equal(t, test.want, got, test.in)
		assert.Equal(t, test.variable, variable, test.in)
		assert.Empty(t, flaws, test.in)
	}
	for in, want := range map[string][]string{
		"${NONE} ${ALSO}": {
			"environment variable NONE is not set: set it, or write ${NONE:-default}",
			"environment variable ALSO is not set: set it, or write ${ALSO:-default}",
		},
		"${A":        {`has a "${" without "}": write ${NAME}, or $$ for a plain $`},
		"${}":        {"has a ${...} that names no environment variable: write ${NAME} or ${NAME:-default}, or $$ for a plain $"},
		"${1A}":      {"has a ${...} that names no environment variable: write ${NAME} or ${NAME:-default}, or $$ for a plain $"},
		"${A-x}":     {"has a ${...} that names no environment variable: write ${NAME} or ${NAME:-default}, or $$ for a plain $"},
		"${A:-${B}}": {"the default of ${A:-...} contains another ${: defaults do not nest"},
	} {
		_, _, flaws := expand(in, lookup)
		assert.Equal(t, want, flaws, in)
	}
}
