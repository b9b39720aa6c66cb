package sqlserver

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

func TestSplitDuration(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		d               time.Duration
		seconds, micros int32
	}{
		{0, 0, 0},
		{-time.Hour, 0, 0},
		{time.Nanosecond, 0, 0},
		{time.Microsecond, 0, 1},
		{time.Second - time.Nanosecond, 0, 999999},
		{time.Hour + 1500*time.Microsecond, 3600, 1500},
		{math.MaxInt32*time.Second + time.Second, math.MaxInt32, 0},
		{math.MaxInt64, math.MaxInt32, 0},
	} {
		seconds, micros := splitDuration(c.d)
		assert.Equal(t, [2]int32{c.seconds, c.micros}, [2]int32{seconds, micros}, c.d)
	}
}

func TestLists(t *testing.T) {
	t.Parallel()
	list, err := publishedList([]driver.Delivered{{ID: 9, BrokerMessageID: "<a&b>"}, {ID: math.MaxInt64}, {ID: 1}}, true)
	require.NoError(t, err)
	assert.JSONEq(t, `[{"i":1},{"i":9,"b":"<a&b>"},{"i":9223372036854775807}]`, string(list), "in the order of ids")
	assert.Contains(t, list, "<a&b>", "not made longer by escapes that only HTML needs")

	list, err = otherList([]driver.Outcome{
		{ID: 2, Status: outbox.StatusPending},
		{ID: 1, Status: outbox.StatusFailed, Spent: true, Delay: time.Minute + time.Millisecond, LastError: `{"class":"x"}`},
	})
	require.NoError(t, err)
	assert.JSONEq(t, `[{"i":1,"s":"failed","a":1,"d":60,"u":1000,"e":"{\"class\":\"x\"}"},{"i":2,"s":"pending","a":0,"d":0,"u":0}]`, string(list))
}

// Whatever a broker says, the list is JSON that gives the storable text back.
func TestListsAreJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) + rapid.String().Draw(t, "text")
		list, err := otherList([]driver.Outcome{{ID: 1, Status: outbox.StatusFailed, LastError: text}})
		require.NoError(t, err)
		assert.NotContains(t, string(list), "\x00")
		var items []otherItem
		require.NoError(t, json.Unmarshal([]byte(list), &items))
		require.Equal(t, storable(text), items[0].Error)
	})
}

func TestLockNames(t *testing.T) {
	t.Parallel()
	store, err := New(nil, strings.Repeat("s", 63)+"."+strings.Repeat("T", 48))
	require.NoError(t, err)
	long := store.lockName(strings.Repeat("x", 1000))
	assert.Less(t, len("fanout:-2147483648:"+long), 255, "a resource has 255 characters")
	assert.True(t, strings.HasPrefix(long, strings.Repeat("t", 48)+":exclusive:"), long)
	assert.NotEqual(t, store.lockName("a"), store.lockName("purge"))
	assert.NotEqual(t, store.lockName("a"), store.lockName("A"))
	same, err := New(nil, "dbo."+strings.Repeat("t", 48))
	require.NoError(t, err)
	assert.Equal(t, store.lockName("a"), same.lockName("a"), "the server puts the table's id in front")
}
