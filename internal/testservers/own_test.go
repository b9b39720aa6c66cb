package testservers

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// patience is only used up by a test that fails.
const patience = 3 * time.Minute

// Each server is there again, at the same address, after each way to end it, and leaves nothing.
func TestOwn(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(context.Context) (*Own, error){
		"PostgreSQL": func(ctx context.Context) (*Own, error) { return OwnPostgres(ctx, "max_wal_size=64MB") },
		"Redis":      OwnRedis,
		"NATS":       func(ctx context.Context) (*Own, error) { return OwnNATS(ctx) },
		"MySQL":      func(ctx context.Context) (*Own, error) { return OwnMySQL(ctx, "--log-bin=log") },
		"RabbitMQ": func(ctx context.Context) (*Own, error) {
			node, err := OwnRabbitMQ(ctx)
			if err != nil {
				return nil, err
			}
			return node.Own, nil
		},
		"Kafka": OwnKafka,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "RabbitMQ" || name == "Kafka" || name == "MySQL" {
				needLong(t)
			}
			own, err := start(t.Context())
			if errors.Is(err, ErrNoBinary) {
				t.Skip(err)
			}
			require.NoError(t, err)
			t.Cleanup(func() {
				require.NoError(t, own.Close())
				require.NoDirExists(t, own.files.dir)
			})
			require.Equal(t, name, own.Name)
			require.Regexp(t, `^\d+\.\d+`, own.Version)
			for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
				require.NoError(t, listens(t.Context(), own), signal)
				require.NoError(t, own.End(signal, patience))
				require.Error(t, listens(t.Context(), own), signal)
				require.NoError(t, own.Start(t.Context()), signal)
			}
		})
	}
}

// needLong is testenv.NeedLong, whose package imports this one.
func needLong(t *testing.T) {
	t.Helper()
	if os.Getenv("FANOUT_TEST_LONG") != "1" {
		t.Skip("takes long: make test-all runs it")
	}
}

func TestReplicated(t *testing.T) {
	t.Parallel()
	needLong(t) // TestFailover of the integration tests uses all of it
	r, err := StartReplicated(t.Context(), func(primary string) string { return primary })
	if errors.Is(err, ErrNoReplication) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	require.NoError(t, r.KillPrimary())
	require.NoError(t, r.Promote(t.Context()))
	conn, err := pgx.Connect(t.Context(), r.StandbyURL)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), "CREATE TABLE written (n int)")
	require.NoError(t, err)
}

func TestClusters(t *testing.T) {
	t.Parallel()
	needLong(t)
	nodes, err := OwnNATSCluster(t.Context(), 3)
	if errors.Is(err, ErrNoBinary) {
		t.Skip(err)
	}
	require.NoError(t, err)
	require.NoError(t, closeAll(nodes))
	var doors []string
	cluster, err := OwnKafkaCluster(t.Context(), 3, KafkaListener{Name: "RELAY_0", Advertise: func(_ int, address string) (string, error) {
		doors = append(doors, address)
		return address, nil
	}})
	if errors.Is(err, ErrNoBinary) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })
	require.Len(t, doors, 3)
	require.Len(t, strings.Split(cluster.URL(), ","), 3)
	require.NoError(t, cluster.Nodes[0].End(syscall.SIGKILL, patience))
	require.NoError(t, cluster.Nodes[0].Start(t.Context()))
}

// A node takes the settings of the caller, and evaluates expressions while it runs.
func TestOwnRabbitMQ(t *testing.T) {
	t.Parallel()
	needLong(t)
	own, err := OwnRabbitMQ(t.Context(), "heartbeat = 17")
	if errors.Is(err, ErrNoBinary) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Close()) })
	said, err := own.Eval(t.Context(), "application:get_env(rabbit, heartbeat).")
	require.NoError(t, err)
	require.Equal(t, "{ok,17}", strings.ReplaceAll(said, " ", ""))
	require.NoError(t, own.End(syscall.SIGTERM, patience))
	_, err = own.Eval(t.Context(), "1.")
	require.Error(t, err)
}

// A program of the caller's is told where its data and its port are, the same ones each time.
func TestOwnProgram(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\necho $PORT >>$DATA\nexec cat\n"), 0o700))
	var data string
	own, err := OwnProgram(t.Context(), "program", program, func(dir, port string) []string {
		data = dir
		return []string{"DATA=" + dir, "PORT=" + port}
	}, func(_ context.Context, address string) error {
		said, err := os.ReadFile(data)
		if err == nil && !strings.HasSuffix(address, ":"+strings.TrimSpace(string(said))) {
			err = errRefused
		}
		return err
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Close()) })
	require.NoError(t, own.End(syscall.SIGTERM, patience))
	require.NoError(t, os.Remove(data))
	require.NoError(t, own.Start(t.Context()))
}

// A server that ends while it starts is tried at other ports; its log says why it ended.
func TestServerThatDoesNotStart(t *testing.T) {
	t.Parallel()
	files, err := newWorkspace("test", false)
	require.NoError(t, err)
	ports := map[string]bool{}
	own := &Own{Name: "Thing", files: files, ready: logs("is ready"), command: func(port string) *exec.Cmd {
		ports[port] = true
		return files.command(t.Context(), "sh", "-c", "echo address already in use; exit 1")
	}}
	_, err = own.begin(t.Context())
	require.ErrorIs(t, err, errExited)
	require.ErrorContains(t, err, "address already in use")
	require.Len(t, ports, launchAttempts)
	require.NoDirExists(t, files.dir)
}

var errRefused = errors.New("connection refused")

func TestAwaitReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		err := awaitReady(t.Context(), nil, func(context.Context) error { return errRefused })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errRefused, "the reason is not lost")
		require.Equal(t, readyPatience, time.Since(start))

		start, attempts := time.Now(), 0
		require.NoError(t, awaitReady(t.Context(), nil, func(ctx context.Context) error {
			if attempts++; attempts < 9 {
				return errRefused
			}
			deadline, _ := ctx.Deadline()
			require.Equal(t, attemptTimeout, time.Until(deadline))
			return nil
		}))
		require.Equal(t, 1630*time.Millisecond, time.Since(start), "10 + 20 + ... + 320 ms, then twice the longest pause")
	})
}

func TestServerEnviron(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"HOME=/home/me", "PATH=/bin", "LC_ALL=C"},
		serverEnviron([]string{"PGPORT=1", "HOME=/home/me", "LC_ALL=fr_FR", "LANG=de_DE", "PGDATA=/x", "PATH=/bin"}))
}
