package gormplugin_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/uow"
)

// Picked holds what its aggregate may change after it was raised.
type Picked struct {
	SKUs   []string
	Counts map[string]int
	First  *string
}

// Echo raises another event while it is encoded.
type Echo struct {
	what string
	on   interface {
		Raise(event any, opts ...envelope.Option)
	}
}

func (e Echo) MarshalJSON() ([]byte, error) {
	switch e.what {
	case "panic":
		panic("boom")
	case "error":
		return nil, errors.New("out of ink")
	case "endless":
		e.on.Raise(e)
	default:
		e.on.Raise(Happened{"echo of " + e.what})
	}
	return json.Marshal(e.what)
}

// data is what a row carries.
func (b *bench) data(row int) any {
	b.t.Helper()
	return internalOf(b.t, b.rows()[row])["data"]
}

// What is sent is what was raised, whatever becomes of the slices, maps and pointers in it.
func TestDataIsThatOfTheRaise(t *testing.T) {
	t.Parallel()
	sent := map[string]any{"SKUs": []any{"a", "b"}, "Counts": map[string]any{"a": 1.0}, "First": "a"}
	picked := func() (event Picked, change func()) {
		first := "a"
		event = Picked{SKUs: []string{"a", "b"}, Counts: map[string]int{"a": 1}, First: &first}
		return event, func() { event.SKUs[0], event.Counts["a"], first = "x", 9, "x" }
	}
	runCases(t, map[string]func(b *bench){
		"changed before the commit": func(b *bench) {
			event, change := picked()
			published, changePublished := picked()
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				o := order("1")
				b.ok(tx.Create(o).Error)
				o.Raise(event)
				b.ok(uow.Publish(tx, published))
				change()
				changePublished()
				return nil
			}))
			assert.Equal(b.t, sent, b.data(0))
			assert.Equal(b.t, sent, b.data(1))
		},
		"each attempt sends its own": func(b *bench) {
			o := order("1")
			attempt, ids := 0, []string{}
			b.ok(uow.Do(b.t.Context(), b.db, func(u *uow.Unit) error {
				attempt++
				skus := []string{string(rune('0' + attempt))}
				o.Raise(Picked{SKUs: skus})
				skus[0] = "x"
				ids = append(ids, idOf(o))
				b.ok(u.DB.Create(o).Error)
				if attempt == 1 {
					return errRefused
				}
				return nil
			}, uow.WithRetry(2), uow.WithRetryIf(func(err error) bool { return errors.Is(err, errRefused) })))
			require.Len(b.t, b.rows(), 1)
			assert.Equal(b.t, map[string]any{"SKUs": []any{"2"}, "Counts": nil, "First": nil}, b.data(0))
			assert.Equal(b.t, ids[0], b.rows()[0].MessageID)
			assert.Equal(b.t, ids[0], ids[1])
		},
	})
}

// An event may raise another one while it is encoded, on the same aggregate even. None is lost, and
// its errors are those of the commit.
func TestEventsThatAreEncodedAndRaise(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"after the statement": func(b *bench) {
			o, other := order("1"), order("2")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create([]*Order{o, other}).Error)
				o.Raise(Echo{"a", other})
				return uow.Publish(tx, Echo{"b", o})
			}))
			b.want("2: echo of a", "Echo 1", "1: echo of b", "Echo")
		},
		"an encoding that panics": func(b *bench) {
			o := order("1")
			require.NotPanics(b.t, func() { o.Raise(Echo{"panic", o}) })
			err := b.db.Create(o).Error
			var typed *envelope.EncodeError
			require.ErrorAs(b.t, err, &typed)
			require.EqualError(b.t, err, "gormplugin: capture gormplugin_test.Echo raised by Order: envelope: encode Ordering.Echo.v1: panic: boom: "+
				"fix the MarshalJSON or MarshalText method that panics")
			b.want()
			assert.Zero(b.t, b.orders())
		},
		"an encoding without end": func(b *bench) {
			o := order("1")
			require.NotPanics(b.t, func() { o.Raise(Echo{"endless", o}) })
			require.ErrorContains(b.t, b.db.Create(o).Error, "Raise is called by the MarshalJSON of an event")
			b.want()
		},
	})
}
