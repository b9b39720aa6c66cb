package main

import (
	"io"
	"os"
	"testing"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
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

	db, err := gorm.Open(sqlite.Open("shop.db"), &gorm.Config{})
	require.NoError(t, err)
	sqlDB, err := db.DB()
	require.NoError(t, err)
	defer sqlDB.Close()
	var statuses []string
	require.NoError(t, db.Table("outbox_messages").Pluck("status", &statuses).Error)
	assert.Equal(t, []string{"published"}, statuses, "the next run would wait for the lease, and print this event again")
}
