package deduptest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox/dedup"
)

// RunEntities tests a store of entities. open returns one without the entities "a" and "b"; one and
// two are states that differ from each other and from that of an entity that is not there. The
// outbox is compared field by field, states with assert.Equal.
func RunEntities[S any](t *testing.T, open func(*testing.T) dedup.Entities[S], one, two S) {
	t.Run("an entity that is not there", func(t *testing.T) {
		t.Parallel()
		entities := open(t)
		e, err := entities.Load(t.Context(), "a")
		require.NoError(t, err)
		require.Empty(t, e.Version)
		require.True(t, e.Outbox.Empty())
		require.NotEqual(t, one, e.State)
	})
	t.Run("state and outbox come back", func(t *testing.T) {
		t.Parallel()
		entities := open(t)
		saved := dedup.Entity[S]{State: one, Outbox: exampleOutbox()}
		version, err := entities.Save(t.Context(), "a", saved)
		require.NoError(t, err)
		require.NotEmpty(t, version)
		saved.Version = version
		for range 2 { // and reading changes nothing
			e, err := entities.Load(t.Context(), "a")
			require.NoError(t, err)
			require.Equal(t, saved, e)
		}
		e, err := entities.Load(t.Context(), "b")
		require.NoError(t, err)
		require.Empty(t, e.Version, "another entity is not touched")

		saved.State, saved.Outbox = two, dedup.Outbox{}
		next, err := entities.Save(t.Context(), "a", saved)
		require.NoError(t, err)
		require.NotEqual(t, version, next)
		e, err = entities.Load(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, two, e.State)
		require.Equal(t, next, e.Version)
		require.True(t, e.Outbox.Empty())
	})
	t.Run("conflicts", func(t *testing.T) {
		t.Parallel()
		conflicts(t, open(t), one, two)
	})
	t.Run("a context that has ended", func(t *testing.T) {
		t.Parallel()
		entities := open(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := entities.Load(ctx, "a")
		require.Error(t, err)
		_, err = entities.Save(ctx, "a", dedup.Entity[S]{State: one})
		require.Error(t, err)
		require.NotErrorIs(t, err, dedup.ErrConflict)
	})
	t.Run("one of many wins", func(t *testing.T) {
		t.Parallel()
		race(t, open(t), one)
	})
}

func conflicts[S any](t *testing.T, entities dedup.Entities[S], one, two S) {
	t.Helper()
	first, err := entities.Save(t.Context(), "a", dedup.Entity[S]{State: one})
	require.NoError(t, err)
	_, err = entities.Save(t.Context(), "a", dedup.Entity[S]{State: two})
	require.ErrorIs(t, err, dedup.ErrConflict, "it is there already")
	second, err := entities.Save(t.Context(), "a", dedup.Entity[S]{State: one, Version: first})
	require.NoError(t, err)
	require.NotEqual(t, first, second, "a new version, although nothing has changed")
	for range 2 {
		_, err = entities.Save(t.Context(), "a", dedup.Entity[S]{State: two, Version: first, Outbox: exampleOutbox()})
		require.ErrorIs(t, err, dedup.ErrConflict, "an old version")
	}
	e, err := entities.Load(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, one, e.State, "a conflict writes nothing")
	require.True(t, e.Outbox.Empty())
	require.Equal(t, second, e.Version)
	_, err = entities.Save(t.Context(), "b", dedup.Entity[S]{State: two, Version: first})
	require.ErrorIs(t, err, dedup.ErrConflict, "it was there, and is gone")
	e, err = entities.Load(t.Context(), "b")
	require.NoError(t, err)
	require.Empty(t, e.Version)
}

// race lets several save what all of them have loaded.
func race[S any](t *testing.T, entities dedup.Entities[S], one S) {
	t.Helper()
	const racers, rounds = 8, 10
	for round := range rounds {
		e, err := entities.Load(t.Context(), "a")
		require.NoError(t, err)
		e.State = one
		var won atomic.Int32
		var all sync.WaitGroup
		for n := range racers {
			all.Go(func() {
				mine := e
				mine.Outbox = dedup.Outbox{Pending: []dedup.Pending{{Consumer: fmt.Sprint(n), Phase: dedup.Ready}}}
				_, err := entities.Save(t.Context(), "a", mine)
				if err == nil {
					won.Add(1)
				} else if !errors.Is(err, dedup.ErrConflict) {
					assert.NoError(t, err)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 1, won.Load(), "round %d", round)
	}
}

// exampleOutbox has a value in each field.
func exampleOutbox() dedup.Outbox {
	return dedup.Outbox{Pending: []dedup.Pending{{
		Consumer: "mailer ü", Key: uuid.MustParse("0199c0de-0000-7000-8000-000000000001"), Token: "t1", Phase: dedup.Drawn,
		Outgoing: []dedup.Outgoing{{
			ID: uuid.MustParse("0199c0de-0000-7000-8000-000000000002"), Destination: "ordering::order", Type: "Ordering.OrderPlaced.v1",
			OrderingKey: "ordering::order-42", Payload: []byte{0, 1, 0xff, '"', '\n'}, ContentType: "application/octet-stream",
			Attributes: map[string]string{"traceparent": "00-…", "": "empty"}, Receivers: []string{"billing"}, Token: "t2",
		}},
		Replaced: []dedup.Token{{Consumer: "billing", Value: "t3"}},
	}, {
		Consumer: "mailer", Key: uuid.MustParse("0199c0de-0000-7000-8000-000000000003"), Phase: dedup.Ready,
	}}}
}
