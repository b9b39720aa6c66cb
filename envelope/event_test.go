package envelope_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
)

func TestNewEvent(t *testing.T) {
	t.Parallel()
	before := time.Now().Truncate(time.Microsecond)
	ev := envelope.NewEvent(OrderPlaced{OrderID: "42"}, envelope.TTL(time.Minute))
	require.Equal(t, uuid.Version(7), ev.ID.Version())
	require.Equal(t, time.UTC, ev.Time.Location())
	require.Zero(t, ev.Time.Nanosecond()%1000, "whole microseconds")
	require.False(t, ev.Time.Before(before))
	require.Equal(t, OrderPlaced{OrderID: "42"}, ev.Data)
	require.Len(t, ev.Options, 1)
	require.NotEqual(t, ev.ID, envelope.NewEvent(nil).ID)
}

// Sealing again, as a retried transaction does, gives the same bytes.
func TestSealIsRepeatable(t *testing.T) {
	t.Parallel()
	c := newCatalog(t)
	ev := envelope.NewEvent(OrderPlaced{OrderID: "42"}, envelope.TTL(time.Minute), envelope.Extension("a", map[string]int{"y": 1, "x": 2}))
	cx := fullContext()
	first, err := seal(t, c, ev, order42, cx).MarshalInternal()
	require.NoError(t, err)
	for range 10 {
		again, err := seal(t, c, ev, order42, cx).MarshalInternal()
		require.NoError(t, err)
		require.Equal(t, string(first), string(again))
	}
}
