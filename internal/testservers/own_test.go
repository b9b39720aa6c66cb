package testservers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// patience is only used up by a test that fails.
const patience = 3 * time.Minute

// What a server of one's own has acknowledged is there after each way to end it, at the same
// address.
func TestOwnPostgres(t *testing.T) {
	t.Parallel()
	own, err := OwnPostgres(t.Context(), "max_wal_size=64MB")
	if errors.Is(err, ErrNoBinary) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Close()) })
	do := func(statement string) (n int) {
		require.NoError(t, withPostgres(t.Context(), own.URL, func(conn *pgx.Conn) error {
			return conn.QueryRow(t.Context(), statement).Scan(&n)
		}))
		return n
	}
	do("WITH made AS (SELECT 1) SELECT count(*) FROM made")
	require.NoError(t, withPostgres(t.Context(), own.URL, func(conn *pgx.Conn) error {
		_, err := conn.Exec(t.Context(), "CREATE TABLE kept (n int)")
		return err
	}))
	for n, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL} {
		do("WITH added AS (INSERT INTO kept VALUES (1) RETURNING n) SELECT count(*) FROM added")
		require.NoError(t, own.End(signal, patience))
		_, err := pgx.Connect(t.Context(), own.URL)
		require.Error(t, err, signal)
		require.NoError(t, own.Start(t.Context()), signal)
		require.Equal(t, n+1, do("SELECT count(*) FROM kept"), signal)
	}
}

func TestOwnRedis(t *testing.T) {
	t.Parallel()
	own, err := OwnRedis(t.Context())
	if errors.Is(err, ErrNoBinary) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Close()) })
	options, err := goredis.ParseURL(own.URL)
	require.NoError(t, err)
	for n, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		client := goredis.NewClient(options)
		kept, err := client.Incr(t.Context(), "kept").Result()
		require.NoError(t, err)
		require.EqualValues(t, n+1, kept)
		require.NoError(t, client.Close())
		require.NoError(t, own.End(signal, patience))
		<-own.Done()
		require.NoError(t, own.Start(t.Context()), signal)
	}
}

// needAll is testenv.NeedAll, whose package imports this one.
func needAll(t *testing.T) {
	t.Helper()
	if os.Getenv("FANOUT_TEST_SPREAD") == "1" {
		t.Skip("make test-all runs it")
	}
}

// What it keeps is tested where its driver is linked.
func TestOwnMySQL(t *testing.T) {
	t.Parallel()
	needAll(t)
	own, err := OwnMySQL(t.Context(), "--log-bin=log")
	if errors.Is(err, ErrNoBinary) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Close()) })
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		version, err := probeMySQL(t.Context(), own.URL)
		require.NoError(t, err)
		require.Equal(t, own.Version, version)
		require.NoError(t, own.End(signal, patience))
		_, err = probeMySQL(t.Context(), own.URL)
		require.Error(t, err, signal)
		require.NoError(t, own.Start(t.Context()), signal)
	}
}

// What it keeps is tested where its client is linked.
func TestOwnRabbitMQ(t *testing.T) {
	t.Parallel()
	needAll(t)
	own, err := OwnRabbitMQ(t.Context(), "heartbeat = 17")
	if errors.Is(err, ErrNoBinary) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Close()) })
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		version, err := probeRabbitMQ(t.Context(), own.URL)
		require.NoError(t, err)
		require.Equal(t, own.Version, version)
		said, err := own.Eval(t.Context(), "application:get_env(rabbit, heartbeat).")
		require.NoError(t, err)
		require.Equal(t, "{ok,17}", strings.ReplaceAll(said, " ", ""))
		require.NoError(t, own.End(signal, patience))
		_, err = probeRabbitMQ(t.Context(), own.URL)
		require.Error(t, err, signal)
		_, err = own.Eval(t.Context(), "1.")
		require.Error(t, err, signal)
		require.NoError(t, own.Start(t.Context()), signal)
	}
}

// What they keep is tested where their client is linked.
func TestOwnNATS(t *testing.T) {
	t.Parallel()
	nodes, err := OwnNATSCluster(t.Context(), 3)
	if errors.Is(err, ErrNoBinary) {
		t.Skip(err)
	}
	require.NoError(t, err)
	one, err := OwnNATS(t.Context())
	require.NoError(t, err)
	for _, own := range append(nodes, one) {
		t.Cleanup(func() { require.NoError(t, own.Close()) })
		for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			info, err := natsInfo(t.Context(), own.Address())
			require.NoError(t, err)
			require.Equal(t, own.Version, info.Version)
			require.NoError(t, own.End(signal, patience))
			_, err = natsInfo(t.Context(), own.Address())
			require.Error(t, err, signal)
			require.NoError(t, own.Start(t.Context()), signal)
		}
	}
}

// A program of the caller's is told where its data and its port are, the same ones each time.
func TestOwnProgram(t *testing.T) {
	t.Parallel()
	bin, found := findRedis(t.Context())
	if !found {
		t.Skip(ErrNoBinary)
	}
	program := filepath.Join(t.TempDir(), "program")
	script := "#!/bin/sh\nmkdir -p $DATA && exec " + bin + " --bind 127.0.0.1 --port $PORT --dir $DATA --appendonly yes\n"
	require.NoError(t, os.WriteFile(program, []byte(script), 0o700))
	own, err := OwnProgram(t.Context(), "program", program, func(dir, port string) []string { return []string{"DATA=" + dir, "PORT=" + port} },
		func(ctx context.Context, address string) error {
			_, err := redisInfo(ctx, redisURL(address))
			return err
		})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Close()) })
	client := goredis.NewClient(&goredis.Options{Addr: own.Address()})
	require.NoError(t, client.Set(t.Context(), "kept", 1, 0).Err())
	require.NoError(t, client.Close())
	require.NoError(t, own.End(syscall.SIGTERM, patience))
	require.NoError(t, own.Start(t.Context()))
	client = goredis.NewClient(&goredis.Options{Addr: own.Address()})
	require.Equal(t, "1", client.Get(t.Context(), "kept").Val())
	require.NoError(t, client.Close())
}

func TestRabbitMQGreeting(t *testing.T) {
	t.Parallel()
	const said = "\x07versionS\x00\x00\x00\x063.10.8\x07productS\x00\x00\x00\x99x"
	require.Equal(t, "3.10.8", field([]byte(said), "version"))
	require.Empty(t, field([]byte(said), "product"), "it is cut off")
	require.Empty(t, field([]byte(said), "platform"))
	for _, malformed := range []string{"http://127.0.0.1", "127.0.0.1:5672", "amqp://user:hush@127.0.0.1:x/"} {
		_, err := probeRabbitMQ(t.Context(), malformed)
		require.Error(t, err, malformed)
		require.NotContains(t, err.Error(), "hush")
	}
}

// A server that does not come back is an error when the time for it has passed.
func TestOwnDoesNotComeBack(t *testing.T) {
	t.Parallel()
	own, err := OwnRedis(t.Context())
	if errors.Is(err, ErrNoBinary) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Close()) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, own.End(syscall.SIGKILL, patience))
	require.Error(t, own.Start(ctx))
}
