package testservers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// kafkaHere skips a test where there is no Kafka to start.
func kafkaHere(t *testing.T) (libs string) {
	t.Helper()
	needAll(t)
	libs, found := findKafka(t.Context())
	if !found {
		t.Skip(Missing(KafkaLibVariable))
	}
	return libs
}

func TestLaunchKafka(t *testing.T) {
	libs := kafkaHere(t)
	t.Setenv("TMPDIR", worldTempDir(t))
	server, err := launchKafka(t.Context(), libs)
	require.NoError(t, err)
	release, err := probeKafka(t.Context(), "127.0.0.1:1,"+server.URL)
	require.NoError(t, err)
	require.Contains(t, server.Version, release)
	require.NoError(t, server.stop())
	_, err = probeKafka(t.Context(), server.URL)
	require.Error(t, err, "the server is gone")
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left, "and its files with it")
}

// A cluster goes on without one of its nodes, which is a member again when it is back. What it keeps is
// tested where its client is linked. Clients of a further listener are told the addresses that it has for
// them.
func TestOwnKafkaCluster(t *testing.T) {
	t.Parallel()
	kafkaHere(t)
	doors, want := []string{}, map[int32]string{}
	own, err := OwnKafkaCluster(t.Context(), 3, KafkaListener{Name: "RELAY_0", Advertise: func(node int, address string) (string, error) {
		doors = append(doors, address)
		want[int32(node)] = fmt.Sprintf("127.0.0.1:%d", node) // of a proxy, say
		return want[int32(node)], nil
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Close()) })
	members := func() int {
		var most map[int32]string
		for _, node := range own.Nodes {
			if _, ids, err := kafkaMembers(t.Context(), node.URL); err == nil && len(ids) > len(most) {
				most = ids
			}
		}
		return len(most)
	}
	become := func(n int) {
		require.NoError(t, awaitReady(t.Context(), nil, func(context.Context) error {
			if members() != n {
				return errors.New("not yet")
			}
			return nil
		}))
	}
	become(3)
	for _, door := range doors {
		_, told, err := kafkaMembers(t.Context(), door)
		require.NoError(t, err)
		require.Equal(t, want, told)
	}
	require.NoError(t, own.Nodes[0].End(syscall.SIGKILL, patience))
	become(2)
	require.NoError(t, own.Nodes[0].Start(t.Context()))
	become(3)
}

func TestFindKafka(t *testing.T) {
	dir := t.TempDir()
	require.Empty(t, jarVersion(dir))
	for _, name := range []string{"kafka_2.13-4.1.1-test.jar", "kafka_2.13-4.1.1.jar", "kafka-clients-4.1.0.jar"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	require.Equal(t, "4.1.1", jarVersion(dir))
	t.Setenv("JAVA_HOME", dir)
	t.Setenv(KafkaLibVariable, dir)
	_, found := findKafka(t.Context())
	require.False(t, found, "there is no Java")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o700))
	for says, right := range map[string]bool{`openjdk version "17.0.15" 2025`: true, `java version "1.8.0_402"`: false, "java 21": false, `openjdk version "21-ea"`: true} {
		java := filepath.Join(dir, "bin", "java")
		require.NoError(t, os.WriteFile(java, []byte("#!/bin/sh\necho '"+says+"' >&2\n"), 0o700))
		_, found = findKafka(t.Context())
		require.Equal(t, right, found, says)
	}
}

// A server that answers something else is none.
func TestKafkaAnswer(t *testing.T) {
	t.Parallel()
	for _, said := range []string{"", "HTTP/1.1 400 Bad Request\r\n\r\n", "\x00\x00\x00\x02ab", "\x00\x00\x00\x09abcd"} {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Read(make([]byte, 100))
				_, _ = conn.Write([]byte(said))
				_ = conn.Close()
			}
		}()
		_, err = probeKafka(t.Context(), listener.Addr().String())
		require.Error(t, err, "%q", said)
		_, _, err = kafkaMembers(t.Context(), listener.Addr().String())
		require.Error(t, err, "%q", said)
	}
	a := &kafkaAnswer{rest: []byte{0xff, 0xff}}
	a.text()
	require.Error(t, a.err)
}
