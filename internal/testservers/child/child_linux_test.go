package child_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testservers/child"
)

// parentVariable makes this test binary play the parent that is killed.
const parentVariable = "FANOUT_CHILD_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentVariable) == "" {
		os.Exit(m.Run())
	}
	cmd := exec.CommandContext(context.Background(), "sleep", "600")
	cmd.Stdout = os.Stdout // holds the test's pipe open as long as it lives
	if _, err := child.Start(cmd); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	select {}
}

func TestChildDiesWithAKilledParent(t *testing.T) {
	t.Parallel()
	out, in, err := os.Pipe()
	require.NoError(t, err)
	parent := exec.CommandContext(t.Context(), os.Args[0])
	parent.Env = append(os.Environ(), parentVariable+"=1")
	parent.Stdout = in
	require.NoError(t, parent.Start())
	require.NoError(t, in.Close())

	reader := bufio.NewReader(out)
	line, err := reader.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	require.NoError(t, parent.Process.Kill())
	require.Error(t, parent.Wait())

	require.NoError(t, out.SetReadDeadline(time.Now().Add(patience)))
	_, err = io.ReadAll(reader)
	require.NoError(t, err, "the grandchild has not ended")
}
