package inbox_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
)

// What is larger than a database takes becomes a dead letter without its payload, whether it could
// be read or not: it is not tried forever, with its key behind it. It says where the message can be
// found. Redriven, it waits for the message to be sent again, and a Redeliverer leaves it alone.
func TestOversizedDeadLetters(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		large := make([]byte, inbox.DefaultMaxDeadLetterBytes+1)
		var all []*inbox.Message
		for name, change := range map[string]func(m *inbox.Message){
			"payload":         func(m *inbox.Message) { m.Payload = large },
			"attributes":      func(m *inbox.Message) { m.Attributes["h"] = string(make([]byte, 4<<20)) }, // JSON makes it six times as large
			"many attributes": func(m *inbox.Message) { m.Attributes, m.Payload = map[string]string{"h": string(large)}, nil },
		} {
			m := p.message()
			change(m)
			m.Position, m.MaxAttempts = "3/17", 1
			digest := sha256.Sum256(m.Payload)
			want := map[string]string{
				inbox.FieldDeadLetterBytes: strconv.Itoa(len(m.Payload)), inbox.FieldDeadLetterDigest: "sha256:" + hex.EncodeToString(digest[:]),
				inbox.FieldDeadLetterPosition: "3/17",
			}
			if name == "payload" {
				want["tenant"] = "t1"
			}

			outcome, err := p.handleWith(func(*gorm.DB) error { return errBoom }, m)
			require.NoError(t, err, name)
			require.Equal(t, inbox.DeadLettered, outcome, name)
			p.isWithout(m, want)
			all = append(all, m)

			unread := *m
			unread.Key, unread.Envelope = uuid.New(), nil
			outcome, err = inbox.NewHandlers(p.db, p.at()).Reject(t.Context(), &unread, errBoom)
			require.NoError(t, err, name)
			require.Equal(t, inbox.DeadLettered, outcome, name)
			p.isWithout(&unread, want)
		}
		n, err := inbox.RedriveAll(t.Context(), p.db, consumer, "", p.at())
		require.NoError(t, err)
		require.Equal(t, int64(6), n)
		decoder := inbox.WithDecoder(func(*inbox.RawMessage) (*envelope.CloudEvent, error) {
			t.Error("it is decoded without its payload")
			return nil, inbox.ErrSkip
		})
		done, err := inbox.Redeliver(t.Context(), p.db, consumer, inbox.HandlerFunc(nil), p.at(), decoder)
		require.NoError(t, err)
		require.Zero(t, done)
		for _, m := range all {
			require.Contains(t, p.row(m).LastError, "boom")
			outcome, err := p.handleWith(func(*gorm.DB) error { return nil }, m) // sent again
			require.NoError(t, err)
			require.Equal(t, inbox.Handled, outcome)
		}
	})
}

// isWithout requires that a message is a dead letter without its payload.
func (p *place) isWithout(m *inbox.Message, want map[string]string) {
	p.t.Helper()
	row := p.row(m)
	require.NotNil(p.t, row)
	require.Equal(p.t, "dead_letter", row.Status)
	require.Empty(p.t, row.Payload)
	var letters []inbox.DeadLetter
	for _, letter := range p.deadLetters(inbox.DeadLetterFilter{}) {
		if letter.Key == m.Key {
			letters = append(letters, letter)
		}
	}
	require.Len(p.t, letters, 1)
	require.Equal(p.t, want, letters[0].Attributes)
	require.Contains(p.t, row.LastError, "without its payload")
	require.Contains(p.t, row.LastError, "boom")
}

// The bound is the consumer's to set.
func TestMaxDeadLetterBytes(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		m := p.message()
		require.NoError(t, inbox.Reject(t.Context(), p.db, m, errBoom, p.at(), inbox.WithMaxDeadLetterBytes(20)))
		require.Empty(t, p.row(m).Payload)

		kept := p.message()
		kept.Payload = []byte(strings.Repeat("\x00'", 2<<20-40<<10)) // what MariaDB keeps by default; twice as large as text
		require.NoError(t, inbox.Reject(t.Context(), p.db, kept, errBoom, p.at()))
		require.Equal(t, kept.Payload, p.row(kept).Payload)

		for _, n := range []int{-1, inbox.MaxDeadLetterBytes + 1} {
			require.ErrorContains(t, inbox.Reject(t.Context(), p.db, m, errBoom, p.at(), inbox.WithMaxDeadLetterBytes(n)), "WithMaxDeadLetterBytes")
		}
	})
}
