package integration_test

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
	"github.com/gorm-fanout/fanout/uow"
)

// What tells the transactions of an outbox from each other: texts that its statements contain, in
// lower case.
const (
	enqueueText = "insert into outbox_messages"
	markText    = "set status            = 'published'"
)

var claimTexts = map[outbox.Dialect]string{outbox.Postgres: "lock_token   = $" /* there are several statements */, outbox.MySQL: ", lock_token   = "}

// doubt is an outbox in a database, as seen directly and through a network that cuts commits.
type doubt struct {
	*place

	proxy    *commitProxy
	through  string // DSN
	received map[string]*memory.Broker
	rows     int // that were inserted
	lease    time.Duration
}

// notes keeps every change of a state.
var notes = map[outbox.Dialect][]string{
	outbox.Postgres: {
		"CREATE TABLE history (id bigint, was text, became text)",
		"CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO history VALUES (NEW.id, OLD.status, NEW.status); RETURN NULL; END $$",
		"CREATE TRIGGER note AFTER UPDATE OF status ON outbox_messages FOR EACH ROW EXECUTE FUNCTION note()",
	},
	outbox.MySQL: {
		"CREATE TABLE history (id bigint, was varchar(16), became varchar(16))",
		"CREATE TRIGGER note AFTER UPDATE ON outbox_messages FOR EACH ROW INSERT INTO history VALUES (NEW.id, OLD.status, NEW.status)",
	},
}

func newDoubt(t *testing.T, driver outbox.Dialect) *doubt {
	t.Helper()
	d := &doubt{place: newPlace(t, driver), received: map[string]*memory.Broker{"default": memory.New(), "partner": memory.New()}, lease: 5 * time.Second}
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(d.dsn)
	if address == "" {
		t.Skipf("the proxy is for a server at 127.0.0.1")
	}
	d.proxy = newCommitProxy(t, driver, address)
	d.through = strings.Replace(d.dsn, address, d.proxy.addr(), 1)
	d.migrate()
	for _, statement := range notes[driver] {
		d.exec(statement)
	}
	return d
}

// number counts in any table.
func (d *doubt) number(from string) (n int) {
	d.Helper()
	require.NoError(d, d.db.QueryRowContext(d.Context(), "SELECT count(*) FROM "+from).Scan(&n))
	return n
}

// insert writes rows of a few keys for one broker.
func (d *doubt) insert(n int) {
	d.Helper()
	rows := make([]outbox.Row, n)
	for i := range rows {
		d.rows++
		rows[i] = outbox.Row{
			MessageID: uuid.New(), TargetBroker: "default", Stream: "s", Type: "T", OrderingKey: fmt.Sprint("k", d.rows%31), Payload: []byte(strconv.Itoa(d.rows)),
		}
	}
	d.write(rows...)
}

// deliver runs a relay on a DSN until every row is finished.
func (d *doubt) deliver(dsn string) {
	d.Helper()
	d.deliverUnder(dsn, func() {}, func() bool { return true })
}

// deliverUnder runs a relay on a DSN, begins something when it has found out that there is nothing
// to do yet, and ends it when a condition holds and every row is finished.
func (d *doubt) deliverUnder(dsn string, begin func(), condition func() bool) []relay.Stats {
	d.Helper()
	store, err := openStore(d.Context(), d.driver, dsn)
	require.NoError(d, err)
	d.Cleanup(func() { _ = store.Close() })
	targets := map[string]relay.Target{}
	for name, broker := range d.received {
		policy := shortLease()
		policy.BatchSize, policy.Lease, policy.PublishTimeout = 50, d.lease, d.lease*4/5 // no call to a broker in memory takes that long
		targets[name] = relay.Target{Broker: broker, Policy: policy}
	}
	engine, err := relay.NewEngine(relay.EngineConfig{Stores: map[string]driver.Delivery{"test": store}, Brokers: targets, Log: slog.New(slog.DiscardHandler)})
	require.NoError(d, err)
	ctx, stop := context.WithCancel(d.Context())
	done := make(chan error, 1)
	go func() { done <- engine.Run(ctx) }()
	if dsn == d.through && d.driver == outbox.Postgres { // at its start it claims from each shard, in transactions
		eventually(d.T, func() bool { return d.proxy.passed() >= outbox.Classes*outbox.Shards*len(d.received) })
	}
	begin()
	eventually(d.T, func() bool { return condition() && d.number("outbox_messages WHERE finished_at IS NULL") == 0 })
	stop()
	require.NoError(d, <-done)
	return engine.Stats()
}

// eachCut runs a test for both reasons why an answer to a COMMIT does not come.
func eachCut(t *testing.T, test func(d *doubt, swallowed bool)) {
	t.Helper()
	for _, driver := range []outbox.Dialect{outbox.Postgres, outbox.MySQL} {
		for name, swallowed := range map[string]bool{"processed": false, "swallowed": true} {
			t.Run(string(driver)+", "+name, func(t *testing.T) {
				t.Parallel()
				test(newDoubt(t, driver), swallowed)
			})
		}
	}
}

// application is GORM with the plugin, behind the network.
func (d *doubt) application() *gorm.DB {
	d.Helper()
	events := envelope.NewCatalog("shop")
	envelope.Register[OrderPlaced](events, envelope.Published())
	behind := *d.place
	behind.dsn = d.through
	db, err := gorm.Open(behind.dial(), &gorm.Config{Logger: logger.Discard})
	require.NoError(d, err)
	sqlDB, err := db.DB()
	require.NoError(d, err)
	d.Cleanup(func() { _ = sqlDB.Close() })
	require.NoError(d, db.AutoMigrate(&Order{}))
	require.NoError(d, db.Use(gormplugin.New(events, outbox.Routing{InternalBroker: "default", External: []outbox.Route{{Broker: "partner"}}})))
	return db
}

// arrived is how many messages the brokers have got, and how many different ones.
func (d *doubt) arrived() (all, different int) {
	ids := map[string]bool{}
	for name, broker := range d.received {
		for _, destination := range broker.Destinations() {
			for _, message := range broker.Messages(destination) {
				ids[name+"/"+message.ID] = true
				all++
			}
		}
	}
	return all, len(ids)
}

// The commit of an enqueue has an unknown outcome, through GORM: the application gets an error, and
// the events stay with their aggregate. Saving the same aggregate again writes the same messages:
// had the first commit passed, their rows are found, and the events are done with. One row per
// message and broker, and no phantom, either way, however often it is saved.
func TestUnknownCommitOfAnEnqueue(t *testing.T) {
	t.Parallel()
	eachCut(t, func(d *doubt, swallowed bool) {
		db := d.application()
		d.proxy.cut(1, enqueueText, swallowed)
		order := &Order{ID: "1", Customer: "ada"}
		order.Raise(OrderPlaced{"1", "ada"})
		save := func() error {
			return uow.Do(d.Context(), db, func(u *uow.Unit) error { return u.DB.Save(order).Error }, uow.WithRetry(3))
		}
		err := save()
		require.Error(d, err)
		require.False(d, uow.IsConflict(err), "nobody repeats it but who knows that he may: %v", err)
		require.Equal(d, 1, d.proxy.done())
		assert.Equal(d, []any{OrderPlaced{"1", "ada"}}, uow.Pending(order))
		rows := 2
		if swallowed {
			rows = 0
		}
		assert.Equal(d, rows, d.number("outbox_messages"))
		assert.Equal(d, rows/2, d.number("orders"))
		d.deliver(d.dsn) // what the application does not repeat is delivered if it was committed, and else never
		all, _ := d.arrived()
		assert.Equal(d, rows, all)

		for range 2 {
			require.NoError(d, save())
			assert.Empty(d, uow.Pending(order))
		}
		assert.Equal(d, 2, d.number("outbox_messages"))
		assert.Equal(d, 2, d.number("(SELECT DISTINCT message_id, target_broker FROM outbox_messages) AS different"))
		d.deliver(d.dsn)
		all, different := d.arrived()
		assert.Equal(d, 2, all)
		assert.Equal(d, 2, different)
	})
}

// The same in a transaction that was begun outside GORM, where the rows are written at the
// statement: the repeated transaction finds them there, and passes.
func TestUnknownCommitOfAnEnqueueOutsideGORM(t *testing.T) {
	t.Parallel()
	eachCut(t, func(d *doubt, swallowed bool) {
		db := d.application()
		sqlDB, err := db.DB()
		require.NoError(d, err)
		d.proxy.cut(1, enqueueText, swallowed)
		order := &Order{ID: "1", Customer: "ada"}
		order.Raise(OrderPlaced{"1", "ada"})
		save := func() error {
			foreign, err := sqlDB.BeginTx(d.Context(), nil)
			require.NoError(d, err)
			handle := db.Session(&gorm.Session{Context: d.Context(), NewDB: true})
			handle.Statement.ConnPool = foreign
			require.NoError(d, handle.Save(order).Error)
			return foreign.Commit()
		}
		require.Error(d, save())
		require.NoError(d, save())
		require.NoError(d, gormplugin.Notify(db, order))
		assert.Empty(d, uow.Pending(order))
		require.Equal(d, 1, d.proxy.done())
		assert.Equal(d, 2, d.number("outbox_messages"))
		d.deliver(d.dsn)
		all, different := d.arrived()
		assert.Equal(d, 2, all)
		assert.Equal(d, 2, different)
	})
}

// The commits of claims have unknown outcomes: the rows come back, after their lease where they had
// been claimed, and nobody is charged.
func TestUnknownCommitOfAClaim(t *testing.T) {
	t.Parallel()
	eachCut(t, func(d *doubt, swallowed bool) {
		if swallowed {
			d.lease = time.Minute // none is to expire, however slow the machine is
		}
		const cuts, most = 6, 10
		rounds := 0
		round := func() {
			rounds++
			d.proxy.cut(cuts, claimTexts[d.driver], swallowed)
			d.insert(500)
		}
		leasedAgain := func() int { return d.number("history WHERE was = 'processing' AND became = 'processing'") }
		d.deliverUnder(d.through, round, func() bool {
			if d.proxy.done() < rounds*cuts || d.number("outbox_messages WHERE finished_at IS NULL") > 0 {
				return false
			}
			if !swallowed && leasedAgain() < cuts && rounds < most { // a worker may still begin, and claims that found nothing were cut
				round()
				return false
			}
			return true
		})
		again, rows := leasedAgain(), d.rows
		assert.Equal(d, rows, d.number("outbox_messages WHERE status = 'published' AND attempts = 1"))
		assert.Equal(d, rows, d.number("history WHERE became = 'published' AND was = 'processing'"))
		assert.Zero(d, d.number("history WHERE was = 'published' OR became IN ('failed', 'abandoned')"))
		all, different := d.arrived()
		assert.Equal(d, rows, all, "nothing was sent that was not claimed")
		assert.Equal(d, rows, different)
		if swallowed {
			assert.Zero(d, again)
		} else {
			assert.GreaterOrEqual(d, again, cuts)
		}
		assert.Empty(d, d.disorder())
		d.Logf("%d rows were leased to nobody for a while", again)
	})
}

// The commits of marks have unknown outcomes: they are repeated until they are known. Each row
// becomes published once, and no message is sent twice.
func TestUnknownCommitOfAMark(t *testing.T) {
	t.Parallel()
	eachCut(t, func(d *doubt, swallowed bool) {
		const rows, cuts = 500, 4
		lost := int64(0)
		for _, s := range d.deliverUnder(d.through, func() {
			d.proxy.cut(cuts, markText, swallowed)
			d.insert(rows)
		}, func() bool { return d.proxy.done() == cuts }) {
			lost += s.LeaseLost
		}
		assert.Zero(d, lost, "a mark that has passed at the first try is no lost lease")
		assert.Equal(d, rows, d.number("outbox_messages WHERE status = 'published' AND attempts = 1"))
		assert.Equal(d, rows, d.number("history WHERE became = 'published'"), "once each")
		assert.Zero(d, d.number("history WHERE was = 'published'"))
		all, different := d.arrived()
		assert.Equal(d, rows, all)
		assert.Equal(d, rows, different)
		assert.Empty(d, d.disorder())
	})
}

// disorder tells which message came out of the order of its key, or is empty.
func (d *doubt) disorder() string {
	last := map[string]int{}
	for _, message := range d.received["default"].Messages("s") {
		n := 0
		if _, err := fmt.Sscan(string(message.Payload), &n); err != nil || n <= last[message.OrderingKey] {
			return fmt.Sprintf("%s of %s came after %d", message.Payload, message.OrderingKey, last[message.OrderingKey])
		}
		last[message.OrderingKey] = n
	}
	return ""
}
