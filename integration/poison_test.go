package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/postgres"
)

const deliveredVariable = "FANOUT_TEST_CHILD_DELIVERED"

// poisoned is a broker whose client refuses one message for good, panics at another, and dies of a
// third one, and its process with it. What it delivers it writes into a file.
type poisoned struct {
	confirming

	file *os.File
}

func newPoisoned() (brokers.Broker, outbox.Policy, error) {
	file, err := os.OpenFile(os.Getenv(deliveredVariable), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	policy := shortLease()
	policy.Retry = outbox.Retry{BaseDelay: 50 * time.Millisecond, MaxDelay: 500 * time.Millisecond}
	return &poisoned{file: file}, policy, err
}

func (p *poisoned) Publish(_ context.Context, msgs []brokers.Message) []brokers.Result {
	results := make([]brokers.Result, len(msgs))
	for i, m := range msgs {
		switch string(m.Payload) {
		case "refused":
			results[i].Err = brokers.Permanent(errors.New("nobody will ever take this"))
			continue
		case "panic":
			panic("a bug in the broker's client")
		case "slow": // until the other one has died, if it is about to
			<-time.After(300 * time.Millisecond)
		case "poison":
			<-time.After(100 * time.Millisecond)
			_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
			select {}
		}
		_, _ = p.file.WriteString(m.ID + "\n")
	}
	return results
}

// outbreak is a table with a message that kills its relay.
type outbreak struct {
	*testing.T

	dsn, delivered string
	expects        []string // in errors that a relay may log
	meanwhile      func()   // happens again and again until all rows are finished
	db             *sql.DB
}

func newOutbreak(t *testing.T) *outbreak {
	t.Helper()
	o := &outbreak{T: t, dsn: testenv.Postgres(t), delivered: filepath.Join(t.TempDir(), "delivered")}
	store, err := postgres.Open(t.Context(), o.dsn, "", postgres.WithMaxConns(1))
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, store.Close())
	o.db, err = sql.Open("pgx", o.dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = o.db.Close() })
	return o
}

// insert writes rows without a key into one shard; payload is that of the row at a place, all
// others have none.
func (o *outbreak) insert(shard, n, place int, payload string) {
	o.Helper()
	_, err := o.db.ExecContext(o.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload)
		SELECT id, 'b', 's', 'T', CASE WHEN row_number() OVER () = $3 + 1 THEN convert_to($4, 'UTF8') ELSE '' END
		  FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, 10 * $2 + 100)) AS ids
		 WHERE get_byte(sha256(id::text::bytea), 0) & 3 = $1 LIMIT $2`, shard, n, place, payload)
	require.NoError(o, err)
}

func (o *outbreak) count(where string) (n int) {
	o.Helper()
	require.NoError(o, o.db.QueryRowContext(o.Context(), "SELECT count(*) FROM outbox_messages WHERE "+where).Scan(&n))
	return n
}

// survive starts a relay after each that has died, until all rows are finished, and returns how
// many have died.
func (o *outbreak) survive() (crashes int) {
	o.Helper()
	for ; ; crashes++ {
		require.Less(o, crashes, 40, "it goes on for ever")
		relay := startChild(o.T, "poison", o.dsn, deliveredVariable+"="+o.delivered)
		died := make(chan error, 1)
		go func() { died <- relay.cmd.Wait() }()
		if !o.outlives(died) {
			for _, line := range relay.complaints() {
				require.True(o, slices.ContainsFunc(o.expects, func(text string) bool { return strings.Contains(line, text) }), line)
			}
			// The leases of the dead end at once, as if the time had passed.
			_, err := o.db.ExecContext(o.Context(), "UPDATE outbox_messages SET locked_until = now() WHERE status = 'processing'")
			require.NoError(o, err)
			continue
		}
		require.NoError(o, relay.cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(o, <-died, relay.log.String())
		return crashes
	}
}

// outlives reports whether a relay has finished all rows before it died.
func (o *outbreak) outlives(died <-chan error) bool {
	o.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(time.Minute); ; {
		select {
		case <-died:
			return false
		case <-ticker.C:
		}
		if o.count("finished_at IS NULL") == 0 {
			return true
		}
		if o.meanwhile != nil {
			o.meanwhile()
		}
		require.True(o, time.Now().Before(deadline), "not finished within a minute")
	}
}

// One message in a full batch kills its process each time it is sent. It alone is abandoned,
// everything else arrives, and no other message pays an attempt for it.
func TestPoison(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(uint64(testenv.Seed(t)), 0))
	o := newOutbreak(t)
	place := random.IntN(500)
	o.insert(0, 500, place, "poison")
	for shard := 1; shard < 4; shard++ {
		o.insert(shard, 300, -1, "")
	}
	crashes := o.survive()
	t.Logf("the poison at place %d of its batch took %d crashes", place, crashes)
	// The batch is halved from 500 to 1, and the poison alone is tried five times.
	assert.LessOrEqual(t, crashes, 8+5)

	assert.Equal(t, 1, o.count("status = 'abandoned'"))
	assert.Equal(t, 1, o.count(`status = 'abandoned' AND payload = 'poison' AND attempts = 5 AND last_error LIKE '%"class":"crashed"%'`))
	assert.Equal(t, 1399, o.count("status = 'published' AND attempts = 1"), "nobody else has paid an attempt")
	delivered := map[string]bool{}
	text, err := os.ReadFile(o.delivered)
	require.NoError(t, err)
	for id := range strings.Lines(string(text)) {
		delivered[id] = true
	}
	assert.Len(t, delivered, 1399)
}

// A message that is alone in its shard, and slow, is in a worker's hands each time the other worker
// dies of the poison.
func TestPoisonBesideALonelyMessage(t *testing.T) {
	t.Parallel()
	o := newOutbreak(t)
	o.insert(0, 1, 0, "poison")
	o.insert(1, 1, 0, "slow")
	t.Logf("%d crashes", o.survive())
	assert.Equal(t, 1, o.count("status = 'abandoned' AND payload = 'poison'"))
	assert.Equal(t, 1, o.count("status = 'published' AND payload = 'slow' AND attempts = 1"))
}

// The same while the poison is still looked for among many, which the lonely message waits for.
func TestPoisonAmongManyBesideALonelyMessage(t *testing.T) {
	t.Parallel()
	o := newOutbreak(t)
	o.insert(0, 500, 0, "poison")
	o.insert(1, 1, 0, "slow")
	t.Logf("%d crashes", o.survive())
	assert.Equal(t, 1, o.count("status = 'abandoned' AND payload = 'poison'"))
	assert.Equal(t, 1, o.count("status = 'published' AND payload = 'slow' AND attempts = 1"))
}
