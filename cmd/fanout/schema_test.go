package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/cmd/fanout/internal/clients"
	"github.com/gorm-fanout/fanout/config"
)

func TestSchema(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := ran(t, "schema")
	require.Zero(t, code, stderr)
	assert.Equal(t, string(config.Schema(config.WithBrokerTypes(clients.Types()...))), stdout)
	for _, name := range clients.Names() {
		assert.Contains(t, stdout, `"$ref": "#/definitions/type-`+name+`"`)
	}
}
