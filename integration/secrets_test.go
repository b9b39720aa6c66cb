package integration_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// The password of the tests below, in two halves: of one that was not escaped, a parser may take
// either for something else.
const (
	firstHalf  = "s3ntinel"
	secondHalf = "Pa55word"
	sentinel   = firstHalf + secondHalf
)

// assertNoSecret looks for the password, or a half of it, in plain, in base64 and in hexadecimal.
func assertNoSecret(t *testing.T, where, text string) {
	t.Helper()
	for _, secret := range []string{firstHalf, secondHalf} {
		assert.NotContains(t, strings.ToLower(text), strings.ToLower(secret), where)
		assert.NotContains(t, text, hex.EncodeToString([]byte(secret)), where)
		assert.NotContains(t, text, strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(secret)), "="), where)
	}
}

// refusing is a PostgreSQL server, as far as a client gets that has the wrong password.
func refusing(t *testing.T) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it returns at once
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			refuse(conn)
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); <-done })
	return listener.Addr().String()
}

func refuse(conn net.Conn) {
	defer conn.Close()
	server := pgproto3.NewBackend(conn, conn)
	for {
		message, err := server.ReceiveStartupMessage()
		if err != nil {
			return
		}
		if _, ok := message.(*pgproto3.SSLRequest); !ok {
			break
		}
		if _, err := conn.Write([]byte("N")); err != nil {
			return
		}
	}
	server.Send(&pgproto3.AuthenticationCleartextPassword{})
	if server.Flush() != nil || server.SetAuthType(pgproto3.AuthTypeCleartextPassword) != nil {
		return
	}
	if _, err := server.Receive(); err != nil { // the password
		return
	}
	server.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "28P01", Message: `password authentication failed for user "u"`})
	_ = server.Flush()
}

// Whatever is wrong with a connection string, no command says what its password is.
func TestNoCommandShowsTheDSN(t *testing.T) {
	t.Parallel()
	wrongPassword := refusing(t)
	for driver, sources := range map[string][]string{
		"postgres": {
			"postgres://u:{}@127.0.0.1:1/x",
			"postgres://u:{}@" + wrongPassword + "/x",
			"postgres://u:{}@" + wrongPassword + "/x?sslmode=require",
			"postgres://u:{}@127.0.0.1:port/x",
			"postgres://u:{/}@127.0.0.1:1/x",
			"postgres://u:{#}@127.0.0.1:1/x",
			"postgres://u:{?}@127.0.0.1:1/x",
			"postgres://u:{@}@127.0.0.1:1/x",
			"postgres://u:{%}@127.0.0.1:1/x",
			"postgres://u:12/{}@127.0.0.1:1/x",
			"postgres://u:12#{}@127.0.0.1:1/x",
			"postgres://u:12?{}@127.0.0.1:1/x",
			"postgres://127.0.0.1:1/x?user=u&password={}",
			"postgres://u:{}@127.0.0.1:1/x?pool_max_conns=many",
			"postgres://u:{}@127.0.0.1:1/x?sslmode=verify-full&sslrootcert=/does/not/exist",
			"postgres://u@127.0.0.1:1/x?sslmode=require&sslcert=/does/not/exist&sslkey=/does/not/exist&sslpassword={}",
			"host=127.0.0.1 port=1 user=u password={} dbname=x",
			"host=127.0.0.1 port=1 user=u password={ } dbname=x",
			"host=127.0.0.1 port=1 user=u password='{} dbname=x",
			"host=127.0.0.1 port=many user=u password={}",
			"host=127.0.0.1 port=1 user=u password={} sslmode=nonsense",
			"{}", "u:{}@127.0.0.1/x", "postgres:/u:{}@127.0.0.1:1/x",
		},
		"sqlserver": {
			"sqlserver://u:{}@127.0.0.1:1?database=x",
			"sqlserver://u:{}@127.0.0.1:port?database=x",
			"sqlserver://u:{/}@127.0.0.1:1?database=x",
			"sqlserver://u:{#}@127.0.0.1:1?database=x",
			"sqlserver://u:{?}@127.0.0.1:1?database=x",
			"sqlserver://u:{@}@127.0.0.1:1?database=x",
			"sqlserver://u:12/{}@127.0.0.1:1?database=x",
			"sqlserver://u:12#{}@127.0.0.1:1?database=x",
			"sqlserver://u:{}@127.0.0.1:1?encrypt=nonsense",
			"sqlserver://u:{}@127.0.0.1:1?certificate=/does/not/exist",
			"server=127.0.0.1;port=1;user id=u;password={};database=x",
			"server=127.0.0.1;port=many;user id=u;password={}",
			"server=127.0.0.1;port=1;user id=u;password={;}",
			"odbc:server=127.0.0.1;port=1;uid=u;pwd={{}",
			"{}", "u:{}@127.0.0.1",
		},
		"mysql": {
			"u:{}@tcp(127.0.0.1:1)/x",
			"u:{}@tcp(127.0.0.1:port)/x",
			"u:{/}@tcp(127.0.0.1:1)/x",
			"u:{@}@tcp(127.0.0.1:1)/x",
			"u:{?}@tcp(127.0.0.1:1)/x",
			"u:{%}@tcp(127.0.0.1:1)/x",
			"u:{}@tcp(127.0.0.1:1)x",
			"u:{}@tcp(127.0.0.1:1/x",
			"u:{}@127.0.0.1:1/x",
			"u:{}@nonsense(127.0.0.1:1)/x",
			"u:{}@tcp(127.0.0.1:1)/x?tls=nonsense",
			"u:{}@tcp(127.0.0.1:1)/x?timeout={}",
			"u:{}@tcp(127.0.0.1:1)/x?collation=big5_chinese_ci",
			"u:{}@tcp(127.0.0.1:1)/x?serverPubKey={}",
			"mysql://u:{}@127.0.0.1:1/x",
			"{}", "u:{}@127.0.0.1",
		},
		"sqlite": {
			"/does/not/exist/x.db?_pragma=key('{}')",
			"file:/does/not/exist/x.db?_pragma=key('{}')&mode=rw",
			"file:{TMP}/x.db?_pragma=key('{})",
			"file:{TMP}/x.db?_pragma=hexkey({})&_pragma=nonsense nonsense(1)",
			"file://u:{}@host/x.db",
		},
	} {
		for i, source := range sources {
			t.Run(driver+" "+source, func(t *testing.T) {
				t.Parallel()
				dsn := strings.ReplaceAll(source, "{TMP}", t.TempDir())
				dsn = strings.ReplaceAll(dsn, "{}", sentinel)
				for _, special := range []string{"/", "#", "?", "@", "%", " ", ";"} {
					dsn = strings.ReplaceAll(dsn, "{"+special+"}", firstHalf+special+secondHalf)
				}
				path := filepath.Join(t.TempDir(), "fanout.yaml")
				content := fmt.Sprintf("databases: {main: {driver: %s, dsn: %q}}\nbrokers: {default: {type: memory}}\n", driver, dsn)
				require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
				commands := [][]string{
					{"validate"},
					{"status"},
					{"messages", "list", "--json"},
					{"relay", "--log-level", "debug"},
					{"migrate"},
					{"broker", "pause", "default"},
					{"status", "--json"},
					{"messages", "requeue", "--broker", "default", "--json"},
					{"migrate", "--print"},
					{"relay", "--log-level", "debug", "--log-json"},
					{"purge", "--dry-run"},
				}
				if !testenv.Long() { // they open databases in one place, and a process costs a tenth of a second
					commands = [][]string{commands[i%len(commands)], commands[(i+3)%len(commands)]}
				}
				for _, args := range commands {
					if args[0] == "relay" && driver == "sqlite" {
						continue // one that opens runs on
					}
					said := run(t, append(args, "--config", path)...)
					assertNoSecret(t, strings.Join(args, " "), said.stdout+said.stderr)
				}
			})
		}
	}
}

// ownRedis starts a server with further arguments, and stops it with the test.
func ownRedis(t *testing.T, args ...string) (address string) {
	t.Helper()
	bin := os.Getenv("FANOUT_TEST_REDIS_BIN")
	if bin == "" {
		t.Skip("FANOUT_TEST_REDIS_BIN, the path of redis-server, is not set")
	}
	socket := filepath.Join(t.TempDir(), "redis.sock")
	server := exec.Command(bin, append([]string{"--port", "0", "--unixsocket", socket, "--save", "", "--dir", t.TempDir()}, args...)...) //nolint:noctx // killed below
	require.NoError(t, server.Start())
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	eventually(t, func() bool { _, err := os.Stat(socket); return err == nil })
	return socket
}

// Whatever a broker does not like about its URL, a relay at its most talkative, the rows, the list
// of instances and the other commands say nothing of the password.
func TestNoRelayShowsTheURL(t *testing.T) {
	t.Parallel()
	socket := func(server, user string) string { return "unix://" + user + ":" + sentinel + "@" + server }
	for name, url := range map[string]func(t *testing.T) string{
		"unreachable": func(*testing.T) string { return "redis://u:" + sentinel + "@127.0.0.1:1/0" },
		"no TLS": func(t *testing.T) string {
			return strings.Replace(testenv.Redis(t), "redis://", "rediss://u:"+sentinel+"@", 1)
		},
		"wrong password": func(t *testing.T) string { return socket(ownRedis(t, "--requirepass", "another"), "") },
		"wrong user":     func(t *testing.T) string { return socket(ownRedis(t, "--requirepass", "another"), "u") },
		"no such command": func(t *testing.T) string { // the server repeats what it was sent
			return socket(ownRedis(t, "--requirepass", "another", "--rename-command", "AUTH", "", "--rename-command", "HELLO", ""), "u")
		},
		"no right to log in": func(t *testing.T) string {
			return socket(ownRedis(t, "--requirepass", "another", "--rename-command", "HELLO", ""), "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(newPlace(t, outbox.Postgres))
			b.configure(fmt.Sprintf("outbox: {external_brokers: []}\nbrokers: {default: {type: redis, url: %q}}\n", url(t)))
			require.Zero(t, b.run("migrate").code)
			b.insert(1)
			validated := b.run("validate")
			assert.Contains(t, validated.stderr, "warning: broker default cannot be reached")
			assertNoSecret(t, "validate", validated.stdout+validated.stderr)

			var log bytes.Buffer
			relay := exec.Command(fanoutCommand(), "relay", "--config", b.config, "--log-level", "debug") //nolint:noctx // it is stopped by a signal
			relay.Stdout, relay.Stderr = &log, &log
			require.NoError(t, relay.Start())
			t.Cleanup(func() { _ = relay.Process.Kill() })
			eventually(t, func() bool { return b.count("last_error IS NOT NULL") == 1 })
			for _, args := range [][]string{{"status"}, {"status", "--json"}} {
				said := b.run(args...)
				assert.Contains(t, said.stdout, "unavailable", args)
				assertNoSecret(t, args[len(args)-1], said.stdout+said.stderr)
			}
			var rows string
			for _, table := range []string{"outbox_messages", "outbox_messages_instances"} {
				require.NoError(t, b.db.QueryRowContext(t.Context(), "SELECT json_agg(t)::text FROM "+table+" AS t").Scan(&rows))
				assertNoSecret(t, table, rows)
			}
			require.NoError(t, relay.Process.Signal(syscall.SIGTERM))
			_ = relay.Wait()
			assert.Contains(t, log.String(), "relay stopped")
			assertNoSecret(t, "log", log.String())
		})
	}
}

// A key file for Google's services that is no key file is not quoted either.
func TestNoCommandShowsAKey(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{
		"no JSON":  sentinel,
		"no type":  `{"private_key": "` + sentinel + `"}`,
		"bad type": `{"type": "nonsense", "private_key": "` + sentinel + `"}`,
		"no key":   `{"type": "service_account", "client_email": "u@acme", "private_key": "` + sentinel + `", "token_uri": "http://127.0.0.1:1/"}`,
		"no PEM": `{"type": "service_account", "client_email": "u@acme", "private_key": "-----BEGIN PRIVATE KEY-----\n` + sentinel +
			`\n-----END PRIVATE KEY-----\n", "token_uri": "http://127.0.0.1:1/"}`,
		"refresh token": `{"type": "authorized_user", "client_id": "c", "client_secret": "` + sentinel + `", "refresh_token": "` + sentinel + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file, path := filepath.Join(dir, "key.json"), filepath.Join(dir, "fanout.yaml")
			require.NoError(t, os.WriteFile(file, []byte(key), 0o600))
			require.NoError(t, os.WriteFile(path, []byte(`
databases: {main: {driver: sqlite, dsn: "`+filepath.Join(dir, "x.db")+`"}}
brokers: {default: {type: pubsub, project: acme, endpoint: "localhost:443"}}
`), 0o600))
			require.Zero(t, run(t, "migrate", "--config", path).code)
			validate := exec.CommandContext(t.Context(), fanoutCommand(), "validate", "--config", path)
			validate.Env = append(os.Environ(), "GOOGLE_APPLICATION_CREDENTIALS="+file)
			said, _ := validate.CombinedOutput()
			assert.Contains(t, string(said), "broker")
			assert.NotContains(t, string(said), "broker default: reached")
			assertNoSecret(t, "validate", string(said))
		})
	}
}

// Nor is a key that signs for partners, whether it can be read or not.
func TestNoCommandShowsASigningKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ entry, says string }{
		"a key":        {"2026-11: whsec_" + base64.StdEncoding.EncodeToString([]byte(sentinel+sentinel)), ""},
		"no key":       {"2026-11: " + sentinel, "brokers.default.sign.2026-11: the key is not whsec_"},
		"bad base64":   {"2026-11: whsk_" + sentinel, "brokers.default.sign.2026-11: the key is not whsec_"},
		"as its id":    {"whsec_" + sentinel + ": 2026-11", "brokers.default.sign: a key stands where its id should be"},
		"no PEM":       {`2026-11: "-----BEGIN PRIVATE KEY-----\n` + sentinel + `\n-----END PRIVATE KEY-----"`, "brokers.default.sign.2026-11: the"},
		"not a key id": {`"` + sentinel + ` x": 2026-11`, "brokers.default.sign: a key id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "fanout.yaml")
			require.NoError(t, os.WriteFile(path, []byte(`
databases: {main: {driver: sqlite, dsn: "`+filepath.Join(dir, "x.db")+`"}}
brokers: {default: {type: memory, sign: {`+c.entry+`}}}
`), 0o600))
			for _, args := range [][]string{{"migrate"}, {"validate"}, {"status", "--json"}} {
				said := run(t, append(args, "--config", path)...)
				assert.Contains(t, said.stderr, c.says)
				assertNoSecret(t, args[0], said.stdout+said.stderr)
			}
		})
	}
}
