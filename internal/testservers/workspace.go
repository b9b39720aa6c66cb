package testservers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gorm-fanout/fanout/internal/testservers/child"
)

// workspace is the temporary directory of one server: its data, its log, its working directory.
type workspace struct {
	dir      string
	uid, gid int            // of the account that works here; 0: ours
	daemons  []*child.Child // what the server needs beside it; they end when the workspace is removed
}

// memoryDir is where Linux keeps files in memory. MariaDB makes and removes tables six times as fast
// there. A killed process loses nothing by it.
const memoryDir = "/dev/shm"

// newWorkspace creates a directory for the server called name. With unprivileged it belongs to another
// account if we are root, since some servers refuse to run as root.
func newWorkspace(name string, unprivileged bool) (*workspace, error) {
	parent := os.TempDir()
	if os.Getenv(fsyncVariable) == "off" && hasMemory(memoryDir) {
		parent = memoryDir
	}
	dir, err := os.MkdirTemp(parent, "fanout-"+name+"-")
	if err != nil {
		return nil, fmt.Errorf("testservers: directory for %s: %w", name, err)
	}
	w := &workspace{dir: dir}
	if unprivileged && os.Geteuid() == 0 {
		if w.uid, w.gid, err = account("postgres", "nobody"); err == nil {
			err = os.Chown(dir, w.uid, w.gid)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("testservers: %s refuses to run as root: %w", name, err), w.remove())
		}
	}
	return w, nil
}

// account returns the ids of the first of these accounts that there is.
func account(names ...string) (uid, gid int, err error) {
	for _, name := range names {
		var found *user.User
		if found, err = user.Lookup(name); err == nil {
			uid, err = strconv.Atoi(found.Uid)
			gid, _ = strconv.Atoi(found.Gid)
			return uid, gid, err
		}
	}
	return 0, 0, err
}

func (w *workspace) path(name string) string { return filepath.Join(w.dir, name) }

// command prepares a command that runs here, as the workspace's account. It outlives ctx: the owner of
// a server ends it, not the context that started it.
func (w *workspace) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), name, args...)
	cmd.Dir = w.dir
	cmd.Env = append(serverEnviron(os.Environ()), "TMPDIR="+w.dir)
	if w.uid != 0 {
		runAs(cmd, w.uid, w.gid)
	}
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

// run runs a command to its end.
func (w *workspace) run(cmd *exec.Cmd) error {
	process, err := w.start(cmd)
	if err == nil {
		err = process.Wait()
	}
	if err != nil {
		return fmt.Errorf("testservers: %s: %w; the end of its output:\n%s", filepath.Base(cmd.Path), err, w.logTail())
	}
	return nil
}

func (w *workspace) log() string {
	log, err := os.ReadFile(w.path("server.log"))
	if err != nil {
		return err.Error()
	}
	return string(log)
}

func (w *workspace) logTail() string { return tail([]byte(w.log())) }

// tail is the end of a log, for an error message.
func tail(log []byte) string {
	const most = 4 << 10
	return string(bytes.TrimSpace(log[max(0, len(log)-most):]))
}

func (w *workspace) remove() error {
	for _, daemon := range w.daemons {
		if err := daemon.Stop(politely(downPatience)...); err != nil {
			return fmt.Errorf("testservers: %w", err)
		}
	}
	if err := os.RemoveAll(w.dir); err != nil {
		return fmt.Errorf("testservers: remove files: %w", err)
	}
	return nil
}

// serverEnviron takes out variables that would steer a server (PGPORT, RABBITMQ_NODE_PORT, ...) and
// fixes the language of its log, which is read here.
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
