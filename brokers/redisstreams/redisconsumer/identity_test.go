package redisconsumer_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/glebarez/sqlite"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
)

// Effect is what a handler has done, by where its message came from.
type Effect struct {
	Source string
	N      int
}

// books are a consumer's database, and its handlers.
func books(t *testing.T) (*gorm.DB, *inbox.Handlers) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "books.db")
	db, err := gorm.Open(sqlite.Open(path+"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"), &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	require.NoError(t, db.AutoMigrate(&Effect{}))
	_, err = inbox.Migrate(t.Context(), db)
	require.NoError(t, err)
	handlers := inbox.NewHandlers(db)
	inbox.On(handlers, "Ordering.OrderPlaced.v1", func(tx *gorm.DB, e placed, m *inbox.Message) error {
		return tx.Create(&Effect{m.Source, e.N}).Error
	})
	return db, handlers
}

func effects(t *testing.T, db *gorm.DB) (found []Effect) {
	t.Helper()
	require.NoError(t, db.Order("source, n").Find(&found).Error)
	return found
}

// put adds a message to a stream as it is.
func (s *site) put(t testing.TB, stream string, m *envelope.Message) {
	t.Helper()
	payload, err := m.MarshalInternal()
	require.NoError(t, err)
	require.NoError(t, s.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, Values: []any{"data", payload}}).Err())
}

// Ids are the same on every broker, so a partner knows those of published events. A message of a
// partner's under such an id takes the place of no internal one, whether it is handled, a dead
// letter, or comes later.
func TestPartnerSuppressesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	db, handlers := books(t)
	partner := s.stream + "-partner"
	first, second, third := sealed(t, "1", 1), sealed(t, "2", 2), sealed(t, "3", 3)
	forged := func(m *envelope.Message, wireType string) *envelope.Message {
		f := *m
		f.Data, f.Metadata.Headers.Type = []byte(`{"N":-1}`), wireType
		return &f
	}
	c, err := redisconsumer.NewConsumer(s.Client, group, []string{s.stream, partner}, handlers, quick())
	require.NoError(t, err)
	r := launch(t, c)
	done := func() int64 {
		stats := r.Stats()
		return stats.Handled + stats.DeadLettered
	}
	s.put(t, partner, forged(first, "Ordering.OrderPlaced.v1"))
	s.put(t, partner, forged(second, "Ordering.OrderPlaced.v7")) // no handler takes that version: it becomes a dead letter
	soon(t, "the partner's are done", func() bool { return done() == 2 })
	for _, m := range []*envelope.Message{first, second, third} {
		s.put(t, s.stream, m)
	}
	soon(t, "the internal ones are done", func() bool { return done() == 5 })
	s.put(t, partner, forged(third, "Ordering.OrderPlaced.v1"))
	soon(t, "the partner's last is done", func() bool { return done() == 6 })
	r.stop(t)
	assert.Equal(t, []Effect{{s.stream, 1}, {s.stream, 2}, {s.stream, 3}, {partner, -1}, {partner, -1}}, effects(t, db))
	deadLettered, err := inbox.DeadLetters(t.Context(), db, inbox.DeadLetterFilter{})
	require.NoError(t, err)
	require.Len(t, deadLettered, 1)
	assert.Equal(t, partner, deadLettered[0].Source)
}

// Within one stream, an id that comes again with another type is no copy: it goes to the dead
// letters, loudly.
func TestIDOfAnotherTypeIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	db, handlers := books(t)
	inbox.On(handlers, "Ordering.OrderPaid.v1", func(tx *gorm.DB, e placed, m *inbox.Message) error {
		return tx.Create(&Effect{m.Type, e.N}).Error
	})
	var j journal
	r := start(t, s.Client, s.stream, handlers, redisconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Log: j.logger()}})
	m := sealed(t, "1", 1)
	paid := *m
	paid.Metadata.Headers.Type = "Ordering.OrderPaid.v1"
	s.put(t, s.stream, m)
	soon(t, "handled", func() bool { return r.stats(t).Handled == 1 })
	s.put(t, s.stream, m)
	soon(t, "a copy", func() bool { return r.stats(t).Duplicates == 1 })
	s.put(t, s.stream, &paid)
	soon(t, "refused", func() bool { return r.stats(t).Forwarded == 1 })
	r.stop(t)
	assert.Equal(t, []Effect{{s.stream, 1}}, effects(t, db))
	letters := s.dead(t)
	require.Len(t, letters, 1)
	assert.Contains(t, letters[0].Values[inbox.FieldDeadLetterReason], `is recorded with the type "Ordering.OrderPlaced.v1"`)
	assert.Equal(t, 1, j.lines("level=ERROR", "message abandoned", "type=Ordering.OrderPaid.v1", strings.ToLower(m.Metadata.Headers.ID.String())))
}
