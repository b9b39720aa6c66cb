package relay

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the database/sql driver "mysql"
	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib" // the database/sql driver "pgx"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/testservers"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/mysql"
	"github.com/gorm-fanout/fanout/outbox/postgres"
	"github.com/gorm-fanout/fanout/outbox/sqlite"
)

// site is an outbox in a real database, to which its owner does things.
type site struct {
	*testing.T

	dialect outbox.Dialect
	db      *sql.DB
	dsn     string
	log     *lines
}

// onSites runs a test on each database, or on the one whose turn it is.
func onSites(t *testing.T, test func(s *site)) {
	t.Helper()
	testenv.OnEach(t, []string{"postgres", "mariadb", "mysql", "sqlite"}, func(name string) string { return name }, func(t *testing.T, name string) {
		s := &site{T: t, log: newLog(t)}
		var kind string
		switch name {
		case "postgres":
			s.dialect, kind, s.dsn = outbox.Postgres, "pgx", testenv.Postgres(t)
		case "sqlite":
			s.dialect, kind = outbox.SQLite, "sqlite"
			s.dsn = filepath.Join(t.TempDir(), "outbox.db") + "?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)"
		default:
			s.dialect, kind = outbox.MySQL, "mysql"
			s.dsn = testenv.MySQLAt(t, map[string]string{"mariadb": testservers.MariaDBVariable, "mysql": testservers.MySQLVariable}[name])
		}
		var err error
		s.db, err = sql.Open(kind, s.dsn)
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.db.Close() })
		_, err = s.open(s.dsn).Migrate(t.Context())
		require.NoError(t, err)
		test(s)
	})
}

func (s *site) open(dsn string) (store driver.Store) {
	s.Helper()
	var err error
	switch s.dialect {
	case outbox.Postgres:
		store, err = postgres.Open(s.Context(), dsn, "")
	case outbox.MySQL:
		store, err = mysql.Open(s.Context(), dsn, "")
	default:
		store, err = sqlite.New(s.db, "")
	}
	require.NoError(s, err)
	s.Cleanup(func() { _ = store.Close() })
	return store
}

// only skips the test on other databases.
func (s *site) only(dialects ...outbox.Dialect) {
	s.Helper()
	if !slices.Contains(dialects, s.dialect) {
		s.Skip("not on this database")
	}
}

// do executes the text for the database.
func (s *site) do(texts map[outbox.Dialect]string) {
	s.Helper()
	for text := range strings.SplitSeq(texts[s.dialect], ";;") {
		if text = strings.TrimSpace(text); text != "" {
			_, err := s.db.ExecContext(context.WithoutCancel(s.Context()), text)
			require.NoError(s, err, text)
		}
	}
}

func (s *site) count(where string) (n int) {
	s.Helper()
	require.NoError(s, s.db.QueryRowContext(s.Context(), "SELECT count(*) FROM outbox_messages WHERE "+where).Scan(&n))
	return n
}

// write adds rows of so many keys. Their types are T0, T1 ...
func (s *site) write(n, keys int) {
	s.Helper()
	inserter, err := outbox.NewInserter(s.dialect, outbox.DefaultTable)
	require.NoError(s, err)
	rows := make([]outbox.Row, n)
	for i := range rows {
		rows[i] = outbox.Row{MessageID: uuid.New(), TargetBroker: "b", Stream: "s", Type: fmt.Sprint("T", i), OrderingKey: fmt.Sprint(i % keys), Payload: fmt.Append(nil, i)}
	}
	require.NoError(s, inserter.Insert(s.Context(), s.db, rows))
}

// sends counts what the broker was given, by name.
type sends struct {
	mu     sync.Mutex
	times  map[string]int
	during func(name string) // while a message is with the broker; may be nil
}

func (c *sends) broker() *fake {
	c.times = map[string]int{}
	return &fake{publish: func(_ context.Context, m brokers.Message) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.times[m.Type]++
		if c.during != nil {
			c.during(m.Type)
		}
		return nil
	}}
}

func (c *sends) count() (messages, sent int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.times {
		messages, sent = messages+1, sent+n
	}
	return messages, sent
}

func (s *site) relay(store driver.Store, broker brokers.Broker, policy outbox.Policy) (stop func()) {
	s.Helper()
	// A quarter of the lease is for a statement, which on MySQL waits for a second.
	policy.Lease, policy.PublishTimeout, policy.PollMax, policy.ShutdownTimeout = 6*time.Second, time.Second, 100*time.Millisecond, time.Second
	p, err := NewProcessor(ProcessorConfig{Database: "d", Broker: "b", Store: store, Target: broker, Policy: policy, Log: s.log.logger(slog.LevelInfo)})
	require.NoError(s, err)
	return running(s.T, p.Run)
}

func (s *site) eventually(what string, condition func() bool) {
	s.Helper()
	require.Eventually(s, condition, 45*time.Second, 50*time.Millisecond, what)
}

// unremovable are ways in which rows refuse to go.
var unremovable = map[string]struct {
	prepare map[outbox.Dialect]string
	refused int // of 61 rows
}{
	"a foreign key on a row": {refused: 1, prepare: map[outbox.Dialect]string{
		outbox.Postgres: "CREATE TABLE notes (id uuid, broker text, FOREIGN KEY (id, broker) REFERENCES outbox_messages);; INSERT INTO notes SELECT message_id, target_broker FROM outbox_messages WHERE type = 'T7'",
		outbox.MySQL:    "CREATE TABLE notes (id BIGINT, FOREIGN KEY (id) REFERENCES outbox_messages (id));; INSERT INTO notes SELECT id FROM outbox_messages WHERE type = 'T7'",
		outbox.SQLite:   "CREATE TABLE notes (id INTEGER REFERENCES outbox_messages (id));; INSERT INTO notes SELECT id FROM outbox_messages WHERE type = 'T7'",
	}},
	"a trigger that raises": {refused: 61, prepare: map[outbox.Dialect]string{
		outbox.Postgres: "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END';; CREATE TRIGGER no BEFORE DELETE ON outbox_messages FOR EACH ROW EXECUTE FUNCTION no()",
		outbox.MySQL:    "CREATE TRIGGER no BEFORE DELETE ON outbox_messages FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'",
		outbox.SQLite:   "CREATE TRIGGER no BEFORE DELETE ON outbox_messages BEGIN SELECT RAISE(ABORT, 'no'); END",
	}},
	"a trigger that suppresses": {refused: 61, prepare: map[outbox.Dialect]string{
		outbox.Postgres: "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';; CREATE TRIGGER no BEFORE DELETE ON outbox_messages FOR EACH ROW EXECUTE FUNCTION no()",
		outbox.SQLite:   "CREATE TRIGGER no BEFORE DELETE ON outbox_messages BEGIN SELECT RAISE(IGNORE); END",
	}},
}

// Rows that are not kept and cannot be removed are marked, and sent once; the others go.
func TestRowsThatCannotBeRemovedAreMarked(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	for name, c := range unremovable {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onSites(t, func(s *site) {
				if c.prepare[s.dialect] == "" {
					s.Skip("not on this database")
				}
				s.write(61, 61)
				s.do(c.prepare)
				var got sends
				stop := s.relay(s.open(s.dsn), got.broker(), outbox.Policy{DeletePublished: true})
				defer stop()
				s.eventually("all are finished", func() bool { return s.count("finished_at IS NULL") == 0 })
				time.Sleep(7 * time.Second) // leases that could not be ended would be over
				stop()
				s.tell(&got)
				_, sent := got.count()
				assert.Equal(s, 61, sent, "each once")
				assert.LessOrEqual(s, s.count("status = 'published'"), c.refused)
				assert.Zero(s, s.count("status <> 'published'"))
			})
		})
	}
}

// tell shows how often messages were sent.
func (s *site) tell(got *sends) {
	messages, sent := got.count()
	s.Logf("sends: %d of %d messages; abandoned %d", sent, messages, s.count("status = 'abandoned'"))
}

// A role without the right to remove rows has them marked.
func TestRowsThatARoleMayNotRemoveAreMarked(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	onSites(t, func(s *site) {
		s.only(outbox.Postgres, outbox.MySQL)
		s.write(40, 40)
		var got sends
		store := s.open(s.withoutDelete())
		diagnosis, err := store.Diagnose(s.Context())
		require.NoError(s, err)
		require.ErrorContains(s, diagnosis.Err(), "GRANT DELETE ON ", "no relay starts like this; a running one may lose the right")
		stop := s.relay(store, got.broker(), outbox.Policy{DeletePublished: true})
		defer stop()
		s.eventually("all are finished", func() bool { return s.count("finished_at IS NULL") == 0 })
		time.Sleep(7 * time.Second)
		stop()
		s.tell(&got)
		_, sent := got.count()
		assert.Equal(s, 40, sent, "each once")
		assert.Equal(s, 40, s.count("status = 'published'"))
	})
}

// withoutDelete is the DSN of a role that may do all that a relay does, but remove messages.
func (s *site) withoutDelete() (dsn string) {
	s.Helper()
	role := "fanout_" + strings.ToLower(uuid.NewString()[:8])
	tables := []string{"outbox_messages_key_blocks", "outbox_messages_shards", "outbox_messages_pauses", "outbox_messages_instances"}
	if s.dialect == outbox.Postgres {
		s.do(map[outbox.Dialect]string{outbox.Postgres: "CREATE ROLE " + role + ";; GRANT SELECT, INSERT, UPDATE ON outbox_messages TO " + role +
			";; GRANT ALL ON " + strings.Join(tables, ", ") + " TO " + role + ";; GRANT SELECT ON outbox_messages_migrations TO " + role})
		s.Cleanup(func() {
			s.do(map[outbox.Dialect]string{outbox.Postgres: "DROP OWNED BY " + role + ";; DROP ROLE " + role})
		})
		return s.dsn + "&role=" + role
	}
	statements := "CREATE USER " + role + " IDENTIFIED BY 'fanout-Secret-1'"
	var names []string
	rows, err := s.db.QueryContext(s.Context(), "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()")
	require.NoError(s, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		require.NoError(s, rows.Scan(&name))
		names = append(names, name)
	}
	require.NoError(s, rows.Err())
	for _, name := range names {
		rights := "ALL"
		if name == outbox.DefaultTable {
			rights = "SELECT, INSERT, UPDATE"
		}
		statements += ";; GRANT " + rights + " ON " + name + " TO " + role
	}
	s.do(map[outbox.Dialect]string{outbox.MySQL: statements})
	s.Cleanup(func() { s.do(map[outbox.Dialect]string{outbox.MySQL: "DROP USER " + role}) })
	_, address, _ := strings.Cut(s.dsn, "@")
	return role + ":fanout-Secret-1@" + address
}

// A database that takes no outcome of a kind gets no further messages sent: each was sent once when it takes
// outcomes again, and no process counts as crashed.
func TestClaimsStopWhileNoOutcomeCanBeWritten(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	const all, suppressed = "status = 'published'", "suppressed"
	for name, where := range map[string]string{"of all rows": all, suppressed: all, "of a row": all + " AND type = 'T7'"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onSites(t, func(s *site) {
				const rows = 400
				s.write(rows, 40)
				postgres, sqlite := "RAISE ''no''", "ABORT, 'no'"
				if name == suppressed {
					s.only(outbox.Postgres, outbox.SQLite)
					postgres, sqlite = "RETURN NULL", "IGNORE"
				}
				where := "NEW." + strings.ReplaceAll(where, "AND ", "AND NEW.")
				s.do(map[outbox.Dialect]string{
					outbox.Postgres: "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN " + postgres + "; END';; CREATE TRIGGER no BEFORE UPDATE ON outbox_messages FOR EACH ROW WHEN (" + where + ") EXECUTE FUNCTION no()",
					outbox.MySQL:    "CREATE TRIGGER no BEFORE UPDATE ON outbox_messages FOR EACH ROW IF " + where + " THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'; END IF",
					outbox.SQLite:   "CREATE TRIGGER no BEFORE UPDATE ON outbox_messages WHEN " + where + " BEGIN SELECT RAISE(" + sqlite + "); END",
				})
				var got sends
				stop := s.relay(s.open(s.dsn), got.broker(), outbox.Policy{BatchSize: 5, Workers: 2})
				defer stop()
				if name == "of a row" {
					// It is the first of ten of its key.
					s.eventually("other keys go on", func() bool { return s.count("status = 'published'") >= rows-10 })
				}
				time.Sleep(10 * time.Second)
				s.tell(&got)
				messages, sent := got.count()
				assert.Equal(s, messages, sent, "each once")
				if name != "of a row" {
					assert.LessOrEqual(s, sent, 4*5+2*6, "a batch of each worker, and one row for each lease")
				}
				assert.NotZero(s, s.log.count("level=ERROR", "outcomes not written", "claims_stopped=true")+s.log.count("level=ERROR", "outcomes not written", "claims_stopped=false"))
				s.do(map[outbox.Dialect]string{
					outbox.Postgres: "DROP TRIGGER no ON outbox_messages", outbox.MySQL: "DROP TRIGGER no", outbox.SQLite: "DROP TRIGGER no",
				})
				s.eventually("all are published", func() bool { return s.count("status = 'published' AND attempts = 1 AND crashes = 0") == rows })
				_, sent = got.count()
				assert.Equal(s, rows, sent, "each once")
			})
		})
	}
}

// A row that another session locks while it is sent holds its key back, and no other: the shard goes on at
// once. It is sent once, although its lease is over when the session ends.
func TestOutcomeOfALockedRowWaits(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	onSites(t, func(s *site) {
		s.only(outbox.Postgres, outbox.MySQL)
		const rows = 200
		s.write(rows, 20) // ten of each key
		session, err := s.db.BeginTx(s.Context(), nil)
		require.NoError(s, err)
		s.Cleanup(func() { _ = session.Rollback() })
		var got sends
		var id int64
		require.NoError(s, s.db.QueryRowContext(s.Context(), "SELECT id FROM outbox_messages WHERE type = 'T7'").Scan(&id))
		got.during = func(name string) {
			if name == "T7" {
				_, err := session.ExecContext(s.Context(), fmt.Sprint("UPDATE outbox_messages SET correlation_id = 'mine' WHERE id = ", id))
				assert.NoError(s, err)
			}
		}
		broker := got.broker()
		began := time.Now()
		stop := s.relay(s.open(s.dsn), broker, outbox.Policy{BatchSize: 20, Workers: 1})
		defer stop()
		s.eventually("other keys go on", func() bool { return s.count("status = 'published' AND ordering_key <> '7'") == rows-10 })
		s.Logf("other keys after %s", time.Since(began).Round(time.Millisecond))
		assert.Less(s, time.Since(began), 15*time.Second)
		time.Sleep(7 * time.Second)
		if s.dialect == outbox.Postgres {
			assert.NotZero(s, s.log.count("outcomes not written", `session="process `, "claims_stopped=false"))
		}
		got.mu.Lock()
		got.during = nil
		got.mu.Unlock()
		require.NoError(s, session.Commit())
		s.eventually("all are published", func() bool { return s.count("status = 'published'") == rows })
		stop()
		s.tell(&got)
		_, sent := got.count()
		assert.Equal(s, rows, sent, "each once")
	})
}

// A session that only keeps a row from being removed, as one that writes a foreign key does, is no obstacle.
func TestARowThatIsReferredToIsMarked(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	onSites(t, func(s *site) {
		s.only(outbox.Postgres)
		s.write(61, 61)
		session, err := s.db.BeginTx(s.Context(), nil)
		require.NoError(s, err)
		s.Cleanup(func() { _ = session.Rollback() })
		_, err = session.ExecContext(s.Context(), "SELECT FROM outbox_messages WHERE type = 'T7' FOR KEY SHARE")
		require.NoError(s, err)
		var got sends
		stop := s.relay(s.open(s.dsn), got.broker(), outbox.Policy{DeletePublished: true})
		defer stop()
		s.eventually("all are finished", func() bool { return s.count("finished_at IS NULL") == 0 })
		s.tell(&got)
		_, sent := got.count()
		assert.Equal(s, 61, sent)
		assert.Equal(s, 1, s.count("status = 'published'"))
	})
}

// ending is a store that takes no outcome while it is told to, and no renewal either.
type ending struct {
	driver.Delivery

	mu     sync.Mutex
	cause  error
	claims []int // limits
}

func (e *ending) refuse(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cause = err
}

func (e *ending) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if completion != nil && e.cause != nil {
		return driver.Exchanged{}, e.cause
	}
	exchanged, err := e.Delivery.Exchange(ctx, completion, claim)
	if claim != nil && len(exchanged.Batch.Messages) > 0 {
		e.claims = append(e.claims, claim.Limit)
	}
	return exchanged, err
}

func (e *ending) Renew(ctx context.Context, lease driver.Lease) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cause != nil {
		return 0, e.cause
	}
	return e.Delivery.Renew(ctx, lease)
}

// Where leases cannot be renewed either, as on a full disk, rows come back to the process that has sent
// them. It writes what became of them, and sends none of them again. For each lease one further row is
// sent, to find out whether its outcome can be written.
func TestRowsOfHeldOutcomesAreNotSentAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		store, broker := &ending{}, &fake{}
		r := newRig(t, path, broker, outbox.Policy{BatchSize: 5, Workers: 1, Lease: time.Minute}, func(c *ProcessorConfig) { store.Delivery, c.Store = c.Store, store })
		store.refuse(errReadOnly)
		r.fill(100, keyed("", 10))
		r.start()
		time.Sleep(time.Minute - time.Second)
		first := len(broker.delivered(""))
		assert.LessOrEqual(t, first, 2*5, "a batch of each worker")
		time.Sleep(10 * time.Minute)
		assert.LessOrEqual(t, len(broker.delivered("")), first+11)
		store.mu.Lock()
		assert.InDelta(t, 1+10, len(store.claims), 1, "one for each lease")
		assert.NotContains(t, store.claims[2:], 5)
		store.mu.Unlock()
		assert.Equal(t, 1, r.log.count("level=ERROR", "completion failed", "the relay needs the primary"))
		assert.InDelta(t, 10, r.log.count("level=ERROR", "outcomes not written", "claims_stopped=true"), 1, "once a minute")
		store.refuse(nil)
		r.drained(5 * time.Minute)
		assert.Len(t, broker.delivered(""), 100, "once each")
		requireOrder(t, broker.delivered(""), 10)
		assert.Equal(t, 100, r.count("status = 'published' AND attempts = 1"), "none is to blame")
		r.stop()
		assert.Zero(t, r.log.count("outcome of a batch lost"))
	})
}

// A stop that cannot write outcomes says so.
func TestStopTellsOfOutcomesThatAreLost(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		store := &ending{}
		r := newRig(t, path, &fake{}, outbox.Policy{ShutdownTimeout: 10 * time.Second}, func(c *ProcessorConfig) { store.Delivery, c.Store = c.Store, store })
		store.refuse(errReadOnly)
		r.insert(row{name: "x"})
		r.start()
		time.Sleep(time.Second)
		began := time.Now()
		r.stop()
		assert.LessOrEqual(t, time.Since(began), 15*time.Second)
		assert.Equal(t, 1, r.log.count("level=ERROR", "outcome of a batch lost", "rows=1"))
	})
}
