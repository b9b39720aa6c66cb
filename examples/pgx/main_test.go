package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

func TestExample(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	dsn := testenv.Postgres(t)
	require.NoError(t, run(t.Context(), dsn, &out))
	require.NoError(t, run(t.Context(), dsn, &out), "once more, with the tables there")
	assert.Equal(t, "Ordering.OrderPlaced.v1 {\"OrderID\":\"1\",\"Customer\":\"ada\"}\nOrdering.OrderPlaced.v1 {\"OrderID\":\"2\",\"Customer\":\"ada\"}\n", out.String())
}
