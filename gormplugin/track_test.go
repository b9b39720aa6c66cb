package gormplugin_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/uow"
)

// Ledger is a domain object that GORM knows nothing of: others write its rows.
type Ledger struct {
	number string
	uow.Aggregate
}

// Voucher is one that GORM cannot even read.
type Voucher struct {
	Hook func()
	Code complex128
	uow.Aggregate
}

func ledger(what string) *Ledger { return raising(&Ledger{number: "L-1"}, what) }

func ledgerSource(version int64) uow.TrackOption {
	return uow.WithSource(envelope.Source{Aggregate: "Ledger", ID: "L-1", Version: version})
}

// An aggregate that is no GORM model is tracked with a source given by hand, wherever one that is a
// model is tracked.
func TestTrackWithASource(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"in a transaction": func(b *bench) {
			l := ledger("a")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(uow.Track(tx, l, ledgerSource(7)))
				raising(l, "late")
				return nil
			}))
			b.want("L-1: a", "L-1: late")
			b.pending(l)
			r := b.rows()[1]
			assert.Equal(b.t, "ordering::ledger", r.Stream)
			assert.Equal(b.t, "ordering::ledger-L-1", *r.OrderingKey)
			assert.Equal(b.t, "7.2", part(internalOf(b.t, r), "metadata", "domain")["sequence_id"])
		},
		"a model": func(b *bench) {
			o := order("1", "a")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				return uow.Track(tx, o, uow.WithSource(envelope.Source{Aggregate: "Purchase", ID: "42"}))
			}))
			b.want("42: a")
			assert.Equal(b.t, "ordering::purchase", b.rows()[0].Stream)
		},
		"a copy": func(b *bench) {
			l := ledger("a")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error { return uow.Track(tx, *l, ledgerSource(0)) }))
			b.want("L-1: a")
			b.pending(l)
		},
	})
}

// What cannot be tracked is refused at once, with what to do about it.
func TestTrackErrors(t *testing.T) {
	t.Parallel()
	type stranger struct{ ID string }
	for name, c := range map[string]struct {
		aggregate any
		options   []uow.TrackOption
		says      []string
	}{
		"no model, for it has no key":       {ledger("a"), nil, []string{"track *gormplugin_test.Ledger", "no primary key", `uow.WithSource(envelope.Source{Aggregate: "Ledger", ID: ...})`}},
		"no model, for it cannot be read":   {raising(&Voucher{}, "a"), nil, []string{"gormplugin_test.Voucher", `uow.WithSource(envelope.Source{Aggregate: "Voucher", ID: ...})`}},
		"several, of which one is no model": {[]any{order("1", "a"), ledger("a")}, nil, []string{"uow.WithSource"}},
		"several with one source":           {[]any{ledger("a"), ledger("b")}, []uow.TrackOption{ledgerSource(0)}, []string{"2 aggregates", "one by one"}},
		"no aggregate":                      {&stranger{}, nil, []string{"uow.Aggregate"}},
		"no aggregate, with a source":       {&stranger{}, []uow.TrackOption{ledgerSource(0)}, []string{"uow.Aggregate"}},
		"nil":                               {nil, []uow.TrackOption{ledgerSource(0)}, []string{"uow.Aggregate"}},
		"a nil pointer":                     {(*Ledger)(nil), []uow.TrackOption{ledgerSource(0)}, []string{"nil"}},
		"a nil pointer to a model":          {(*Order)(nil), nil, []string{"nil"}},
		"a source of nothing":               {ledger("a"), []uow.TrackOption{uow.WithSource(envelope.Source{})}, []string{"WithSource", "Aggregate"}},
		"a source without an id":            {ledger("a"), []uow.TrackOption{uow.WithSource(envelope.Source{Aggregate: "Ledger"})}, []string{"WithSource", "id"}},
		"a source without an aggregate":     {ledger("a"), []uow.TrackOption{uow.WithSource(envelope.Source{ID: "1"})}, []string{"WithSource", "Aggregate"}},
		"a source with a bad name":          {ledger("a"), []uow.TrackOption{uow.WithSource(envelope.Source{Aggregate: "::", ID: "1"})}, []string{"WithSource", `"::"`}},
		"a source with a bad id":            {ledger("a"), []uow.TrackOption{uow.WithSource(envelope.Source{Aggregate: "A", ID: "\xff"})}, []string{"WithSource", "id"}},
		"a source with a sequence":          {ledger("a"), []uow.TrackOption{uow.WithSource(envelope.Source{Aggregate: "A", ID: "1", Sequence: 3})}, []string{"WithSource", "Sequence"}},
		"a source with a negative version":  {ledger("a"), []uow.TrackOption{uow.WithSource(envelope.Source{Aggregate: "A", ID: "1", Version: -1})}, []string{"WithSource", "Version"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(b *bench) {
				err := b.db.Transaction(func(tx *gorm.DB) error {
					err := uow.Track(tx, c.aggregate, c.options...)
					return errors.Join(err, tx.Create(&Plain{}).Error)
				})
				require.Error(b.t, err)
				for _, text := range c.says {
					assert.ErrorContains(b.t, err, text)
				}
				b.want()
			})
		})
	}
}
