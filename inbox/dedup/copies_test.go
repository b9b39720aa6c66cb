package dedup_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/dedup"
)

// at does something once, after a step.
func (s *shop) at(t *testing.T, step dedup.Step, do func()) {
	t.Helper()
	before := s.config.After
	s.config.After = func(ctx context.Context, m *inbox.Message, reached dedup.Step) error {
		if reached == step && do != nil {
			now := do
			do = nil
			now()
		}
		return before(ctx, m, reached)
	}
	s.rebuild(t)
}

// forget makes the memory lose everything.
func (s *shop) forget(t *testing.T) {
	t.Helper()
	_, err := s.store.PurgeOlderThan(t.Context(), time.Now().Add(time.Hour), 1000)
	require.NoError(t, err)
	require.Zero(t, s.store.Len())
}

func (s *shop) count(step dedup.Step) (n int) {
	for _, reached := range s.reached {
		if reached == step {
			n++
		}
	}
	return n
}

// Whoever has seen the mark of a message knows that it took effect, whatever the memory says later.
func TestACopyIsFasterAndTheMemoryForgets(t *testing.T) {
	t.Parallel()
	s, m := open(t, false), newMessage()
	s.at(t, dedup.StepDispatch, func() {
		outcome, err := s.Handle(t.Context(), m)
		require.NoError(t, err)
		require.Equal(t, inbox.Handled, outcome)
	})
	forgotten := false
	before := s.config.After
	s.config.After = func(ctx context.Context, m *inbox.Message, step dedup.Step) error {
		if step == dedup.StepRemember && s.count(dedup.StepClear) == 1 && !forgotten { // of the slower one, at its end
			forgotten = true
			s.forget(t)
		}
		return before(ctx, m, step)
	}
	s.rebuild(t)
	outcome, err := s.Handle(t.Context(), m)
	require.NoError(t, err)
	require.True(t, forgotten)
	require.Equal(t, inbox.Handled, outcome)
	require.Equal(t, 1, s.runs)
	require.Equal(t, 10, s.entity(t).State.Sum)
}

// The same where an entity is resumed, which has no message to run a handler with.
func TestADeliveryIsFasterThanResume(t *testing.T) {
	t.Parallel()
	s, one, two := open(t, false), newMessage(), newMessage()
	s.refusing = errCrash
	for _, m := range []*inbox.Message{one, two} {
		_, err := s.Handle(t.Context(), m)
		require.ErrorIs(t, err, errCrash)
	}
	s.refusing = nil
	s.at(t, dedup.StepClear, func() {
		_, err := s.Handle(t.Context(), two)
		require.NoError(t, err)
		s.forget(t)
	})
	n, err := s.Resume(t.Context(), "account-1")
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, 2, s.runs)
	e := s.entity(t)
	require.True(t, e.Outbox.Empty())
}

// Two processors of the same entities that remember in different ways: one that finished what is
// the other's would remember it where the other does not look, and the next copy would take effect
// again.
func TestResumeLeavesWhatAnotherMemoryNeeds(t *testing.T) {
	t.Parallel()
	for _, byToken := range []bool{false, true} {
		s, other, m := open(t, byToken), open(t, !byToken), newMessage()
		other.config.Entities = s.entities
		other.rebuild(t)
		require.NoError(t, s.tokens.Create(t.Context(), []dedup.Token{{Consumer: "accounts", Value: m.Key.String()}}, time.Now()))
		s.crashes = []dedup.Step{dedup.StepReady}
		if !byToken {
			s.crashes = []dedup.Step{dedup.StepSave}
		}
		_, err := s.Handle(t.Context(), m)
		require.ErrorIs(t, err, errCrash)
		n, err := other.Resume(t.Context(), "account-1")
		require.ErrorContains(t, err, map[bool]string{false: "was taken in without a token", true: "was taken in by token"}[byToken])
		require.Zero(t, n)
		for range 2 {
			_, err = s.Handle(t.Context(), m)
			require.NoError(t, err)
		}
		e := s.entity(t)
		require.Equal(t, 10, e.State.Sum, "it has taken effect once")
		require.True(t, e.Outbox.Empty())
	}
}

// A conflict after the effect repeats only the save.
func TestConflictsAfterTheEffect(t *testing.T) {
	t.Parallel()
	s, m := open(t, true), newMessage()
	require.NoError(t, s.tokens.Create(t.Context(), []dedup.Token{{Consumer: "accounts", Value: m.Key.String()}}, time.Now()))
	entities := &rival{s.entities, 0}
	s.config.Entities = entities
	s.at(t, dedup.StepCreate, func() { entities.times = 2 })
	s.at(t, dedup.StepRemember, func() { entities.times = 2 })
	outcome, err := s.Handle(t.Context(), m)
	require.NoError(t, err)
	require.Equal(t, inbox.Handled, outcome)
	for step, want := range map[dedup.Step]int{
		dedup.StepLoad: 5, dedup.StepCheck: 1, dedup.StepHandle: 1, dedup.StepSave: 1, dedup.StepRedraw: 0, dedup.StepCreate: 1,
		dedup.StepReady: 1, dedup.StepDispatch: 1, dedup.StepRemember: 1, dedup.StepSweep: 0, dedup.StepClear: 1,
	} {
		require.Equal(t, want, s.count(step), step)
	}
	require.Equal(t, 14, s.entity(t).State.Sum)
	require.Equal(t, 2, s.tokens.Len())
}

// Two consumers may take the same message to the same entity: each of them has its effect.
func TestTwoConsumersOfOneEntity(t *testing.T) {
	t.Parallel()
	s, one := open(t, false), newMessage()
	two := *one
	two.Consumer = "rewards"
	s.crashes = []dedup.Step{dedup.StepSave, dedup.StepSave}
	for _, m := range []*inbox.Message{one, &two} {
		_, err := s.Handle(t.Context(), m)
		require.ErrorIs(t, err, errCrash)
	}
	require.Len(t, s.entity(t).Outbox.Pending, 2)
	_, err := s.Handle(t.Context(), one)
	require.NoError(t, err)
	e := s.entity(t)
	require.Len(t, e.Outbox.Pending, 1)
	require.Equal(t, "rewards", e.Outbox.Pending[0].Consumer)
	_, err = s.Handle(t.Context(), &two)
	require.NoError(t, err)
	require.Equal(t, 20, s.entity(t).State.Sum)
	require.Equal(t, 2, s.store.Len())
}

// A token that a message carries is the one that is removed.
func TestACarriedTokenIsUsedUp(t *testing.T) {
	t.Parallel()
	s, m := open(t, true), newMessage()
	s.mute = true
	token := dedup.Token{Consumer: m.Consumer, Value: uuid.NewString()}
	m.Attributes = map[string]string{dedup.AttributeToken: token.Value}
	require.NoError(t, s.tokens.Create(t.Context(), []dedup.Token{token}, time.Now()))
	outcome, err := s.Handle(t.Context(), m)
	require.NoError(t, err)
	require.Equal(t, inbox.Handled, outcome)
	require.Zero(t, s.tokens.Len())
	require.Equal(t, []dedup.Step{
		dedup.StepLoad, dedup.StepCheck, dedup.StepHandle, dedup.StepSave, dedup.StepRemember, dedup.StepClear,
	}, s.reached)
}
