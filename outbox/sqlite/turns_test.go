package sqlite

import (
	"context"
	"database/sql"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The store keeps its pauses where others write, and only there.
func TestMakesRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, _ := newStore(t)
		store.db.SetMaxOpenConns(1)
		var path string
		require.NoError(t, store.db.QueryRowContext(t.Context(), "SELECT file FROM pragma_database_list").Scan(&path))
		application, err := sql.Open("sqlite", path)
		require.NoError(t, err)
		defer application.Close()
		held := 10 * time.Millisecond
		// waited is how long a transaction waits for its turn.
		waited := func() (pause time.Duration) {
			came := time.Now()
			require.NoError(t, store.write(t.Context(), func(*sql.Conn) error {
				pause = time.Since(came)
				time.Sleep(held) // a bubble's time
				return nil
			}))
			return pause
		}
		assert.Zero(t, waited())
		assert.Zero(t, waited(), "nobody else is there")

		other := func() {
			_, err := application.ExecContext(t.Context(), "INSERT INTO outbox_messages_pauses (target_broker, since) VALUES (hex(randomblob(8)), 0)")
			require.NoError(t, err)
		}
		other()
		assert.Zero(t, waited(), "it only learns of it")
		assert.Equal(t, freeRatio*held-credit, waited()) // nothing is left of the credit
		assert.Equal(t, freeRatio*held, waited())
		ctx, cancel := context.WithTimeout(t.Context(), held)
		defer cancel()
		came := time.Now()
		require.ErrorIs(t, store.write(ctx, nil), context.DeadlineExceeded)
		assert.Equal(t, held, time.Since(came), "a pause ends with the context")
		assert.Equal(t, (freeRatio-1)*held, waited(), "and the turn was given back")

		time.Sleep(freeRatio * held) // a bubble's time: it pays
		assert.Zero(t, waited())
		held = time.Second
		other()
		waited()
		assert.Equal(t, longestRest, waited())
		time.Sleep(othersFor) // a bubble's time
		assert.Zero(t, waited(), "they have gone")
		assert.Zero(t, waited())

		held = credit / freeRatio
		other()
		waited()
		assert.Zero(t, waited(), "a little is not asked for")
		assert.NotZero(t, waited(), "again and again it is")
	})
}
