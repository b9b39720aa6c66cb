package testservers

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// oldestPostgres is the first major version with DROP DATABASE ... WITH (FORCE), which the tests
// clean up with.
const oldestPostgres = 13

// postgresDirs is where distributions and Homebrew put the binaries that they keep out of PATH.
var postgresDirs = []string{
	"/usr/lib/postgresql/*/bin",                              // Debian, Ubuntu
	"/usr/pgsql-*/bin",                                       // the PostgreSQL project's packages for Red Hat
	"/usr/libexec/postgresql*",                               // Alpine
	"/usr/lib/postgresql*/bin",                               // SUSE
	"/opt/homebrew/opt/postgresql*/bin",                      // Homebrew, Apple silicon
	"/usr/local/opt/postgresql*/bin",                         // Homebrew, Intel
	"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",         // Homebrew, Linux
	"/Applications/Postgres.app/Contents/Versions/*/bin",     // Postgres.app
	"/opt/local/lib/postgresql*/bin", "/usr/local/pgsql/bin", // MacPorts, built from source
}

// installation is a directory with a server's binaries.
type installation struct {
	bin          string
	major, minor int
}

// findPostgres returns the directory of postgres and initdb: the one that the variable names, else
// the one in PATH, else the newest of those in the usual places.
func findPostgres(ctx context.Context) (string, bool) {
	if bin := os.Getenv(PostgresBinVariable); bin != "" {
		_, ok := inspectPostgres(ctx, bin)
		return bin, ok
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		// The link is followed because initdb is sure to be beside the real binary, not beside the
		// link.
		if target, err := filepath.EvalSymlinks(path); err == nil {
			if found, ok := inspectPostgres(ctx, filepath.Dir(target)); ok {
				return found.bin, true
			}
		}
	}
	best, ok := newest(installedPostgres(ctx, postgresDirs))
	return best.bin, ok
}

// installedPostgres finds what is in directories, which are patterns.
func installedPostgres(ctx context.Context, patterns []string) []installation {
	var all []installation
	for _, pattern := range patterns {
		dirs, _ := filepath.Glob(pattern) // fails for a malformed pattern only
		for _, dir := range dirs {
			if found, ok := inspectPostgres(ctx, dir); ok {
				all = append(all, found)
			}
		}
	}
	return all
}

// inspectPostgres asks the binary in dir for its version. It is not ok where a binary is missing or
// too old.
func inspectPostgres(ctx context.Context, dir string) (installation, bool) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return installation{}, false
	}
	if _, err := exec.LookPath(filepath.Join(dir, "initdb")); err != nil {
		return installation{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	said, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return installation{}, false
	}
	major, minor, ok := parsePostgresVersion(string(said))
	return installation{bin: dir, major: major, minor: minor}, ok && major >= oldestPostgres
}

var postgresVersion = regexp.MustCompile(`\(PostgreSQL\) (\d+)(?:\.(\d+))?`)

// parsePostgresVersion reads what "postgres --version" says. A beta or development version has no
// minor number: 0.
func parsePostgresVersion(said string) (major, minor int, ok bool) {
	match := postgresVersion.FindStringSubmatch(said)
	if match == nil {
		return 0, 0, false
	}
	major, err := strconv.Atoi(match[1])
	minor, _ = strconv.Atoi(match[2])
	return major, minor, err == nil
}

// newest returns the highest version; of equals the first.
func newest(all []installation) (installation, bool) {
	if len(all) == 0 {
		return installation{}, false
	}
	best := slices.MaxFunc(all, func(a, b installation) int {
		return cmp.Or(cmp.Compare(a.major, b.major), cmp.Compare(a.minor, b.minor))
	})
	return best, true
}
