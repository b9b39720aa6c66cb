package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/uow"
)

// known is what the model knows of a message.
type known struct {
	message  *inbox.Message
	status   string // "" = no row
	attempts int
	effects  int
}

// model is the inbox as it is meant to be, beside the real one.
type model struct {
	p        *place
	t        *rapid.T
	ctx      context.Context
	consumer string
	max      int
	tokens   bool
	messages []*known
}

func (m *model) options() []inbox.Option {
	options := []inbox.Option{m.p.at()}
	if m.tokens {
		options = append(options, inbox.WithTokens())
	}
	return options
}

func (m *model) any() *known { return rapid.SampledFrom(m.messages).Draw(m.t, "message") }

// free says whether a copy that comes now runs the handler.
func (m *model) free(k *known) bool {
	switch k.status {
	case "failed", "redriven", "expected":
		return true
	case "":
		return !m.tokens
	default:
		return false
	}
}

// won is what the table has of a message that was handled.
func (m *model) won(k *known) {
	k.effects++
	k.status = "handled"
	if m.tokens {
		k.status, k.attempts = "", 0
	}
}

// failed is what an attempt that counts leaves.
func (m *model) failed(k *known, permanent bool) {
	k.attempts++
	switch {
	case permanent || k.attempts >= m.max:
		k.status = "dead_letter"
	case k.status != "redriven":
		k.status = "failed"
	}
}

// lost is the outcome of a copy that does not run the handler.
func (m *model) lost(k *known) inbox.Outcome {
	if k.status == "dead_letter" {
		return inbox.DeadLettered
	}
	return inbox.Duplicate
}

func (m *model) handle(k *known, f func(tx *gorm.DB) error) (inbox.Outcome, error) {
	for {
		outcome, err := inbox.Handle(m.ctx, m.p.db, k.message, f, m.options()...)
		if !uow.IsConflict(err) {
			return outcome, err
		}
	}
}

// Handle delivers a copy that is handled.
func (m *model) Handle(*rapid.T) {
	k := m.any()
	outcome, err := m.handle(k, m.p.effect(k.message))
	require.NoError(m.t, err)
	if !m.free(k) {
		require.Equal(m.t, m.lost(k), outcome)
		return
	}
	require.Equal(m.t, inbox.Handled, outcome)
	m.won(k)
}

// Fail delivers a copy that fails in one of the ways there are.
func (m *model) Fail(*rapid.T) {
	k := m.any()
	kind := rapid.SampledFrom([]string{"error", "panic", "permanent", "unavailable"}).Draw(m.t, "kind")
	outcome, err := m.handle(k, func(tx *gorm.DB) error {
		_ = m.p.effect(k.message)(tx)
		switch kind {
		case "panic":
			panic("oh")
		case "permanent":
			return inbox.Permanent(errBoom)
		case "unavailable":
			return inbox.Unavailable(errBoom)
		default:
			return errBoom
		}
	})
	switch {
	case !m.free(k):
		require.NoError(m.t, err)
		require.Equal(m.t, m.lost(k), outcome)
		return
	case kind == "unavailable":
		require.True(m.t, inbox.IsUnavailable(err))
		return
	}
	m.failed(k, kind == "permanent")
	if k.status == "dead_letter" {
		require.NoError(m.t, err)
		require.Equal(m.t, inbox.DeadLettered, outcome)
		return
	}
	var failed *inbox.FailedError
	require.ErrorAs(m.t, err, &failed)
	require.Equal(m.t, k.attempts, failed.Attempts)
}

// Copies delivers several copies at once, of which some fail.
func (m *model) Copies(*rapid.T) {
	k := m.any()
	failing := rapid.IntRange(0, 2).Draw(m.t, "failing")
	var (
		group    sync.WaitGroup
		mu       sync.Mutex
		outcomes = map[inbox.Outcome]int{}
		failures int
		others   []error
	)
	for n := range 4 {
		group.Go(func() {
			outcome, err := m.handle(k, func(tx *gorm.DB) error {
				if err := m.p.effect(k.message)(tx); err != nil || n >= failing {
					return err
				}
				return errBoom
			})
			mu.Lock()
			defer mu.Unlock()
			var failed *inbox.FailedError
			switch {
			case errors.As(err, &failed):
				failures++
			case err != nil:
				others = append(others, err)
			default:
				outcomes[outcome]++
			}
		})
	}
	group.Wait()
	require.Empty(m.t, others)
	if !m.free(k) {
		require.Equal(m.t, map[inbox.Outcome]int{m.lost(k): 4}, outcomes)
		return
	}
	// How many of those that fail came before the one that is handled is left to chance; the row
	// says it.
	require.LessOrEqual(m.t, failures, failing)
	require.LessOrEqual(m.t, outcomes[inbox.Handled], 1)
	if outcomes[inbox.Handled] == 1 {
		require.Zero(m.t, outcomes[inbox.DeadLettered])
		k.attempts += failures
		m.won(k)
		return
	}
	require.Positive(m.t, outcomes[inbox.DeadLettered], "otherwise one of those that do not fail is handled")
	k.attempts, k.status = max(m.max, k.attempts), "dead_letter"
}

// Reject rejects by hand.
func (m *model) Reject(*rapid.T) {
	k := m.any()
	require.NoError(m.t, inbox.Reject(m.ctx, m.p.db, k.message, errBoom, m.options()...))
	if m.free(k) {
		k.status = "dead_letter"
	}
}

// Redrive redrives one, or all.
func (m *model) Redrive(*rapid.T) {
	chosen := m.messages
	var n int64
	var err error
	if rapid.Bool().Draw(m.t, "all") {
		n, err = inbox.RedriveAll(m.ctx, m.p.db, m.consumer, "", m.p.at())
	} else {
		chosen = []*known{m.any()}
		n, err = inbox.Redrive(m.ctx, m.p.db, m.consumer, "", []uuid.UUID{chosen[0].message.Key}, m.p.at())
	}
	require.NoError(m.t, err)
	want := 0
	for _, k := range chosen {
		if k.status == "dead_letter" {
			k.status, k.attempts = "redriven", 0
			want++
		}
	}
	require.EqualValues(m.t, want, n)
}

// Redeliver hands out what was redriven.
func (m *model) Redeliver(*rapid.T) {
	fails := rapid.Bool().Draw(m.t, "fails")
	done, err := inbox.Redeliver(m.ctx, m.p.db, m.consumer, inbox.HandlerFunc(func(ctx context.Context, message *inbox.Message) (inbox.Outcome, error) {
		message.MaxAttempts = m.max
		return inbox.Handle(ctx, m.p.db, message, func(tx *gorm.DB) error {
			if fails {
				return errBoom
			}
			return m.p.effect(message)(tx)
		}, m.options()...)
	}), m.options()...)
	want, still := 0, false
	for _, k := range m.messages {
		switch {
		case k.status != "redriven":
		case fails:
			m.failed(k, false)
			still = still || k.status == "redriven"
		default:
			m.won(k)
			want++
		}
	}
	require.Equal(m.t, want, done)
	if !still {
		require.NoError(m.t, err)
	} else {
		require.ErrorIs(m.t, err, errBoom)
	}
}

// Expect creates tokens.
func (m *model) Expect(*rapid.T) {
	k := m.any()
	require.NoError(m.t, m.p.db.Transaction(func(tx *gorm.DB) error {
		return inbox.Expect(tx, m.consumer, "orders", []uuid.UUID{k.message.Key}, m.p.at())
	}))
	if k.status == "" {
		k.status = "expected"
	}
}

// Purge removes all rows of one status.
func (m *model) Purge(*rapid.T) {
	status := rapid.SampledFrom([]string{"handled", "failed", "dead_letter", "redriven", "expected"}).Draw(m.t, "status")
	m.p.age(status, 1000*time.Hour)
	report, err := m.p.purger(inbox.PurgeConfig{}).Purge(m.ctx)
	require.NoError(m.t, err)
	want := 0
	for _, k := range m.messages {
		if k.status == status {
			k.status, k.attempts = "", 0
			want++
		}
	}
	require.GreaterOrEqual(m.t, int(report.Total()), want) // what the cases before have left goes, too
}

// Check compares every message.
func (m *model) Check(*rapid.T) {
	type found struct {
		MessageID, Status string
		Attempts, Effects int
		Payload           []byte
	}
	var rows []found
	id := "CAST(message_id AS char(36))"
	if m.p.db.Name() == "mysql" {
		id = "INSERT(INSERT(INSERT(INSERT(HEX(message_id), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-')"
	}
	require.NoError(m.t, m.p.plain().Raw("SELECT lower("+id+") AS message_id, status, attempts, payload FROM "+m.p.table+
		" WHERE consumer = ?", m.consumer).Scan(&rows).Error)
	byKey := map[string]found{}
	for _, row := range rows {
		byKey[row.MessageID] = row
	}
	var keys []string
	for _, k := range m.messages {
		keys = append(keys, k.message.Key.String())
	}
	var effects []found
	require.NoError(m.t, m.p.plain().Raw("SELECT message_id, count(*) AS effects FROM "+m.p.effects()+" WHERE message_id IN ? GROUP BY message_id", keys).Scan(&effects).Error)
	times := map[string]int{}
	for _, effect := range effects {
		times[effect.MessageID] = effect.Effects
	}
	for i, k := range m.messages {
		row, ok := byKey[keys[i]]
		require.Equal(m.t, k.effects, times[keys[i]], "message %d", i)
		require.Equal(m.t, k.status != "", ok, "message %d", i)
		require.Equal(m.t, k.status, row.Status, "message %d", i)
		require.Equal(m.t, k.attempts, row.Attempts, "message %d", i)
		require.Equal(m.t, k.status == "dead_letter" || k.status == "redriven", row.Payload != nil, "message %d", i)
	}
}

// Whatever happens to messages, in whatever order, the table is what the model says.
func TestModel(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		cases := 0
		rapid.Check(t, func(t *rapid.T) {
			cases++
			m := &model{p: p, t: t, ctx: p.t.Context(), consumer: fmt.Sprintf("consumer-%d", cases), max: rapid.IntRange(1, 3).Draw(t, "max"), tokens: rapid.Bool().Draw(t, "tokens")}
			for range 3 {
				message := p.message()
				message.Consumer, message.MaxAttempts = m.consumer, m.max
				m.messages = append(m.messages, &known{message: message})
			}
			t.Repeat(map[string]func(*rapid.T){
				"handle": m.Handle, "fail": m.Fail, "copies": m.Copies, "reject": m.Reject, "redrive": m.Redrive, "redeliver": m.Redeliver, "expect": m.Expect,
				"purge": m.Purge, "": m.Check,
			})
		})
	})
}
