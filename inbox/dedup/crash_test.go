package dedup_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/dedup"
	"github.com/gorm-fanout/fanout/inbox/dedup/deduptest"
)

func TestMain(m *testing.M) {
	// GORM never ends the goroutine of its cache of prepared statements.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}

// account is the state of the tests.
type account struct{ Sum int }

var errCrash = errors.New("crash")

// shop is a processor with everything around it in memory.
type shop struct {
	*dedup.Processor[account]

	entities *deduptest.Entities[account]
	store    *deduptest.Store
	tokens   *deduptest.Tokens
	config   dedup.Config[account]
	runs     int
	sent     []dedup.Outgoing
	crashes  []dedup.Step // still to come, in this order
	failing  error        // of the handler
	refusing error        // of the dispatcher
	mute     bool         // the handler sends nothing
	reached  []dedup.Step
}

func open(t *testing.T, byToken bool) *shop {
	t.Helper()
	s := &shop{entities: deduptest.NewEntities[account](), store: deduptest.NewStore(), tokens: deduptest.NewTokens()}
	s.config = dedup.Config[account]{
		Entities: s.entities,
		EntityID: func(m *inbox.Message) (string, error) { return m.OrderingKey, nil },
		Handle: func(_ context.Context, state *account, _ *inbox.Message) ([]dedup.Outgoing, error) {
			s.runs++
			state.Sum += 10
			if s.failing != nil || s.mute {
				return nil, s.failing
			}
			out := []dedup.Outgoing{{Destination: "one", Payload: []byte("1")}, {Destination: "two", Payload: []byte("2"), Token: "the processor's to draw"}}
			if byToken {
				out[0].Receivers = []string{"billing", "shipping"} // and the other one needs none
			}
			return out, nil
		},
		Dispatch: dedup.DispatcherFunc(func(_ context.Context, messages []dedup.Outgoing) error {
			if s.refusing != nil {
				return s.refusing
			}
			s.sent = append(s.sent, messages...)
			return nil
		}),
		After: func(_ context.Context, _ *inbox.Message, step dedup.Step) error {
			s.reached = append(s.reached, step)
			if len(s.crashes) > 0 && s.crashes[0] == step {
				s.crashes = s.crashes[1:]
				return errCrash
			}
			return nil
		},
	}
	if byToken {
		s.config.Tokens, s.config.TokenOf = s.tokens, dedup.KeyToken
	} else {
		s.config.Store = s.store
	}
	s.rebuild(t)
	return s
}

func (s *shop) rebuild(t *testing.T) {
	t.Helper()
	p, err := dedup.New(s.config)
	require.NoError(t, err)
	s.Processor = p
}

func (s *shop) entity(t *testing.T) dedup.Entity[account] {
	t.Helper()
	e, err := s.entities.Load(t.Context(), "account-1")
	require.NoError(t, err)
	return e
}

func newMessage() *inbox.Message {
	key := uuid.New()
	return &inbox.Message{Consumer: "accounts", Key: key, ID: key.String(), Type: "Deposited", OrderingKey: "account-1"}
}

// For each step: crash after it once, deliver again, and twice more.
func TestACrashAfterEachStep(t *testing.T) {
	t.Parallel()
	const saved, handled, duplicate = 1, inbox.Handled, inbox.Duplicate
	for _, c := range []struct {
		crashes   []dedup.Step
		tokens    bool // happens with tokens only
		known     int  // entries in the outbox after the crash
		again     inbox.Outcome
		runs      int // of the handler
		dispatchs int
	}{
		{[]dedup.Step{dedup.StepLoad}, false, 0, handled, 1, 1},
		{[]dedup.Step{dedup.StepCheck}, false, 0, handled, 1, 1},
		{[]dedup.Step{dedup.StepHandle}, false, 0, handled, 2, 1},
		{[]dedup.Step{dedup.StepSave}, false, saved, handled, 1, 1},
		{[]dedup.Step{dedup.StepSave, dedup.StepRedraw}, true, saved, handled, 1, 1},
		{[]dedup.Step{dedup.StepCreate}, true, saved, handled, 1, 1},
		{[]dedup.Step{dedup.StepCreate, dedup.StepCreate}, true, saved, handled, 1, 1},
		{[]dedup.Step{dedup.StepReady}, true, saved, handled, 1, 1},
		{[]dedup.Step{dedup.StepDispatch}, false, saved, handled, 1, 2},
		{[]dedup.Step{dedup.StepRemember}, false, saved, handled, 1, 2},
		{[]dedup.Step{dedup.StepCreate, dedup.StepSweep}, true, saved, handled, 1, 2},
		{[]dedup.Step{dedup.StepClear}, false, 0, duplicate, 1, 1},
	} {
		for _, byToken := range []bool{false, true} {
			if c.tokens && !byToken {
				continue
			}
			name := string(c.crashes[0])
			for _, step := range c.crashes[1:] {
				name += " and " + string(step)
			}
			if byToken {
				name += ", tokens"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s, m := open(t, byToken), newMessage()
				require.NoError(t, s.tokens.Create(t.Context(), []dedup.Token{{Consumer: "accounts", Value: m.Key.String()}}, time.Now()))
				s.crashes = c.crashes
				for range c.crashes {
					_, err := s.Handle(t.Context(), m)
					require.ErrorIs(t, err, errCrash)
				}
				require.Empty(t, s.crashes)
				require.Len(t, s.entity(t).Outbox.Pending, c.known)

				outcome, err := s.Handle(t.Context(), m)
				require.NoError(t, err)
				require.Equal(t, c.again, outcome)
				for range 2 {
					outcome, err := s.Handle(t.Context(), m)
					require.NoError(t, err)
					require.Equal(t, inbox.Duplicate, outcome)
				}
				e := s.entity(t)
				require.Equal(t, 10, e.State.Sum)
				require.True(t, e.Outbox.Empty())
				require.Equal(t, c.runs, s.runs)
				require.Len(t, s.sent, 2*c.dispatchs)
				for n := range s.sent {
					require.Equal(t, s.sent[n%2], s.sent[n], "the same, whenever it is sent")
					require.EqualValues(t, 7, s.sent[n].ID.Version())
				}
				if !byToken {
					require.Equal(t, 1, s.store.Len())
					require.Empty(t, s.sent[0].Token)
					return
				}
				require.Equal(t, s.sent[0].Token, s.sent[0].Fields()[dedup.AttributeToken])
				require.NotContains(t, s.sent[1].Fields(), dedup.AttributeToken)
				require.Equal(t, 2, s.tokens.Len(), "those of the two receivers")
				for _, receiver := range s.sent[0].Receivers {
					there, err := s.tokens.Exists(t.Context(), dedup.Token{Consumer: receiver, Value: s.sent[0].Token})
					require.NoError(t, err)
					require.True(t, there)
				}
			})
		}
	}
}

// What is tested above is all that there is, in the order that is documented.
func TestTheSteps(t *testing.T) {
	t.Parallel()
	s, m := open(t, true), newMessage()
	require.NoError(t, s.tokens.Create(t.Context(), []dedup.Token{{Consumer: "accounts", Value: m.Key.String()}}, time.Now()))
	s.crashes = []dedup.Step{dedup.StepSave}
	_, err := s.Handle(t.Context(), m)
	require.ErrorIs(t, err, errCrash)
	_, err = s.Handle(t.Context(), m)
	require.NoError(t, err)
	require.Equal(t, append(dedup.Steps()[:4:4], append([]dedup.Step{dedup.StepLoad}, dedup.Steps()[4:]...)...), s.reached)

	s, m = open(t, false), newMessage()
	_, err = s.Handle(t.Context(), m)
	require.NoError(t, err)
	require.Equal(t, []dedup.Step{
		dedup.StepLoad, dedup.StepCheck, dedup.StepHandle, dedup.StepSave, dedup.StepDispatch, dedup.StepRemember, dedup.StepClear,
	}, s.reached)
}
