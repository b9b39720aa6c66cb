package uow_test

import (
	"encoding/json"
	"reflect"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm/schema"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/journal"
	"github.com/gorm-fanout/fanout/uow"
)

type placed struct{ N int }

type order struct {
	ID     string
	Status string
	uow.Aggregate
}

// The embedding adds no column, nothing in JSON, and the method Raise alone.
func TestAggregateAddsNothing(t *testing.T) {
	t.Parallel()
	o := &order{ID: "1", Status: "x"}
	o.Raise(placed{1})
	text, err := json.Marshal(o)
	require.NoError(t, err)
	assert.JSONEq(t, `{"ID":"1","Status":"x"}`, string(text))

	parsed, err := schema.Parse(o, &sync.Map{}, schema.NamingStrategy{})
	require.NoError(t, err)
	assert.Equal(t, []string{"id", "status"}, parsed.DBNames)

	methods := reflect.TypeFor[*order]()
	require.Equal(t, 1, methods.NumMethod())
	assert.Equal(t, "Raise", methods.Method(0).Name)
}

// Copies of a value that has raised something share its events; the trap is a copy made before.
func TestCopies(t *testing.T) {
	t.Parallel()
	first := order{ID: "1"}
	early := first
	first.Raise(placed{1})
	late := first
	late.Raise(placed{2})
	assert.Equal(t, []any{placed{1}, placed{2}}, uow.Pending(&first))
	assert.Empty(t, uow.Pending(&early))

	recorder, ok := journal.RecorderOf(reflect.ValueOf(first)) // not addressable: a copy
	require.True(t, ok)
	assert.Equal(t, 2, recorder.Len())
	j := journal.Journal{}
	track(t, &j, &first)
	j.Committed(collect(t, &j))
	recorder, ok = journal.RecorderOf(reflect.ValueOf(first))
	require.True(t, ok, "its events are written, and more may come")
	late.Raise(placed{3})
	assert.Equal(t, 1, recorder.Len())
	_, ok = journal.RecorderOf(reflect.ValueOf(order{}))
	assert.False(t, ok, "a copy without events has no recorder that could be found again")
	_, ok = journal.RecorderOf(reflect.ValueOf(placed{}))
	assert.False(t, ok)
}

func collect(t *testing.T, j *journal.Journal) []journal.Flush {
	t.Helper()
	flush, err := j.Collect(false)
	require.NoError(t, err)
	return flush
}

// echo raises another event while it is encoded.
type echo struct{ on *order }

func (e echo) MarshalJSON() ([]byte, error) {
	e.on.Raise(placed{1})
	return []byte("2"), nil
}

// An event that another one raises in its MarshalJSON comes before it, by every measure.
func TestRaiseWhileRaising(t *testing.T) {
	t.Parallel()
	o := &order{ID: "1"}
	o.Raise(placed{0})
	o.Raise(echo{o})
	o.Raise(placed{3})
	var j journal.Journal
	track(t, &j, o)
	flush := collect(t, &j)
	assert.Equal(t, []any{placed{0}, placed{1}, echo{o}, placed{3}}, data(flush))
	for i := range flush {
		assert.Equal(t, i+1, flush[i].Source.Sequence)
		if i > 0 {
			assert.Less(t, flush[i-1].ID.String(), flush[i].ID.String())
			assert.False(t, flush[i].Time.Before(flush[i-1].Time))
		}
	}
}

// Whoever raises at the same time, the sequence of an aggregate's events is the order in which they
// are written.
func TestRaiseFromManyGoroutines(t *testing.T) {
	t.Parallel()
	o := &order{ID: "1"}
	o.Raise(placed{0})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for n := range 500 {
				o.Raise(placed{n})
			}
		})
	}
	wg.Wait()
	var j journal.Journal
	track(t, &j, o)
	flush := collect(t, &j)
	require.Len(t, flush, 4001)
	for i := range flush {
		require.Equal(t, i+1, flush[i].Source.Sequence)
	}
}

// track is what the plugin does after a statement.
func track(t *testing.T, j *journal.Journal, o *order) {
	t.Helper()
	recorder, ok := journal.RecorderOf(reflect.ValueOf(o).Elem())
	require.True(t, ok)
	require.NoError(t, j.Track(recorder, nil, envelope.Source{Aggregate: "Order", ID: o.ID}, &envelope.Context{}))
}

func data(flush []journal.Flush) []any {
	var events []any
	for _, f := range flush {
		events = append(events, f.Data)
	}
	return events
}
