package uow_test

import (
	"database/sql/driver"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/journal"
	"github.com/gorm-fanout/fanout/uow"
)

type (
	core  struct{ uow.Aggregate }
	shell struct {
		Color string
		Core  core `gorm:"EMBEDDED;embeddedPrefix:core_"`
	}
	keyed struct {
		ID int
		core
	}
	keyedByTag struct {
		Number int `gorm:"primaryKey"`
		core
	}
	keyedInside struct {
		Key keyedByTag `gorm:"embedded"`
		core
	}
	ring   struct{ *ringed }
	ringed struct {
		*ring //nolint:unused // there is no end to it
		uow.Aggregate
	}
	custom struct{ core }

	// Keys of the kinds that GORM finds.
	Based struct {
		Number int `gorm:"primary_key"`
	}
	keyedAbove struct {
		Based
		core
	}

	// What holds itself has no end.
	branch struct{ branches []branch } //nolint:unused // there is no end to it
	Hoop   struct{ *Hooped }
	Hooped struct{ *Hoop }

	// Deep has its aggregate far in, before more that is embedded.
	Deep  struct{ deep2 }
	deep2 struct{ deep3 }
	deep3 struct{ deep4 }
	deep4 struct {
		uow.Aggregate
		Deep5
	}
	Deep5 struct{}

	left  struct{ core }
	right struct{ core }
)

func (custom) Raise(string) {}

func (custom) Value() (driver.Value, error) { return "", nil }

func TestIsAggregate(t *testing.T) {
	t.Parallel()
	for _, value := range []any{
		order{},
		&order{}, new(*order),
		uow.Aggregate{},
		core{},
		shell{},
		keyed{},
		custom{},
		ringed{},
		ring{},
		struct{ *uow.Aggregate }{},
		struct{ events uow.Aggregate }{},
		struct{ Events **uow.Aggregate }{},
		struct {
			Raise int
			uow.Aggregate
		}{},
		struct {
			Shell *shell `gorm:"embedded"`
		}{},
		struct {
			shell shell `gorm:"embedded"`
		}{},
		struct {
			uow.Aggregate
			Card    keyed
			Lines   []keyed
			parent  *core
			parents []*core
			first   keyed
			second  [2]keyedByTag
			third   map[string]keyedInside
			at      time.Time
			other   any
			fourth  keyedAbove
			ring    []ring
			branch  branch
			hoop    Hoop
			Core    core // a relation, for GORM to judge
			Cores   []core
		}{},
	} {
		typ := reflect.TypeOf(value)
		require.NoError(t, journal.CheckAggregate(typ), typ)
		require.True(t, journal.IsAggregate(typ), typ)
	}
	for _, value := range []any{
		placed{},
		1,
		[]order{},
		time.Time{},
		struct{ Order order }{},
		struct{ order *order }{},
		struct {
			Order keyed `gorm:"-"`
		}{},
		struct {
			Order order `gorm:"serializer:json"`
		}{},
	} {
		typ := reflect.TypeOf(value)
		require.NoError(t, journal.CheckAggregate(typ), typ)
		require.False(t, journal.IsAggregate(typ), typ)
	}
}

func TestAggregateErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		value  any
		fields []string
	}{
		{struct {
			*order
			Shell shell `gorm:"embedded"`
			uow.Aggregate
		}{}, []string{"order.Aggregate", "Shell.Core.Aggregate", "Aggregate"}},
		{&struct {
			core
			events *uow.Aggregate
		}{}, []string{"core.Aggregate", "events"}},
		{struct {
			*left
			right
		}{}, []string{"left.core.Aggregate", "right.core.Aggregate"}},
		{struct{ state core }{}, []string{"state.Aggregate"}},
		{struct{ first, second core }{}, []string{"first.Aggregate"}},
		{struct {
			state struct {
				id string
				core
			}
		}{}, []string{"state.core.Aggregate"}},
		{struct {
			uow.Aggregate
			state core
		}{}, []string{"state.Aggregate"}},
		{struct{ lines []core }{}, []string{"lines[].Aggregate"}},
		{struct{ lines map[int][2]uow.Aggregate }{}, []string{"lines[][]"}},
		{struct {
			Lines []core `gorm:"serializer:json"`
		}{}, []string{"Lines[].Aggregate"}},
		{struct {
			State struct{ Inner shell } `gorm:"-"`
		}{}, []string{"State.Inner.Core.Aggregate"}},
		{struct{ State custom }{}, []string{"State.core.Aggregate"}},
		{struct {
			Base struct{ state core } `gorm:"embedded"`
		}{}, []string{"Base.state.Aggregate"}},
	} {
		typ := reflect.TypeOf(test.value)
		assert.False(t, journal.IsAggregate(typ), typ)
		err := journal.CheckAggregate(typ)
		var problem *uow.AggregateError
		require.ErrorAs(t, err, &problem, typ)
		assert.Equal(t, test.fields, problem.Fields)
		_, ok := journal.RecorderOf(reflect.New(reflect.Indirect(reflect.ValueOf(test.value)).Type()))
		assert.False(t, ok)
		assert.Nil(t, uow.Pending(test.value))
	}
}

// However the recorder is asked for, it is the one of the aggregate.
func TestRecorderOf(t *testing.T) {
	t.Parallel()
	type hidden struct{ events uow.Aggregate }
	type deep struct {
		Shell **shell `gorm:"embedded"`
	}
	h, s := hidden{}, &shell{}
	d := deep{Shell: &s}
	_, ok := journal.RecorderOf(reflect.ValueOf(h))
	assert.False(t, ok, "a recorder of a copy would be lost with it")
	h.events.Raise(placed{1})
	s.Core.Raise(placed{2})
	copied, copies := h, []any{h, &h}
	for want, values := range map[int][]any{1: {h, &h, copied, copies[0], copies[1], &copies[0]}, 2: {d, &d, s, *s, &s.Core, &s.Core.Aggregate}} {
		for _, value := range values {
			assert.Equal(t, []any{placed{want}}, uow.Pending(value))
		}
	}
	var far Deep
	far.Raise(placed{4})
	assert.Equal(t, []any{placed{4}}, uow.Pending(&far))
	fresh := deep{Shell: new(*shell)}
	_, ok = journal.RecorderOf(reflect.ValueOf(&fresh))
	assert.False(t, ok, "a nil on the way")
	*fresh.Shell = &shell{}
	recorder, ok := journal.RecorderOf(reflect.ValueOf(fresh))
	require.True(t, ok, "what is behind a pointer is not copied")
	(*fresh.Shell).Core.Raise(placed{3})
	assert.Equal(t, 1, recorder.Len())
	for _, value := range []any{nil, (*order)(nil), deep{}, placed{}, []order{{}}, any((*any)(nil))} {
		assert.Nil(t, uow.Pending(value))
	}
	assert.Equal(t, []any{}, uow.Pending(&order{}))
}
