package discreet_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/internal/discreet"
)

func TestText(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"ERR unknown command 'AUTH', with args beginning with: 'u' 'hunter2' ":        "ERR unknown command 'AUTH'",
		"ERR unknown command `AUTH`, with args beginning with: `u`, `hunter\n2`, ":    "ERR unknown command `AUTH`",
		"failed to authenticate: ERR unknown command with args beginning with: 'a'\n": "failed to authenticate: ERR unknown command",
		"WRONGPASS invalid username-password pair":                                    "WRONGPASS invalid username-password pair",
		"": "",
	} {
		assert.Equal(t, want, discreet.Text(said))
	}
}
