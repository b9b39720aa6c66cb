package gormplugin_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

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

// Bin is put in order by what may be changed, too, and waits for the time that stands there.
type Bin struct{ Keys []string }

func binKey(b Bin) string { return b.Keys[0] }

func binTime(b Bin) time.Time {
	at, _ := time.Parse(time.DateOnly, b.Keys[1])
	return at
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
		"changed before the statement": func(b *bench) {
			event, change := picked()
			o := order("1")
			o.Raise(event)
			change()
			b.ok(b.db.Create(o).Error)
			assert.Equal(b.t, sent, b.data(0))
		},
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
		"changed after a rollback": func(b *bench) {
			event, change := picked()
			o := order("1")
			o.Raise(event)
			require.ErrorIs(b.t, b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(o).Error)
				return errRefused
			}), errRefused)
			change()
			assert.Equal(b.t, []any{event}, uow.Pending(o), "the value itself")
			b.ok(b.db.Create(o).Error)
			assert.Equal(b.t, sent, b.data(0))
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
		"functions of the event's type and of its options": func(b *bench) {
			o := order("1")
			for range 2 {
				typed := Bin{[]string{"typed", "2999-01-01"}}
				o.Raise(typed)
				own := Bin{[]string{"own", "2999-01-01"}}
				options := []envelope.Option{envelope.Key(func(e Bin) string { return "of " + e.Keys[0] }), envelope.NotBefore(binTime)}
				o.Raise(own, options...)
				typed.Keys[0], typed.Keys[1] = "x", ""
				own.Keys[0], own.Keys[1] = "x", ""
				options[0], options[1] = envelope.Unordered(), envelope.TTL(time.Hour)
			}
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				published := Bin{[]string{"published", "2999-01-01"}}
				b.ok(uow.Publish(tx, published))
				clear(published.Keys)
				return tx.Create(o).Error
			}))
			keys := []string{}
			for _, r := range b.rows() {
				keys = append(keys, *r.OrderingKey)
				assert.True(b.t, r.Held, "until the time that stood there")
				assert.False(b.t, r.Expires)
			}
			assert.Equal(b.t, []string{"typed", "of own", "typed", "of own", "published"}, keys)
		},
		"extensions": func(b *bench) {
			ofEvent, ofContext := []string{"a"}, map[string]string{"k": "a"}
			o := order("1")
			o.Raise(Happened{"a"}, envelope.Extension("event", ofEvent))
			ofEvent[0] = "x"
			b.ok(b.db.WithContext(envelope.WithExtension(b.t.Context(), "context", ofContext)).Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(o).Error)
				ofContext["k"] = "x"
				return nil
			}))
			assert.Equal(b.t, map[string]any{"event": []any{"a"}, "context": map[string]any{"k": "a"}},
				part(internalOf(b.t, b.rows()[0]), "metadata", "extensions"))
		},
	})
}

// An event may raise another one while it is encoded, on the same aggregate even. None is lost, and
// its errors are those of the commit.
func TestEventsThatAreEncodedAndRaise(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"before the statement": func(b *bench) {
			o := order("1", "a")
			o.Raise(Echo{"b", o})
			raising(o, "c")
			b.ok(b.db.Create(o).Error)
			b.want("1: a", "1: echo of b", "Echo 1", "1: c")
			b.pending(o)
		},
		"after the statement": func(b *bench) {
			o, other := order("1"), order("2")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create([]*Order{o, other}).Error)
				o.Raise(Echo{"a", other})
				return uow.Publish(tx, Echo{"b", o})
			}))
			b.want("2: echo of a", "Echo 1", "1: echo of b", "Echo")
		},
		"in a transaction of the caller's own": func(b *bench) {
			o := order("1")
			o.Raise(Echo{"a", o})
			own, commit := foreign(b.t, b.db)
			b.ok(own.Create(o).Error)
			commit()
			b.want("1: echo of a", "Echo 1")
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
		"an encoding that fails": func(b *bench) {
			o := order("1")
			o.Raise(Echo{"error", o})
			err := b.db.Create(o).Error
			require.ErrorContains(b.t, err, "out of ink: fix the MarshalJSON or MarshalText method of gormplugin_test.Echo")
			require.Len(b.t, uow.Pending(o), 1)
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
