package testservers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorm-fanout/fanout/internal/testservers/child"
)

const logTailBytes = 4 << 10

// workspace is the temporary directory of one server: its data, its log, its working directory.
type workspace struct {
	dir     string
	account *account       // whose processes work here; nil: our own
	daemons []*child.Child // what the server needs beside it; they end when the workspace is removed
}

// newWorkspace creates a directory for the server called name, owned by who.
func newWorkspace(name string, who *account) (*workspace, error) {
	parent := os.TempDir()
	if os.Getenv(fsyncVariable) == "off" && inMemory(memoryDir) {
		parent = memoryDir
	}
	if who != nil {
		var err error
		if parent, err = traversable(parent, "/tmp", "/var/tmp"); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp(parent, "fanout-"+name+"-")
	if err != nil {
		return nil, fmt.Errorf("testservers: directory for %s: %w", name, err)
	}
	if who != nil {
		if err := os.Chown(dir, int(who.uid), int(who.gid)); err != nil {
			return nil, errors.Join(fmt.Errorf("testservers: directory for %s: %w", name, err), os.RemoveAll(dir))
		}
	}
	return &workspace{dir: dir, account: who}, nil
}

// memoryDir is where Linux keeps files in memory. A server waits there for no disk: the thousands of
// statements with which tests make and remove tables take a sixth of the time on MariaDB. A killed
// process loses nothing by it.
const (
	memoryDir  = "/dev/shm"
	memoryRoom = 4 << 30 // bytes that must be free: all servers of a run take less than half of it
)

// traversable returns the first of dirs that every account can reach.
func traversable(dirs ...string) (string, error) {
	for _, dir := range dirs {
		if open(dir) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("testservers: none of %s can be entered by every user; point TMPDIR at a directory that can",
		strings.Join(dirs, ", "))
}

// open tells whether dir and all its parents may be entered by anybody.
func open(dir string) bool {
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir = parent
	}
}

func (w *workspace) path(name string) string { return filepath.Join(w.dir, name) }

// command prepares a command that runs here, as the workspace's account. It outlives ctx: how a
// server ends is decided by its owner, not by the context that started it.
func (w *workspace) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), name, args...)
	cmd.Dir = w.dir
	cmd.Env = append(serverEnviron(os.Environ()), "TMPDIR="+w.dir)
	w.account.runAs(cmd)
	return cmd
}

// start starts cmd with its output in the log.
func (w *workspace) start(cmd *exec.Cmd) (*child.Child, error) {
	log, err := os.OpenFile(w.path("server.log"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("testservers: %w", err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	return child.Start(cmd)
}

// logTail is the end of the server's log, for an error message.
func (w *workspace) logTail() string {
	log, err := os.ReadFile(w.path("server.log"))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(log[max(0, len(log)-logTailBytes):]))
}

func (w *workspace) remove() error {
	for _, daemon := range w.daemons {
		if err := daemon.Stop(redisShutdown...); err != nil {
			return fmt.Errorf("testservers: %w", err)
		}
	}
	if err := os.RemoveAll(w.dir); err != nil {
		return fmt.Errorf("testservers: remove files: %w", err)
	}
	return nil
}

// serverEnviron takes out what would steer a server behind our back (PGPORT, RABBITMQ_NODE_PORT, ...) and fixes
// the language of its messages, because some of them are read here.
func serverEnviron(environ []string) []string {
	kept := make([]string, 0, len(environ)+1)
	for _, entry := range environ {
		steers := func(prefix string) bool { return strings.HasPrefix(entry, prefix) }
		if !slices.ContainsFunc([]string{"PG", "RABBITMQ_", "ERL_", "LC_", "LANG"}, steers) {
			kept = append(kept, entry)
		}
	}
	return append(kept, "LC_ALL=C")
}
