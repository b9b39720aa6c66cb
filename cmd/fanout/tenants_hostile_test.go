package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stranger is a server that an entry of the list names. It keeps what clients send.
type stranger struct {
	net.Listener

	mu  sync.Mutex
	got bytes.Buffer
}

func (s *stranger) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.Write(p)
}

// heard is what it got since the last time.
func (s *stranger) heard() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.got.Reset()
	return s.got.String()
}

// pose serves each client with lines: one is sent when it has said something.
func pose(t *testing.T, greeting string, answer func(said []byte) string) *stranger {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &stranger{Listener: listener}
	var clients sync.WaitGroup
	clients.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			clients.Go(func() {
				defer client.Close()
				_, _ = io.WriteString(client, greeting)
				said := make([]byte, 4096)
				for n, err := client.Read(said); err == nil; n, err = client.Read(said) {
					_, _ = s.Write(said[:n])
					_, _ = io.WriteString(client, answer(said[:n]))
				}
			})
		}
	})
	t.Cleanup(func() { _ = listener.Close(); clients.Wait() })
	return s
}

// asPostgres poses as a server without TLS that asks for the password.
func asPostgres(said []byte) string {
	switch {
	case len(said) == 8:
		return "N"
	case said[0] == 'p':
		return "E\x00\x00\x00\x13SFATAL\x00C28000\x00\x00"
	}
	return "R\x00\x00\x00\x08\x00\x00\x00\x03"
}

// asMySQL poses as a server that answers the first statement by asking for a file of the client's.
func asMySQL(file string) (greeting string, answer func([]byte) string) {
	packet := func(number byte, text string) string { return string([]byte{byte(len(text)), 0, 0, number}) + text }
	greeting = packet(0, "\n8.0.0\x00\x01\x00\x00\x00saltsalt\x00\x88\x82\x21\x02\x00\x08\x00\x15"+strings.Repeat("\x00", 10)+"saltsaltsalt\x00mysql_native_password\x00")
	return greeting, func(said []byte) string {
		switch {
		case said[3] == 1: // the login
			return packet(2, "\x00\x00\x00\x02\x00\x00\x00")
		case len(said) > 4 && said[4] == 3: // a statement
			return packet(1, "\xfb"+file)
		}
		return packet(4, "\xff\x00\x04#HY000no")
	}
}

// Whoever writes the list of tenants gets no password of the process, no file, and writes none: an entry
// that asks for it is refused, and costs no other.
func TestHostileTenants(t *testing.T) { //nolint:paralleltest // it sets the environment
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	for name, value := range map[string]string{"PGPASSWORD": "s3cret-1", "PGOPTIONS": "-c a.b=s3cret-2", "PGTZ": "s3cret-3", "PGAPPNAME": "s3cret-4", "OTHER_SECRET": "s3cret-5"} {
		t.Setenv(name, value)
	}
	secret, written, list := filepath.Join(dir, "secret"), filepath.Join(dir, "written"), filepath.Join(dir, "tenants.yaml")
	require.NoError(t, os.WriteFile(secret, []byte("s3cret-6"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".pgpass"), []byte("*:*:*:*:s3cret-7"), 0o600))
	postgres := pose(t, "", asPostgres)
	greeting, answer := asMySQL(secret)
	mysql := pose(t, greeting, answer)
	at := postgres.Addr().(*net.TCPAddr)

	p := &place{T: t, config: filepath.Join(dir, "fanout.yaml")}
	require.NoError(t, os.WriteFile(p.config, fmt.Appendf(nil, "tenants: {file: '%s'}\nbrokers: {default: {type: memory}}\n", list), 0o600))
	for name, entry := range map[string]struct {
		driver, dsn, says string
		heard             bool // the server hears from the client
	}{
		"encrypted": {"postgres", fmt.Sprintf("postgres://fanout@%s/db", at), "refused TLS", true},
		"plain":     {"postgres", fmt.Sprintf("postgres://fanout@%s/db?sslmode=disable", at), "28000", true},
		"keywords":  {"postgres", fmt.Sprintf("host=127.0.0.1 port=%d user=fanout dbname=db sslmode=disable", at.Port), "28000", true},
		"fallback":  {"postgres", fmt.Sprintf("postgres://fanout@%s/db?sslmode=prefer", at), "sslmode", false},
		"empty":     {"postgres", fmt.Sprintf("postgres://fanout@%s/db?sslmode=", at), "sslmode", false},
		"variable":  {"postgres", fmt.Sprintf("postgres://${OTHER_SECRET}@%s/db?sslmode=disable", at), "OTHER_SECRET", false},
		"passfile":  {"postgres", fmt.Sprintf("postgres://fanout@%s/db?sslmode=disable&passfile=%s/.pgpass", at, dir), `"passfile"`, false},
		"files":     {"mysql", fmt.Sprintf("fanout@tcp(%s)/db?tls=false&allowAllFiles=true", mysql.Addr()), `"allowAllFiles"`, false},
		"encrypts":  {"mysql", fmt.Sprintf("fanout@tcp(%s)/db", mysql.Addr()), "TLS", false},
		"attach":    {"sqlite", dir + "/acme.db?_pragma=busy_timeout(1)%3BATTACH DATABASE ''" + written + "'' AS a%3B CREATE TABLE a.b (c)", "a path alone", false},
		"made":      {"sqlite", written, "no such file", false},
	} {
		require.NoError(t, os.WriteFile(list, fmt.Appendf(nil, "%s: {driver: %s, dsn: '%s'}\n", name, entry.driver, entry.dsn), 0o600))
		code, stdout, stderr := p.run("status")
		assert.Equal(t, 1, code, name)
		assert.Contains(t, stderr, `"`+name+`": `, stdout)
		assert.Contains(t, stderr, entry.says, name)
		heard := postgres.heard() + mysql.heard()
		assert.Equal(t, entry.heard, heard != "", name)
		assert.NotContains(t, heard+stderr, "s3cret", name)
	}
	assert.NoFileExists(t, written)
}
