package monitor

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// What differs from message to message makes no other group; what says something else does.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		templates := []string{
			"order %s was refused after %d tries by %s", "no topic %q in 10.%d.0.1:%d", "timeout: %s took %dms at https://%s/x", "status %d: %q", "refused",
		}
		make1 := func(i int) string {
			args := map[int][]any{
				0: {uuid.NewString(), rand.IntN(9999), fmt.Sprintf("host%d:%d", rand.IntN(99), rand.IntN(9999))},
				1: {uuid.NewString()[:5], rand.IntN(255), rand.IntN(65535)}, 2: {uuid.NewString(), rand.IntN(9999), uuid.NewString()}, 3: {rand.IntN(999), uuid.NewString()},
			}[i]
			return fmt.Sprintf(templates[i], args...)
		}
		i, j := rapid.IntRange(0, len(templates)-1).Draw(rt, "i"), rapid.IntRange(0, len(templates)-1).Draw(rt, "j")
		one := Fingerprint("b", &outbox.LastError{Class: "c", Message: make1(i), At: time.Now(), Attempt: 1})
		two := Fingerprint("b", &outbox.LastError{Class: "c", Message: make1(j), Attempt: 7})
		require.Equal(rt, i == j, one == two, "%s %s", templates[i], templates[j])
		require.NotEqual(rt, one, Fingerprint("b2", &outbox.LastError{Class: "c", Message: make1(i)}))
		require.NotEqual(rt, one, Fingerprint("b", &outbox.LastError{Class: "d", Message: make1(i)}))
	})
	assert.Equal(t, Fingerprint("b", nil), Fingerprint("b", &outbox.LastError{}))
}

func FuzzCursor(f *testing.F) {
	f.Add(cursor{Broker: "default", Status: outbox.StatusFailed, After: admin.Position{ID: 7}}.encode())
	f.Add(cursor{Broker: "x", Status: outbox.StatusPublished, After: admin.Position{ID: 7, Time: start}}.encode())
	f.Add("e30")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := decodeCursor(text)
		if err != nil {
			return
		}
		again, err := decodeCursor(got.encode())
		require.NoError(t, err)
		assert.True(t, again.After.Time.Equal(got.After.Time))
		again.After.Time = got.After.Time
		assert.Equal(t, got, again)
	})
}
