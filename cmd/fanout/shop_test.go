package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// shop is an outbox with rows in every state, as a relay has left them on a bad night. Its brokers
// are addressed by variables that are not set: nothing here may need them.
type shop struct {
	*place

	driver outbox.Dialect
	db     *sql.DB
	store  administration
	// processor makes a processor on the store.
	processor func(relay.ProcessorConfig) (*relay.Processor, error)
}

const shopConfig = `databases: {main: {driver: %s, dsn: '%s'}}
outbox: {external_brokers: [partner], on_abandon: block}
brokers:
  default: {type: redis, url: "${FANOUT_NOT_SET_URL}"}
  partner: {type: pubsub, project: "${FANOUT_NOT_SET_PROJECT}"}
`

func newShop(t *testing.T, driver outbox.Dialect, dsn string) *shop {
	t.Helper()
	s := &shop{place: &place{T: t, config: filepath.Join(t.TempDir(), "fanout.yaml")}, driver: driver}
	require.NoError(t, os.WriteFile(s.config, fmt.Appendf(nil, shopConfig, driver, dsn), 0o600))
	s.migrate()
	s.openStore()
	name := string(driver)
	if driver == outbox.Postgres {
		name = "pgx"
	}
	var err error
	s.db, err = sql.Open(name, dsn)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.store.Close())
		require.NoError(t, s.db.Close())
	})
	return s
}

// openStore opens the store that the configuration describes.
func (s *shop) openStore() {
	s.Helper()
	cfg, err := config.Load(s.config, config.WithUnsetVariables("brokers"))
	require.NoError(s, err)
	store, err := fanout.OpenStore(s.Context(), cfg, "main")
	require.NoError(s, err)
	s.store = store
	s.processor = func(settings relay.ProcessorConfig) (*relay.Processor, error) {
		settings.Store = store
		return relay.NewProcessor(settings)
	}
}

// messageID is the id of the nth message.
func messageID(n int) string { return fmt.Sprintf("01a1fd9d-d6b8-7eca-9afc-%012d", n) }

// message is the nth message for a broker.
func message(n int, eventType, key, broker string) outbox.Row {
	return outbox.Row{
		MessageID: uuid.MustParse(messageID(n)), TargetBroker: broker, Stream: "ordering::order", Type: eventType, OrderingKey: key,
		Payload: []byte(`{"secret":"hunter2"}`), Headers: `{"trace":"t-1"}`,
	}
}

// thousands is for tests of thousands of rows: the race detector makes SQLite in Go twenty times slower, a
// minute for each. Another database has the turn then.
func (s *shop) thousands() {
	s.Helper()
	if raced && s.driver == outbox.SQLite {
		s.Skip("with the race detector, thousands of rows are for databases that it does not look into")
	}
}

// insert writes rows in one transaction.
func (s *shop) insert(rows ...outbox.Row) {
	s.Helper()
	inserter, err := outbox.NewInserter(s.driver, outbox.DefaultTable)
	require.NoError(s, err)
	tx, err := s.db.BeginTx(s.Context(), nil)
	require.NoError(s, err)
	defer func() { _ = tx.Rollback() }()
	require.NoError(s, inserter.Insert(s.Context(), tx, rows))
	require.NoError(s, tx.Commit())
}

// write writes the nth message for each of the brokers.
func (s *shop) write(n int, eventType, key string, targets ...string) {
	s.Helper()
	for _, broker := range targets {
		s.insert(message(n, eventType, key, broker))
	}
}

// exec changes rows behind the store's back.
func (s *shop) exec(statement string) {
	s.Helper()
	_, err := s.db.ExecContext(s.Context(), statement)
	require.NoError(s, err)
}

// is makes the condition that a row is of the nth message.
func (s *shop) is(n int) string {
	if s.driver == outbox.MySQL {
		return "message_id = X'" + strings.ReplaceAll(messageID(n), "-", "") + "'"
	}
	return "message_id = '" + messageID(n) + "'"
}

// badNight writes 12 messages. The default broker has all of them; the partner refused 1 to 3 for
// good, failed at 4 and 5, and waits with the rest.
func (s *shop) badNight() {
	s.Helper()
	for n := 1; n <= 12; n++ {
		s.write(n, "Ordering.OrderPlaced.v1", fmt.Sprintf("order-%d", n), "default", "partner")
	}
	s.write(13, "Ordering.OrderShipped.v1", "order-1", "default", "partner") // behind what was refused
	s.complete("default", func(string) *outbox.LastError { return nil })
	s.complete("partner", func(id string) *outbox.LastError {
		switch n := strings.TrimLeft(id[24:], "0"); n {
		case "1", "2", "3":
			return &outbox.LastError{Class: "permanent", Message: "topic refused order " + n + ": schema mismatch \x1b[2J"}
		case "4", "5":
			return &outbox.LastError{Class: "retryable", Message: "deadline exceeded after " + n + "s"}
		default:
			return &outbox.LastError{Class: "not_sent"}
		}
	})
}

// unblockAll lets the keys go on that wait for an operator after a badNight.
func (s *shop) unblockAll() {
	s.Helper()
	for _, key := range []string{"order-1", "order-2", "order-3"} {
		s.does("messages", "unblock", key, "--broker", "partner")
	}
}

func (s *shop) count(where string) int {
	s.Helper()
	var n int
	require.NoError(s, s.db.QueryRowContext(s.Context(), "SELECT count(*) FROM outbox_messages WHERE "+where).Scan(&n))
	return n
}

// good runs a command that must succeed, and returns what it says.
func (s *shop) does(args ...string) string {
	s.Helper()
	code, stdout, stderr := s.run(args...)
	require.Zero(s, code, stderr)
	return stdout
}

// lines reads one JSON object per line.
func lines[T any](t *testing.T, stdout string) (all []T) {
	t.Helper()
	for line := range strings.Lines(stdout) {
		var one T
		require.NoError(t, json.Unmarshal([]byte(line), &one), line)
		all = append(all, one)
	}
	return all
}
