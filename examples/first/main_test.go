package main

import (
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The program of the README works as it stands, in an empty folder.
func TestTheProgramDelivers(t *testing.T) {
	t.Chdir(t.TempDir())
	read, write, err := os.Pipe()
	require.NoError(t, err)
	stdout := os.Stdout
	os.Stdout = write
	main()
	os.Stdout = stdout
	require.NoError(t, write.Close())
	printed, err := io.ReadAll(read)
	require.NoError(t, err)
	assert.Contains(t, string(printed), `"data":{"OrderID":"42","Customer":"ada"}`)
	assert.Contains(t, string(printed), `"type":"Ordering.OrderPlaced.v1"`)
	assert.FileExists(t, "shop.db")
}
