package integration_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// writerChild is the kind of a child that writes through GORM.
const writerChild = "writer"

// Arguments of a writer: the bounded context of its events, and the moment at which it dies.
const (
	contextVariable = "FANOUT_TEST_CHILD_CONTEXT"
	momentVariable  = "FANOUT_TEST_CHILD_MOMENT"
)

// Moments of a transaction.
const (
	beforeTheRows   = "before the rows"   // the aggregate is written, its messages are not
	beforeTheCommit = "before the commit" // everything is written
	afterTheCommit  = "after the commit"  // and nobody has been told
)

// doomed kills this process at one moment of a transaction.
type doomed struct{ moment string }

func (d doomed) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	text := strings.ToLower(data.SQL)
	if d.moment == beforeTheRows && strings.Contains(text, "outbox_messages") || d.moment == beforeTheCommit && text == "commit" {
		die()
	}
	return ctx
}

func (d doomed) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if d.moment == afterTheCommit && data.CommandTag.String() == "COMMIT" {
		die()
	}
}

// runWriter saves an aggregate with its event, and does not live to tell.
func runWriter(ctx context.Context) error {
	config, err := pgx.ParseConfig(os.Getenv(dsnVariable))
	if err != nil {
		return err
	}
	config.Tracer = doomed{os.Getenv(momentVariable)}
	pool := stdlib.OpenDB(*config)
	defer pool.Close()
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: pool}), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return err
	}
	events := envelope.NewCatalog(os.Getenv(contextVariable))
	envelope.Register[OrderPlaced](events)
	envelope.Register[StockReserved](events)
	if err := db.Use(gormplugin.New(events, outbox.Routing{})); err != nil {
		return err
	}
	err = db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		order := &Order{ID: os.Getenv(momentVariable), Customer: "ada"}
		order.Raise(OrderPlaced{order.ID, order.Customer})
		return errors.Join(tx.Create(order).Error, uow.Publish(tx, StockReserved{"teapot"}))
	})
	return errors.Join(err, errors.New("it has survived"))
}

// An application is killed in its transaction, or right after the commit and before it has woken
// anybody. What was not committed is never delivered; what was, a relay finds by itself.
func TestFault01WriterIsKilled(t *testing.T) {
	t.Parallel()
	b := newBench(newPlace(t, outbox.Postgres))
	name := contextName(testenv.RedisPrefix(t))
	cleanStreams(t, testenv.Redis(t), name+"::order", name)
	b.stream = name + "::order"
	require.Zero(t, b.run("migrate").code)
	_, err := b.db.ExecContext(t.Context(), "CREATE TABLE orders (id text PRIMARY KEY, customer text, status text)")
	require.NoError(t, err)
	relay := b.relay()
	named := &place{T: t, driver: b.driver, dsn: b.dsn + "&application_name=writer"}
	count := func(query string) (n int) {
		require.NoError(t, b.db.QueryRowContext(t.Context(), query).Scan(&n))
		return n
	}
	for _, moment := range []string{beforeTheRows, beforeTheCommit, afterTheCommit} {
		writer := startChild(named, writerChild, contextVariable+"="+name, momentVariable+"="+moment)
		require.ErrorContains(t, writer.cmd.Wait(), "killed", "%s: %s", moment, &writer.log)
		eventually(t, func() bool {
			return count("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'writer'") == 0
		})
		if moment != afterTheCommit {
			assert.Zero(t, count("SELECT count(*) FROM orders"), moment)
			assert.Zero(t, b.count("true"), moment)
			assert.Zero(t, b.arrived(), moment)
			continue
		}
		assert.Equal(t, 1, count("SELECT count(*) FROM orders"))
		eventually(t, func() bool { return b.count("status = 'published'") == 2 })
		assert.Equal(t, 1, b.arrived())
	}
	code, published := relay.stop()
	assert.Zero(t, code)
	assert.Equal(t, 2, published, "and nothing of the two others")
}
