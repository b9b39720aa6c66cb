package nearest

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestEditDistance(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"abc", "", 3},
		{"lease", "lease", 0},
		{"leese", "lease", 1},
		{"laese", "lease", 1},
		{"kitten", "sitting", 3},
		{"ca", "abc", 3},
		{"größe", "grösse", 2},
	} {
		assert.Equal(t, test.want, editDistance([]rune(test.a), []rune(test.b)), "%s %s", test.a, test.b)
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"max_attempts", "min", "max", "workers", "dsn"}
	for name, want := range map[string]string{
		"maxAttempts": "max_attempts", "max-attempts": "max_attempts", "MAX": "max", "mix": "min", "worker": "workers", "dns": "dsn",
		"xyz": "", "": "", "url": "",
	} {
		assert.Equal(t, want, Of(name, known), name)
	}
}
