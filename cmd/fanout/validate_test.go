package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	redis.SetLogger(redisLog) // as main does
	// A library that Pub/Sub links starts a goroutine when it is loaded.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// place is a configuration in a folder of its own, with what commands say about it.
type place struct {
	*testing.T
	config string
}

// newPlace has one database, of which the DSN is given, and one broker in memory.
func newPlace(t *testing.T, driver, dsn string) *place {
	t.Helper()
	p := &place{T: t, config: filepath.Join(t.TempDir(), "fanout.yaml")}
	require.NoError(t, os.WriteFile(p.config, []byte("databases: {main: {driver: "+driver+", dsn: '"+dsn+"'}}\nbrokers: {default: {type: memory}}\n"), 0o600))
	return p
}

// run runs a command in this process.
func (p *place) run(args ...string) (code int, stdout, stderr string) {
	p.Helper()
	var out, err bytes.Buffer
	code = run(p.Context(), append(args, "--config", p.config), strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}

// good expects a validation without a word of warning.
func (p *place) good() {
	p.Helper()
	code, stdout, stderr := p.run("validate")
	assert.Zero(p, code)
	assert.NotContains(p, stderr, "warning: database")
	assert.Contains(p, stdout, "database main: the schema is up to date\n")
	assert.Contains(p, stdout, "broker default: reached\n")
}

func (p *place) migrate() {
	p.Helper()
	code, _, stderr := p.run("migrate")
	require.Zero(p, code, stderr)
}

func openSQLite(t *testing.T, dsn string) func(statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return func(statements ...string) {
		t.Helper()
		for _, statement := range statements {
			_, err := db.ExecContext(t.Context(), statement)
			require.NoError(t, err, statement)
		}
	}
}

func TestValidateSchema(t *testing.T) {
	t.Parallel()
	dsn := filepath.Join(t.TempDir(), "outbox.db")
	p, exec := newPlace(t, "sqlite", dsn), openSQLite(t, dsn)

	code, _, stderr := p.run("validate")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, stderr, `fanout: database main: sqlite: check outbox_messages: the outbox schema is not up to date: run "fanout migrate":`)
	assert.Contains(t, stderr, "\n  table outbox_messages: missing\n  table outbox_messages_key_blocks: missing\n")

	p.migrate()
	p.good()

	exec("ALTER TABLE outbox_messages DROP COLUMN isolated", "DROP INDEX outbox_messages_finished", "ALTER TABLE outbox_messages ADD COLUMN note TEXT")
	code, stdout, stderr := p.run("validate")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, stderr, "shows:\n  column isolated: missing\n  index outbox_messages_finished: missing\n")
	assert.NotContains(t, stderr, "note")
	assert.Contains(t, stdout, "database main: SQLite 3.")
	assert.Contains(t, stdout, "journal_mode wal, synchronous 2, busy_timeout 10000; clock ")
	assert.Contains(t, stdout, "broker default: reached", "a problem of one is no excuse for the others")

	code, _, stderr = p.run("relay")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, stderr, "column isolated: missing; index outbox_messages_finished: missing")
}

// A relay starts with expressions of other words, which validate names where it may make a scratch schema.
func TestValidateExpressions(t *testing.T) {
	t.Parallel()
	dsn := newPostgres(t)
	p := newPlace(t, "postgres", dsn)
	p.migrate()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	role := "validates_" + strings.ToLower(rand.Text()[:8])
	for _, statement := range []string{
		"ALTER TABLE outbox_messages ALTER status SET DEFAULT 'failed', DROP CONSTRAINT outbox_messages_lease, ADD CONSTRAINT outbox_messages_lease CHECK (true)",
		"CREATE ROLE " + role, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO " + role,
		"DO $$ BEGIN EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database()); END $$",
	} {
		_, err = conn.Exec(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	defer func() {
		_, err := conn.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role)
		assert.NoError(t, err)
	}()
	code, stdout, stderr := p.run("validate")
	assert.Zero(t, code, stderr)
	assert.Contains(t, stdout, "database main: the schema is up to date\n")
	for _, warning := range []string{
		"column status: default is 'failed'::text, want 'pending'::text",
		"constraint outbox_messages_lease: check is true, want ((status <> 'processing'::text) OR ((lock_token IS NOT NULL) AND (locked_until IS NOT NULL)))",
	} {
		assert.Contains(t, stderr, "warning: database main: "+warning+`: bring it back to what "fanout migrate --print" shows`+"\n")
	}
	code, _, stderr = p.run("validate", "--strict")
	assert.Equal(t, exitFailed, code)
	assert.Regexp(t, `there are \d+ warnings, and --strict was given`, stderr)

	address, err := url.Parse(dsn)
	require.NoError(t, err)
	address.RawQuery += "&role=" + role
	p = newPlace(t, "postgres", address.String())
	code, stdout, stderr = p.run("validate")
	assert.Zero(t, code, stderr)
	assert.NotContains(t, stderr, "column status")
	assert.Regexp(t, "database main: defaults, .* were not compared: .* the role needs TEMPORARY on the database\n", stdout)
}

// TestValidateSaysWhatLeaves: whoever reads it sees which partner gets the tenant.
func TestValidateSaysWhatLeaves(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "sqlite", filepath.Join(t.TempDir(), "outbox.db"))
	require.NoError(t, os.WriteFile(p.config, []byte(`
databases: {main: {driver: sqlite, dsn: "x.db"}}
outbox: {external_brokers: [partner, audit]}
brokers:
  default: {type: memory}
  partner: {type: memory, format: cloudevents, source: "https://shop.example.com", filter: ["Ordering.*", "Billing.*"], destination: "acme.{aggregate}", attributes: {site: eu, api-key: hidden}}
  audit: {type: memory, encoding: json, extensions: [tenant_id, actor], content_type: application/vnd.acme+json, include: [fqn, tracestate], sign: {"2026-11": whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=}}
`), 0o600))
	code, stdout, stderr := p.run("validate", "--offline")
	assert.Zero(t, code, stderr)
	assert.Contains(t, stdout, "external broker partner: published events leave as cloudevents, with no extensions\n"+
		"external broker partner: the published types that match Ordering.*, Billing.* go to acme.{aggregate}\n"+
		"external broker partner: source https://shop.example.com\n"+
		"external broker partner: attributes api-key, site\n")
	assert.Contains(t, stdout, "external broker audit: published events leave as native, with the extensions tenant_id, actor, and with fqn, tracestate\n"+
		"external broker audit: all published types go to {stream}\n"+
		"external broker audit: encoding json\n"+
		"external broker audit: content_type application/vnd.acme+json\n"+
		"external broker audit: signed by 2026-11\n")
	assert.NotContains(t, stdout+stderr, "hidden")
	assert.NotContains(t, stdout+stderr, "AAECAwQ")
}

func TestValidateWarnings(t *testing.T) {
	t.Parallel()
	dsn := filepath.Join(t.TempDir(), "outbox.db")
	p, exec := newPlace(t, "sqlite", dsn+"?_pragma=busy_timeout(0)"), openSQLite(t, dsn)
	p.migrate()
	exec(`INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload)
	      VALUES ('01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a', 'removed', 's', 't', '{}')`)
	exec(`INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload, deferred)
	      VALUES ('01a1fd9d-d6b8-7eca-9afc-e5aa4aba856b', 'default', 's', 't', '{}', 1)`)
	code, stdout, stderr := p.run("validate")
	assert.Zero(t, code, "a relay works in spite of it")
	assert.Contains(t, stderr, "warning: database main: busy_timeout is 0: ")
	assert.Contains(t, stderr, `warning: database main: rows wait for broker "removed", which is not configured: no processor delivers them`)
	assert.Contains(t, stderr, "warning: database main: 1 row stranded: no rule can ever make them due; the first is 01a1fd9d-d6b8-7eca-9afc-e5aa4aba856b of type t and key - for broker default")
	assert.Contains(t, stdout, "the schema is up to date")
}

// TestValidateReadOnly: a relay on a read replica is refused before it has started.
func TestValidateReadOnly(t *testing.T) {
	t.Parallel()
	dsn := newPostgres(t)
	p := newPlace(t, "postgres", dsn)
	p.migrate()
	code, stdout, stderr := p.run("validate")
	assert.Zero(t, code, stderr)
	assert.Contains(t, stdout, "database main: PostgreSQL ")
	assert.Contains(t, stdout, "default_transaction_isolation read committed")

	readOnly, err := url.Parse(dsn)
	require.NoError(t, err)
	readOnly.RawQuery += "&default_transaction_read_only=on&default_transaction_isolation=serializable"
	p = newPlace(t, "postgres", readOnly.String())
	for _, command := range []string{"validate", "relay"} {
		code, stdout, stderr = p.run(command)
		assert.Equal(t, exitFailed, code, command)
		assert.Contains(t, stderr, "default_transaction_read_only is on, so nothing can be claimed", command)
		assert.Contains(t, stderr, `default_transaction_isolation is `, command)
		assert.NotContains(t, stdout, "up to date", command)
	}
}

func TestValidateOffline(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "postgres", "postgres://127.0.0.1:1/nowhere?connect_timeout=5")
	code, stdout, _ := p.run("validate", "--offline")
	assert.Zero(t, code)
	assert.Contains(t, stdout, "the configuration is valid")
	code, _, stderr := p.run("validate")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, stderr, `fanout: database "main": postgres: cannot reach the database`)
}

// What a client would refuse is refused without connecting to anything, all of it at once; files
// that are where the relay runs are not looked for.
func TestValidateChecksSettingsOfClients(t *testing.T) {
	t.Parallel()
	dsn := filepath.Join(t.TempDir(), "outbox.db")
	p := newPlace(t, "sqlite", dsn)
	configure := func(brokers string) {
		require.NoError(t, os.WriteFile(p.config, []byte("databases: {main: {driver: sqlite, dsn: '"+dsn+"'}}\n"+
			"outbox: {external_brokers: [a, b, c]}\nbrokers:\n  default: {type: redis, url: 'redis://127.0.0.1:1'}\n"+brokers), 0o600))
	}
	configure(`  a: {type: webhook, url: "https://10.0.0.1/hooks", secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw]}
  b: {type: kafka, bootstrap_servers: "one:9092,two:99999"}
  c: {type: nats, url: "nats://one,nats://two:99999", max_message_bytes: 1000}
`)
	for _, command := range [][]string{{"validate", "--offline"}, {"validate"}, {"relay"}} {
		code, stdout, stderr := p.run(command...)
		assert.Equal(t, exitUsage, code, command)
		assert.NotContains(t, stdout, "valid")
		assert.Contains(t, stderr, "brokers.a")
		assert.Contains(t, stderr, "the address 10.0.0.1 is not public")
		assert.Contains(t, stderr, "brokers.b")
		assert.Contains(t, stderr, "brokers.c")
		assert.Contains(t, stderr, `max_message_bytes: is "1000"`)
	}
	configure(`  a: {type: webhook, url: "https://partner.example/hooks", secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw], tls: {ca_file: there.pem}}
  b: {type: kafka, bootstrap_servers: "one:9092,two:9092", tls: {}}
  c: {type: nats, url: "nats://one", credentials_file: there.creds}
`)
	code, stdout, stderr := p.run("validate", "--offline")
	assert.Zero(t, code, stderr)
	assert.Contains(t, stdout, "the configuration is valid")
}

// A configuration whose brokers another program delivers to is as good for the commands that
// deliver nothing.
func TestBrokersOfOtherPrograms(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "sqlite", filepath.Join(t.TempDir(), "outbox.db"))
	source := "databases: {main: {driver: sqlite, dsn: '" + filepath.Join(t.TempDir(), "outbox.db") + "'}}\n" +
		"outbox: {external_brokers: [bus]}\nbrokers: {default: {type: memory}, bus: {type: sqs, url: 'sqs://h'}}\n"
	require.NoError(t, os.WriteFile(p.config, []byte(source), 0o600))
	p.migrate()

	code, stdout, stderr := p.run("validate")
	assert.Zero(t, code)
	assert.Contains(t, stdout, "broker default: reached\n")
	assert.Contains(t, stderr, `brokers.bus.type: "sqs" is not linked by this program, so the settings of the connection are not checked`)
	code, stdout, _ = p.run("broker", "pause", "bus")
	assert.Zero(t, code)
	assert.Equal(t, "main: broker bus is paused\n", stdout)
	code, stdout, _ = p.run("status")
	assert.Zero(t, code)
	assert.Contains(t, stdout, "bus (paused)")

	code, _, stderr = p.run("relay")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, stderr, `brokers.bus: this command cannot deliver to type "sqs", only to redis, rabbitmq, webhook, memory, pubsub, nats, kafka: run the program that links it`)
}

// What a relay starts in spite of is a failure for those who want it so: a deployment, say.
func TestValidateStrictly(t *testing.T) {
	t.Parallel()
	dsn := filepath.Join(t.TempDir(), "outbox.db")
	p := newPlace(t, "sqlite", dsn)
	p.migrate()
	for want, broker := range map[string]string{
		"broker default cannot be reached": "{type: redis, url: 'redis://127.0.0.1:1'}",
		"brokers.default.type":             "{type: carrier_pigeon, url: x}",
	} {
		require.NoError(t, os.WriteFile(p.config, []byte("databases: {main: {driver: sqlite, dsn: '"+dsn+"'}}\nbrokers: {default: "+broker+"}\n"), 0o600))
		code, _, stderr := p.run("validate")
		assert.Zero(t, code, stderr)
		assert.Regexp(t, "warning: .*"+want, stderr)
		code, _, stderr = p.run("validate", "--strict")
		assert.Equal(t, exitFailed, code)
		assert.Regexp(t, "warning: .*"+want, stderr)
		assert.Contains(t, stderr, "--strict was given")
	}
	require.NoError(t, os.WriteFile(p.config, []byte("databases: {main: {driver: sqlite, dsn: '"+dsn+"'}}\noutbox: {external_brokers: []}\nbrokers: {default: {type: redis, url: 'redis://127.0.0.1:1'}}\n"), 0o600))
	code, _, stderr := p.run("validate", "--strict", "--offline")
	assert.Zero(t, code, stderr)
}

// A topic that is missing is found before the first message waits for it: of rows, of the
// configuration, and where one asks for it.
func TestValidateDestinations(t *testing.T) {
	t.Parallel()
	fake := pstest.NewServer()
	t.Cleanup(func() { require.NoError(t, fake.Close()) })
	for _, topic := range []string{"ordering.order", "acme-orders"} {
		_, err := fake.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: "projects/acme/topics/" + topic})
		require.NoError(t, err)
	}
	dsn := filepath.Join(t.TempDir(), "outbox.db")
	p, exec := newPlace(t, "sqlite", dsn), openSQLite(t, dsn)
	p.migrate()
	configure := func(partner string) {
		require.NoError(t, os.WriteFile(p.config, []byte("databases: {main: {driver: sqlite, dsn: '"+dsn+"'}}\noutbox: {external_brokers: [partner]}\nbrokers:\n"+
			"  default: {type: pubsub, project: acme, endpoint: '"+fake.Addr+"'}\n"+
			"  partner: {type: pubsub, project: acme, endpoint: '"+fake.Addr+"', destination: '"+partner+"'}\n"), 0o600))
	}
	insert := func(n int, status, stream string) {
		exec(fmt.Sprintf(`INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload, status, published_at, finished_at)
			SELECT '01a1fd9d-d6b8-7eca-9afc-e5aa4aba8%03d', 'default', '%s', 't', '{}', status, at, at
			  FROM (SELECT '%s' AS status, iif('%[3]s' = 'published', 1790000000000000, NULL) AS at)`, n, stream, status))
	}
	configure("acme-orders")
	insert(1, "published", "ordering::order")
	code, stdout, stderr := p.run("validate", "--strict")
	assert.Zero(t, code, stderr)
	assert.Contains(t, stdout, "broker default: 1 of 1 known destinations: nothing in the way\n")
	assert.Contains(t, stdout, "broker partner: 1 of 1 known destinations: nothing in the way\n")

	code, _, stderr = p.run("validate", "--strict", "--destination", "default=ordering::cart")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, stderr, `warning: broker default: destination "ordering::cart" is unavailable, its messages would wait: `)
	assert.Contains(t, stderr, "create the topic")

	insert(2, "pending", "shipping::parcel")
	configure("acme-misspelt")
	code, stdout, stderr = p.run("validate")
	assert.Zero(t, code, "a relay starts in spite of it")
	assert.Contains(t, stderr, `warning: broker default: destination "shipping::parcel" is unavailable`)
	assert.Contains(t, stderr, `warning: broker partner: destination "acme-misspelt" is unavailable`)
	assert.Contains(t, stdout, "broker default: 1 of 2 known destinations: nothing in the way\n")

	for _, bad := range []string{"ordering::cart", "nobody=ordering::cart", "default="} {
		code, _, stderr = p.run("validate", "--offline", "--destination", bad)
		assert.Equal(t, exitUsage, code)
		assert.Contains(t, stderr, `--destination "`+bad+`": write BROKER=NAME, where the brokers are ["default" "partner"]`)
	}
}

func TestNoConfiguration(t *testing.T) {
	t.Parallel()
	p := &place{T: t, config: filepath.Join(t.TempDir(), "none.yaml")}
	code, _, stderr := p.run("status")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, stderr, "none.yaml: no such file or directory: name the file with --config")
}

// With several databases every error has to say whose it is.
func TestErrorsNameTheDatabase(t *testing.T) {
	t.Parallel()
	dsn := filepath.Join(t.TempDir(), "outbox.db")
	p := newPlace(t, "sqlite", dsn)
	code, _, stderr := p.run("status")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, stderr, `fanout: database "main": sqlite: read the overview of outbox_messages: SQL logic error: no such table: outbox_messages`)
	assert.Contains(t, stderr, `: the outbox schema is not up to date: run "fanout migrate"`)

	openSQLite(t, dsn)("CREATE VIEW outbox_messages AS SELECT 1 AS id")
	code, _, stderr = p.run("migrate")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, stderr, `fanout: database "main": sqlite: `)
}

// Commands that read and repair need no credentials of brokers; a relay is told what is missing. No
// value is shown.
func TestUnsetVariables(t *testing.T) {
	t.Parallel()
	s := newShop(t, "sqlite", filepath.Join(t.TempDir(), "outbox.db"))
	for _, args := range []string{"status", "migrate", "messages list", "messages failures", "messages blocked", "workers", "audit", "purge --dry-run", "broker resume default"} {
		s.does(strings.Fields(args)...)
	}
	for _, args := range []string{"validate --offline", "validate", "relay"} {
		code, _, stderr := s.run(strings.Fields(args)...)
		assert.Equal(t, exitUsage, code)
		assert.Contains(t, stderr, "environment variable FANOUT_NOT_SET_URL is not set")
	}
}
