package envelope_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
)

// picked holds what may be changed after it was raised, and encodings of it are counted.
type picked struct {
	Lines   []string
	Note    *string
	counted *atomic.Int32
}

func (p picked) MarshalText() ([]byte, error) {
	p.counted.Add(1)
	return []byte(strings.Join(p.Lines, ",") + " " + *p.Note), nil
}

func keyOf(p picked) string { return p.Lines[0] }

func timeOf(p picked) time.Time { return fixedTime.AddDate(len(*p.Note), 0, 0) }

// What an event is, is settled when it is raised: once, and for every catalog.
func TestNewEventSettlesTheEvent(t *testing.T) {
	t.Parallel()
	plain, typed := envelope.NewCatalog("plain"), envelope.NewCatalog("typed")
	envelope.Register[picked](plain)
	var calls atomic.Int32
	envelope.Register[picked](typed, envelope.NotBefore(timeOf), envelope.Key(func(p picked) string {
		calls.Add(1)
		return "typed " + keyOf(p)
	}))
	raise := func(opts ...envelope.Option) (event envelope.Event, encodings *atomic.Int32) {
		note, counted := "n", new(atomic.Int32)
		data := picked{Lines: []string{"a", "b"}, Note: &note, counted: counted}
		event = envelope.NewEvent(data, opts...)
		data.Lines[0], note = "x", "changed"
		for i := range opts {
			opts[i] = envelope.TTL(time.Hour)
		}
		return event, counted
	}
	event, encodings := raise()
	own, _ := raise(envelope.Key(func(p picked) string { return "own " + keyOf(p) }),
		envelope.NotBefore(func(p picked) time.Time { return timeOf(p).AddDate(1, 0, 0) }))
	for range 2 {
		m := seal(t, plain, event, order42, envelope.Context{})
		require.Equal(t, `"a,b n"`, string(m.Data))
		require.Equal(t, "plain::order-42", m.Routing.OrderingKey)
		require.Zero(t, m.Routing.NotBefore)
		require.Equal(t, len(m.Data), cap(m.Data), "messages of one event do not append into each other")

		m = seal(t, typed, event, order42, envelope.Context{})
		require.Equal(t, `"a,b n"`, string(m.Data))
		require.Equal(t, "typed a", m.Routing.OrderingKey)
		require.Equal(t, fixedTime.AddDate(1, 0, 0), m.Routing.NotBefore)

		for _, c := range []*envelope.Catalog{plain, typed} {
			m = seal(t, c, own, order42, envelope.Context{})
			require.Equal(t, "own a", m.Routing.OrderingKey)
			require.Equal(t, fixedTime.AddDate(2, 0, 0), m.Routing.NotBefore)
			require.Zero(t, m.Routing.ExpiresAt, "the options were given as they were")
		}
	}
	require.EqualValues(t, 1, encodings.Load())
	require.EqualValues(t, 2, calls.Load(), "once for each of the two events")
	require.Equal(t, []string{"x", "b"}, event.Data.(picked).Lines, "the value itself")

	note := "n"
	literal := fixedEvent(picked{Lines: []string{"a"}, Note: &note, counted: new(atomic.Int32)})
	note = "nn"
	m := seal(t, typed, literal, order42, envelope.Context{})
	require.Equal(t, `"a nn"`, string(m.Data), "nobody has encoded it before")
	require.Equal(t, "typed a", m.Routing.OrderingKey)
	require.Equal(t, fixedTime.AddDate(2, 0, 0), m.Routing.NotBefore)
}

// A registration that comes after the event, or was refused, has no say when it is raised.
func TestRegisteredAfterTheEvent(t *testing.T) {
	t.Parallel()
	type (
		late  struct{ Keys []string }
		timed struct{ Years []int }
	)
	refused := envelope.NewCatalog("refused")
	envelope.Register[late](refused, envelope.Key(func(late) string { panic("it was refused") }), envelope.Version(0))
	event := envelope.NewEvent(late{[]string{"a"}})
	c := envelope.NewCatalog("ordering")
	envelope.Register[late](c, envelope.Key(func(l late) string { return l.Keys[0] }))
	require.Equal(t, "a", seal(t, c, event, order42, envelope.Context{}).Routing.OrderingKey)

	envelope.Register[timed](c, envelope.NotBefore(func(e timed) time.Time { return fixedTime.AddDate(e.Years[0], 0, 0) }))
	years := []int{1}
	event = envelope.NewEvent(timed{years})
	years[0] = 2
	require.Equal(t, fixedTime.AddDate(1, 0, 0), seal(t, c, event, order42, envelope.Context{}).Routing.NotBefore)
}

// Extensions are what they were when the option was made, and when the context was read.
func TestExtensionsAreSnapshots(t *testing.T) {
	t.Parallel()
	c := newCatalog(t)
	list, object := []int{1}, map[string]any{"a": "<x>"}
	event := placed(envelope.Extension("event", list))
	ctx := envelope.WithExtension(context.Background(), "context", object)
	ctx = envelope.WithExtension(ctx, "scalar", 1.5)
	cx := envelope.FromContext(envelope.WithExtension(ctx, "wrong", func() {}))
	list[0], object["a"] = 9, "changed"
	require.Equal(t, map[string]any{"a": "<x>"}, cx.Extensions["context"])
	require.InDelta(t, 1.5, cx.Extensions["scalar"], 0)
	_, err := c.Seal(event, order42, cx)
	require.ErrorContains(t, err, `extension "wrong": json: unsupported type: func()`)
	delete(cx.Extensions, "wrong")
	raw, err := seal(t, c, event, order42, cx).MarshalInternal()
	require.NoError(t, err)
	require.Contains(t, string(raw), `"extensions":{"context":{"a":"<x>"},"event":[1],"scalar":1.5}`)
	require.Equal(t, map[string]any{"a": "changed"}, envelope.FromContext(ctx).Extensions["context"])
}

// An event can say which aggregate raised it, in a copy, under the same id and time.
func TestFrom(t *testing.T) {
	t.Parallel()
	event := placed()
	from := event.From(order42)
	assert.Equal(t, order42, from.Source())
	assert.Zero(t, event.Source())
	c := newCatalog(t)
	want := seal(t, c, event, order42, envelope.Context{})
	assert.Equal(t, want, seal(t, c, from, envelope.Source{}, envelope.Context{}))
	other := envelope.Source{Aggregate: "Cart", ID: "1"}
	assert.Equal(t, "ordering::cart-1", seal(t, c, from, other, envelope.Context{}).Metadata.Headers.Stream, "what Seal is given counts")
	assert.Equal(t, "ordering::cart-1", seal(t, c, from.From(other), envelope.Source{}, envelope.Context{}).Metadata.Headers.Stream)
}
