package testservers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// manager is a package manager and how it is told to install without asking.
type manager struct {
	command   string
	asRoot    bool     // it needs root; otherwise it refuses root
	variables []string // for its environment
	refresh   []string // arguments that fetch its lists, for when a package is not found; none: it does that by itself
	install   []string // arguments that install the packages after them
	packages  map[string]string
}

// managers in the order in which they are looked for.
var managers = []manager{
	{
		command: "apt-get", asRoot: true,
		// The servers that come with the packages must not run: the first two say so to SysV
		// scripts, the third to systemctl.
		variables: []string{"DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "SYSTEMD_OFFLINE=1"},
		refresh:   []string{"update"},
		install:   []string{"install", "-y", "--no-install-recommends"},
		packages: map[string]string{
			postgresName: "postgresql", redisName: "redis-server", mysqlName: "mariadb-server",
			rabbitMQName: "rabbitmq-server", chromiumName: "chromium",
		},
	},
	{
		command: "dnf", asRoot: true,
		install: []string{"install", "-y"},
		// By file, because the packages are called differently: Redis is Valkey in newer releases.
		packages: map[string]string{
			postgresName: "/usr/bin/postgres", redisName: "/usr/bin/redis-server", mysqlName: "mariadb-server",
			rabbitMQName: "rabbitmq-server", chromiumName: "chromium",
		},
	},
	{
		command: "apk", asRoot: true,
		install: []string{"add", "--no-cache"},
		packages: map[string]string{
			postgresName: "postgresql", redisName: "redis", mysqlName: "mariadb",
			rabbitMQName: "rabbitmq-server", chromiumName: "chromium",
		},
	},
	{
		command: "pacman", asRoot: true,
		refresh: []string{"-Sy"},
		install: []string{"-S", "--noconfirm", "--needed"},
		packages: map[string]string{
			postgresName: "postgresql", redisName: "valkey", mysqlName: "mariadb",
			rabbitMQName: "rabbitmq", chromiumName: "chromium",
		},
	},
	{
		command:   "brew",
		variables: []string{"NONINTERACTIVE=1", "HOMEBREW_NO_AUTO_UPDATE=1"},
		install:   []string{"install"},
		packages: map[string]string{
			postgresName: "postgresql@17", redisName: "redis", mysqlName: "mariadb",
			rabbitMQName: "rabbitmq",
		},
	},
}

// errNotInstalled is the end of the road: no server anywhere, and none may or can be installed.
var errNotInstalled = errors.New("no server to test with")

// install installs the binaries of the missing services and notes where they are. It announces
// every command first, and runs none that could ask for a password. Its error says what to run by
// hand.
func (s *Servers) install(ctx context.Context, missing []*service) error {
	found, ok := findManager(exec.LookPath)
	if !ok {
		return notInstalled(missing, "none of the package managers known to this program is either", "")
	}
	elevate, reason := elevation(ctx, found, os.Geteuid(), execute)
	if os.Getenv(InstallVariable) == "0" {
		reason = InstallVariable + "=0 forbids installing one"
	}
	if reason != "" {
		return notInstalled(missing, reason, found.byHand(missing))
	}
	err := s.announceAndRun(ctx, found.line(elevate, found.installArgs(missing)))
	if err != nil && found.refresh != nil && ctx.Err() == nil {
		if err = s.announceAndRun(ctx, found.line(elevate, found.refresh)); err == nil {
			err = s.announceAndRun(ctx, found.line(elevate, found.installArgs(missing)))
		}
	}
	if err != nil {
		return fmt.Errorf("%w\n%w", err, notInstalled(missing, "installing failed", found.byHand(missing)))
	}
	for _, svc := range missing {
		if !s.facts(ctx, svc, false).binary {
			return notInstalled([]*service{svc}, "it was installed, but its binary is not found; set "+svc.binVariable, "")
		}
	}
	return nil
}

func (s *Servers) announceAndRun(ctx context.Context, line []string) error {
	fmt.Fprintf(s.log, "testservers: installing with the system's package manager: %s\n", strings.Join(line, " "))
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Stdout, cmd.Stderr = s.log, s.log // and no stdin: nothing can ask
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("testservers: %s: %w", strings.Join(line, " "), err)
	}
	return nil
}

func findManager(lookPath func(string) (string, error)) (manager, bool) {
	index := slices.IndexFunc(managers, func(m manager) bool {
		_, err := lookPath(m.command)
		return err == nil
	})
	if index < 0 {
		return manager{}, false
	}
	return managers[index], true
}

// elevation returns what to put before a command of m so that it has its rights without asking for
// a password, or the reason why that is impossible.
func elevation(ctx context.Context, m manager, uid int, run runner) (prefix []string, reason string) {
	switch {
	case uid == 0 && !m.asRoot:
		return nil, m.command + " refuses to run as root"
	case uid == 0 || !m.asRoot:
		return nil, ""
	}
	if _, err := run(ctx, "sudo", "-n", "true"); err != nil {
		return nil, "installing needs a password"
	}
	return []string{"sudo", "-n"}, ""
}

// line is a whole command line. The variables are set with env because sudo drops those of its own
// environment.
func (m manager) line(elevate, args []string) []string {
	line := slices.Clone(elevate)
	if len(m.variables) > 0 {
		line = append(append(line, "env"), m.variables...)
	}
	return append(append(line, m.command), args...)
}

func (m manager) installArgs(missing []*service) []string {
	args := slices.Clone(m.install)
	for _, svc := range missing {
		args = append(args, m.packages[svc.name])
	}
	return args
}

// byHand is the one command for a person to run.
func (m manager) byHand(missing []*service) string {
	var elevate []string
	if m.asRoot && os.Geteuid() != 0 {
		elevate = []string{"sudo"}
	}
	command := strings.Join(m.line(elevate, m.installArgs(missing)), " ")
	if m.refresh != nil {
		command = strings.Join(m.line(elevate, m.refresh), " ") + " && " + command
	}
	return command
}

// notInstalled explains that and why servers cannot be had, and what to do.
func notInstalled(missing []*service, reason, command string) error {
	advice := "Install it, "
	if command != "" {
		advice = "Run\n\n    " + command + "\n\n"
	}
	variables := make([]string, 0, len(missing))
	for _, svc := range missing {
		variables = append(variables, svc.variable)
	}
	return fmt.Errorf("testservers: %w: %s: no variable names a server, no container engine runs one, no binary is here, and %s. %s"+
		"or name a running server in %s", errNotInstalled, names(missing), reason, advice, strings.Join(variables, " and "))
}
