package redisstreams_test

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/brokers/redisstreams"
)

// What the client logs of a refused command shows no password.
func TestClientLog(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	redisstreams.ClientLog(func() *slog.Logger { return log }).Printf(t.Context(), "auth: %s", "ERR unknown command 'AUTH', with args beginning with: 'u' 'hunter2'")
	assert.Contains(t, said.String(), "auth: ERR unknown command 'AUTH'")
	assert.NotContains(t, said.String(), "hunter2")
	redisstreams.ClientLog(func() *slog.Logger { return nil }).Printf(t.Context(), "dropped")
	assert.NotContains(t, said.String(), "dropped")
}
