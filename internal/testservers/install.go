package testservers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// manager is a package manager and how it installs without asking.
type manager struct {
	command  string
	asRoot   bool     // it needs root; otherwise it refuses root
	environ  []string // for its environment
	refresh  []string // arguments that fetch its lists, for when a package is not found; nil: it does that by itself
	install  []string // arguments that install the packages after them
	packages map[string]string
}

// managers in the order in which they are looked for.
var managers = []manager{
	{
		command: "apt-get", asRoot: true,
		// Servers that come with the packages must not run: the first two say so to SysV scripts, the
		// third to systemctl.
		environ: []string{"DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "SYSTEMD_OFFLINE=1"},
		refresh: []string{"update"},
		install: []string{"install", "-y", "--no-install-recommends"},
		packages: map[string]string{
			"postgres": "postgresql", "redis": "redis-server", "mariadb": "mariadb-server-core mariadb-client-core", "rabbitmq": "rabbitmq-server",
			"kafka": "maven", "chromium": "chromium",
		},
	},
	{
		command: "dnf", asRoot: true,
		install: []string{"install", "-y"},
		// By file, because the packages are called differently: Redis is Valkey in newer releases.
		packages: map[string]string{
			"postgres": "/usr/bin/postgres", "redis": "/usr/bin/redis-server", "mariadb": "mariadb-server", "rabbitmq": "rabbitmq-server",
			"kafka": "maven", "chromium": "chromium",
		},
	},
	{
		command: "apk", asRoot: true,
		install: []string{"add", "--no-cache"},
		packages: map[string]string{
			"postgres": "postgresql", "redis": "redis", "mariadb": "mariadb", "rabbitmq": "rabbitmq-server", "kafka": "maven", "chromium": "chromium",
		},
	},
	{
		command: "brew",
		environ: []string{"NONINTERACTIVE=1", "HOMEBREW_NO_AUTO_UPDATE=1"},
		install: []string{"install"},
		packages: map[string]string{
			"postgres": "postgresql@17", "redis": "redis", "mariadb": "mariadb", "rabbitmq": "rabbitmq", "kafka": "maven",
		},
	},
}

// install installs what the servers of these names need, all at once: one try is quicker than several.
// It announces every command first, and runs none that could ask for a password. Its error says what to
// run by hand.
func install(ctx context.Context, log io.Writer, names []string) error {
	at := slices.IndexFunc(managers, func(m manager) bool {
		_, err := exec.LookPath(m.command)
		return err == nil
	})
	if at < 0 {
		return errors.New("no binary is here, nor a package manager known to this program")
	}
	m := managers[at]
	var packages []string
	for _, name := range names {
		packages = append(packages, strings.Fields(m.packages[name])...)
	}
	if len(packages) == 0 {
		return fmt.Errorf("no binary is here, and %s has no package of it", m.command)
	}
	prefix, reason := m.elevation(ctx, os.Geteuid())
	if os.Getenv(InstallVariable) == "0" {
		reason = InstallVariable + "=0 forbids installing it"
	}
	if reason != "" {
		return fmt.Errorf("no binary is here, and %s; by hand: %s", reason, m.byHand(packages))
	}
	do := func(args ...string) error {
		line := slices.Concat(prefix, []string{"env"}, m.environ, []string{m.command}, args) // sudo drops variables of its own environment
		fmt.Fprintf(log, "testservers: installing with the system's package manager: %s\n", strings.Join(line, " "))
		cmd := exec.CommandContext(ctx, line[0], line[1:]...)
		cmd.Stdout, cmd.Stderr = log, log // and no stdin: nothing can ask
		return cmd.Run()
	}
	err := do(slices.Concat(m.install, packages)...)
	if err != nil && m.refresh != nil && ctx.Err() == nil { // a fresh image has no lists, and the packages of old ones are gone
		if err = do(m.refresh...); err == nil {
			err = do(slices.Concat(m.install, packages)...)
		}
	}
	if err != nil && len(packages) > 1 && ctx.Err() == nil { // one that is missing keeps the others out
		err = nil
		for _, one := range packages {
			err = errors.Join(err, do(append(slices.Clone(m.install), one)...))
		}
	}
	if err != nil {
		return fmt.Errorf("installing failed: %w; by hand: %s", err, m.byHand(packages))
	}
	return nil
}

// elevation returns what to put before a command so that it has its rights without asking for a
// password, or the reason why that is impossible.
func (m *manager) elevation(ctx context.Context, uid int) (prefix []string, reason string) {
	switch {
	case uid == 0 && !m.asRoot:
		return nil, m.command + " refuses to run as root"
	case uid == 0 || !m.asRoot:
		return nil, ""
	}
	if _, err := execute(ctx, "sudo", "-n", "true"); err != nil {
		return nil, "installing needs a password"
	}
	return []string{"sudo", "-n"}, ""
}

// byHand is the one command for a person to run.
func (m *manager) byHand(packages []string) string {
	command := m.command
	if m.asRoot {
		command = "sudo " + command
	}
	line := command + " " + strings.Join(slices.Concat(m.install, packages), " ")
	if m.refresh != nil {
		line = command + " " + strings.Join(m.refresh, " ") + " && " + line
	}
	return line
}

// cacheDir holds fetched binaries for later runs. Servers of other accounts cannot read root's cache.
func cacheDir() string {
	parent, err := os.UserCacheDir()
	if err != nil || os.Geteuid() == 0 {
		parent = "/var/cache"
	}
	return filepath.Join(parent, "fanout-test")
}

// cached returns the directory called name in the cache. Where there is none, fill makes it under
// another name, so that an interrupted fetch leaves nothing that a later run takes for a server.
func cached(log io.Writer, name, what string, fill func(dir string) error) (string, error) {
	dir := filepath.Join(cacheDir(), name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if os.Getenv(InstallVariable) == "0" {
		return "", errors.New(InstallVariable + "=0 forbids fetching it")
	}
	fmt.Fprintf(log, "testservers: fetching %s into %s\n", what, dir)
	partial := dir + ".partial"
	err := errors.Join(os.RemoveAll(partial), os.MkdirAll(partial, 0o755)) //nolint:gosec // servers run as other accounts
	if err == nil {
		err = fill(partial)
	}
	if err == nil {
		err = os.Rename(partial, dir)
	}
	if err != nil {
		return "", fmt.Errorf("testservers: fetch %s: %w", what, err)
	}
	return dir, nil
}

// built returns a fetch that builds a server with the go command, at the version that go.work agrees on.
func built(name, pkg string) func(context.Context, io.Writer) (string, error) {
	return func(ctx context.Context, _ io.Writer) (string, error) {
		path := filepath.Join(cacheDir(), name)
		_, err := execute(ctx, "go", "build", "-trimpath", "-o", path, pkg)
		return path, err
	}
}

// inPath returns the first of these programs that is in PATH or one of the directories, which are
// patterns. Both may be empty.
func inPath(programs []string, directories ...string) string {
	for _, program := range programs {
		if path, err := exec.LookPath(program); err == nil {
			return path
		}
		for _, directory := range directories {
			paths, _ := filepath.Glob(filepath.Join(directory, program)) // fails for a malformed pattern only
			for _, path := range paths {
				if found, err := exec.LookPath(path); err == nil {
					return found
				}
			}
		}
	}
	return ""
}

// nowhere is the find of a server that the go command builds: one in PATH may be of any version.
func nowhere(context.Context) string { return "" }
