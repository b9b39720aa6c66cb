package dedup_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/dedup"
	"github.com/gorm-fanout/fanout/inbox/dedup/deduptest"
)

func TestNewReportsEverything(t *testing.T) {
	t.Parallel()
	_, err := dedup.New(dedup.Config[account]{Conflicts: -1, TokenOf: dedup.KeyToken})
	for _, want := range []string{"Config.Entities", "Config.EntityID", "Config.Handle", "Config.Store and Config.Tokens", "Config.TokenOf", "Config.Conflicts is -1"} {
		require.ErrorContains(t, err, want)
	}
}

func TestAHandlerThatFails(t *testing.T) {
	t.Parallel()
	s, m := open(t, false), newMessage()
	s.failing = errors.New("no such account")
	_, err := s.Handle(t.Context(), m)
	require.Equal(t, s.failing, err, "as it is: the consumer counts")
	e := s.entity(t)
	require.Empty(t, e.Version)
	s.failing = nil
	outcome, err := s.Handle(t.Context(), m)
	require.NoError(t, err)
	require.Equal(t, inbox.Handled, outcome)
	require.Equal(t, 10, s.entity(t).State.Sum)
}

// A handler that takes too long is an attempt, whatever the store makes of a context that has
// ended.
func TestAHandlerThatTakesTooLong(t *testing.T) {
	t.Parallel()
	s, m := open(t, false), newMessage()
	ctx, cancel := context.WithCancelCause(t.Context())
	handle := s.config.Handle
	s.config.Handle = func(c context.Context, state *account, m *inbox.Message) ([]dedup.Outgoing, error) {
		cancel(errCrash)
		return handle(c, state, m)
	}
	s.rebuild(t)
	_, err := s.Handle(ctx, m)
	require.ErrorIs(t, err, errCrash)
	require.False(t, inbox.IsUnavailable(err))
}

func TestADispatcherThatRefuses(t *testing.T) {
	t.Parallel()
	for _, byToken := range []bool{false, true} {
		s, m := open(t, byToken), newMessage()
		require.NoError(t, s.tokens.Create(t.Context(), []dedup.Token{{Consumer: "accounts", Value: m.Key.String()}}, time.Now()))
		s.refusing = errors.New("broker is out")
		_, err := s.Handle(t.Context(), m)
		require.ErrorIs(t, err, s.refusing)
		require.True(t, inbox.IsUnavailable(err), "no fault of the message")
		s.refusing = inbox.Permanent(errors.New("too large"))
		_, err = s.Handle(t.Context(), m)
		require.True(t, inbox.IsPermanent(err) && !inbox.IsUnavailable(err), "%v", err)
		_, err = s.Resume(t.Context(), "account-1")
		require.True(t, inbox.IsPermanent(err))

		// The message is among the dead letters now. Its outgoing messages wait.
		s.refusing = nil
		n, err := s.Resume(t.Context(), "account-1")
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Len(t, s.sent, 2)
		n, err = s.Resume(t.Context(), "account-1")
		require.NoError(t, err)
		require.Zero(t, n)
		outcome, err := s.Handle(t.Context(), m)
		require.NoError(t, err)
		require.Equal(t, inbox.Duplicate, outcome, "and whoever sends it again does no harm")
		require.Equal(t, 1, s.runs)
	}
}

// While the store of tokens is out, each delivery draws, and the outbox does not grow forever.
func TestTokensDrawnInVain(t *testing.T) {
	t.Parallel()
	s, m := open(t, true), newMessage()
	own := dedup.Token{Consumer: "accounts", Value: m.Key.String()}
	require.NoError(t, s.tokens.Create(t.Context(), []dedup.Token{own}, time.Now()))
	for range 50 {
		s.crashes = []dedup.Step{dedup.StepCreate}
		_, err := s.Handle(t.Context(), m)
		require.ErrorIs(t, err, errCrash)
	}
	e := s.entity(t)
	require.Len(t, e.Outbox.Pending[0].Replaced, 64)
	s.config.Tokens, s.config.Store, s.config.TokenOf = nil, s.store, nil
	s.rebuild(t)
	_, err := s.Handle(t.Context(), m)
	require.ErrorContains(t, err, "give it back until all that is pending is finished")

	s.config.Tokens, s.config.Store, s.config.TokenOf = s.tokens, nil, dedup.KeyToken
	s.rebuild(t)
	_, err = s.Handle(t.Context(), m)
	require.NoError(t, err)
	require.Equal(t, 51*2-64, s.tokens.Len(), "the two that travel, and what the outbox has forgotten")
	left, err := s.tokens.PurgeOlderThan(t.Context(), time.Now().Add(time.Hour), 1000)
	require.NoError(t, err)
	require.EqualValues(t, 51*2-64, left)
}

// rival changes the entity before each save, as often as it is told.
type rival struct {
	*deduptest.Entities[account]

	times int
}

func (r *rival) Save(ctx context.Context, id string, e dedup.Entity[account]) (dedup.Version, error) {
	if r.times > 0 {
		r.times--
		other, err := r.Load(ctx, id)
		if err != nil {
			return "", err
		}
		other.State.Sum++
		if _, err := r.Entities.Save(ctx, id, other); err != nil {
			return "", err
		}
	}
	return r.Entities.Save(ctx, id, e)
}

func TestConflicts(t *testing.T) {
	t.Parallel()
	s, m := open(t, false), newMessage()
	entities := &rival{s.entities, 9}
	s.config.Entities = entities
	s.rebuild(t)
	outcome, err := s.Handle(t.Context(), m)
	require.NoError(t, err)
	require.Equal(t, inbox.Handled, outcome)
	require.Equal(t, 10, s.runs, "the handler sees each of the nine")
	require.Equal(t, 19, s.entity(t).State.Sum)

	entities.times = 10
	_, err = s.Handle(t.Context(), newMessage())
	require.ErrorIs(t, err, dedup.ErrConflict)
	require.ErrorContains(t, err, `entity "account-1": 10 conflicts in a row`)
	require.True(t, inbox.IsUnavailable(err))
}

// careless is a store that always says the same.
type careless struct {
	*deduptest.Entities[account]

	version dedup.Version
}

func (c careless) Save(ctx context.Context, id string, e dedup.Entity[account]) (dedup.Version, error) {
	_, err := c.Entities.Save(ctx, id, e)
	return c.version, err
}

func TestVersionsThatDoNotMove(t *testing.T) {
	t.Parallel()
	s := open(t, false)
	s.config.Entities = careless{s.entities, ""}
	s.rebuild(t)
	_, err := s.Handle(t.Context(), newMessage())
	require.ErrorContains(t, err, `Save returns version "" after version ""`)
}

func TestMessagesThatCannotBeTaken(t *testing.T) {
	t.Parallel()
	s := open(t, true)
	for want, spoil := range map[string]func(*inbox.Message){
		"no consumer":          func(m *inbox.Message) { m.Consumer = "" },
		"gives no id":          func(m *inbox.Message) { m.OrderingKey = "" },
		"visible ASCII":        func(m *inbox.Message) { m.Attributes = map[string]string{dedup.AttributeToken: "a b"} },
		"carries no token":     func(*inbox.Message) { s.config.TokenOf = nil },
		"Dispatch is missing":  func(*inbox.Message) { s.config.Dispatch = nil },
		"outgoing message 0":   func(*inbox.Message) { s.config.Tokens, s.config.Store, s.config.TokenOf = nil, s.store, nil },
		"the consumer, \" x\"": func(m *inbox.Message) { m.Consumer = " x" },
	} {
		before, m := s.config, newMessage()
		spoil(m)
		require.NoError(t, s.tokens.Create(t.Context(), []dedup.Token{{Consumer: "accounts", Value: m.Key.String()}}, time.Now()))
		s.rebuild(t)
		_, err := s.Handle(t.Context(), m)
		require.ErrorContains(t, err, want)
		require.True(t, inbox.IsPermanent(err), "%v", err)
		s.config = before
	}
	e := s.entity(t)
	require.Empty(t, e.Version)
}

func TestTokensOfMessages(t *testing.T) {
	t.Parallel()
	extension := func(name string) *envelope.Message {
		return &envelope.Message{Metadata: envelope.Metadata{Extensions: envelope.Extensions{name: "t"}}}
	}
	for name, m := range map[string]*inbox.Message{
		"attribute":                 {Attributes: map[string]string{"deduplication_token": "t"}, Envelope: extension("other")},
		"attribute of a CloudEvent": {Attributes: map[string]string{"ce-deduplicationtoken": "t"}},
		"extension":                 {Envelope: extension("deduplication_token")},
		"extension of a CloudEvent": {Envelope: extension("deduplicationtoken")},
	} {
		for _, of := range []func(*inbox.Message) (string, error){dedup.CarriedToken, dedup.KeyToken} {
			token, err := of(m)
			require.NoError(t, err, name)
			require.Equal(t, "t", token, name)
		}
	}
	m := newMessage()
	token, err := dedup.KeyToken(m)
	require.NoError(t, err)
	require.Equal(t, m.Key.String(), token)
}

// From producers that know nothing of tokens to consumers that do.
func TestAStoreAndTokens(t *testing.T) {
	t.Parallel()
	s, m := open(t, true), newMessage()
	s.config.Store, s.config.TokenOf = s.store, nil
	s.rebuild(t)
	outcome, err := s.Handle(t.Context(), m)
	require.NoError(t, err)
	require.Equal(t, inbox.Handled, outcome)
	require.Equal(t, 1, s.store.Len())
	require.Equal(t, 2, s.tokens.Len())
	outcome, err = s.Handle(t.Context(), m)
	require.NoError(t, err)
	require.Equal(t, inbox.Duplicate, outcome)
}

func TestPurgeLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := deduptest.NewStore()
		var told []int64
		loop, err := dedup.NewPurgeLoop(s, dedup.PurgeConfig{
			Retention: time.Hour, Interval: time.Minute, BatchSize: 2, Done: func(_ context.Context, n int64, err error) {
				told = append(told, n)
				require.NoError(t, err)
			},
		})
		require.NoError(t, err)
		for range 5 {
			require.NoError(t, s.Add(t.Context(), "accounts", newMessage().Key, time.Now()))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 62*time.Minute+time.Second)
		defer cancel()
		require.NoError(t, loop.Run(ctx))
		require.Zero(t, s.Len())
		require.Len(t, told, 63)
		require.EqualValues(t, 5, told[61], "the first run after an hour")
	})
	_, err := dedup.NewPurgeLoop(nil, dedup.PurgeConfig{})
	require.ErrorContains(t, err, "the store is missing")
	for want, purger := range map[time.Duration]dedup.Purger{168 * time.Hour: deduptest.NewStore(), 720 * time.Hour: deduptest.NewTokens()} {
		loop, err := dedup.NewPurgeLoop(purger, dedup.PurgeConfig{})
		require.NoError(t, err)
		require.Equal(t, want, loop.Retention)
	}
	_, err = dedup.NewPurgeLoop(deduptest.NewStore(), dedup.PurgeConfig{Retention: -1})
	require.ErrorContains(t, err, "positive")
}

// What a handler raises as an event carries on where it comes from.
func TestEvent(t *testing.T) {
	t.Parallel()
	type Deposited struct{ Sum int }
	catalog := envelope.NewCatalog("banking")
	envelope.Register[Deposited](catalog)
	s, m := open(t, false), newMessage()
	m.Envelope = &envelope.Message{Metadata: envelope.Metadata{Headers: envelope.Headers{ID: m.Key}, Domain: envelope.Domain{CorrelationID: "correlation"}}}
	s.config.Handle = func(ctx context.Context, _ *account, _ *inbox.Message) ([]dedup.Outgoing, error) {
		out, err := dedup.Event(ctx, catalog, envelope.Source{Aggregate: "Account", ID: "1"}, Deposited{10})
		return []dedup.Outgoing{out}, err
	}
	s.rebuild(t)
	_, err := s.Handle(t.Context(), m)
	require.NoError(t, err)
	require.Len(t, s.sent, 1)
	out := s.sent[0]
	decoded, err := inbox.Decode(out.Payload, out.Fields())
	require.NoError(t, err)
	require.Equal(t, out.ID, decoded.Key)
	require.Equal(t, "Banking.Deposited.v1", out.Type)
	require.Equal(t, "banking::account", out.Destination)
	require.Equal(t, "banking::account-1", out.OrderingKey)
	require.Equal(t, m.Key.String(), decoded.Envelope.Metadata.Domain.CausationID)
	require.Equal(t, "correlation", decoded.Envelope.Metadata.Domain.CorrelationID)
	_, err = dedup.Event(t.Context(), catalog, envelope.Source{}, struct{}{})
	require.ErrorContains(t, err, "seal an outgoing event")
}
