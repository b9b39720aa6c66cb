// Command mutants plants known defects, one at a time, and reports whether the tests notice:
//
//	go run ./integration/mutants [-v] [AREA | AREA/NAME]...
//
// Each defect is a patch in a folder of this package. Its header says what is broken, which package
// tests it, and which tests suffice:
//
//	Defect: A completion ignores the lease's token.
//	Package: ./outbox/postgres
//	Run: ^TestConformance$/Tokens
//
// The command overlays the patched files, so the working tree never changes, and runs the tests
// with the servers that the environment names. It exits with 1 if a defect survives, does not apply
// or does not compile.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	folder  = "integration/mutants"
	timeout = "180s" // a defect may hang its test, which is as good as a failure
)

// mutant is a planted defect.
type mutant struct {
	name, patch       string
	defect, pkg, runs string
	files             []string
}

func main() {
	verbose := flag.Bool("v", false, "show the output of the tests")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, flag.Args(), *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1) //nolint:gocritic // the deferred stop has run
	}
}

func run(ctx context.Context, chosen []string, verbose bool) error {
	mutants, err := load(chosen)
	if err != nil {
		return err
	}
	bad := 0
	for _, m := range mutants {
		start := time.Now()
		verdict, killed, err := m.try(ctx, verbose)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if !killed {
			bad++
		}
		fmt.Fprintf(os.Stdout, "%-60s %-22s %4.0fs  %s\n", m.name, m.pkg, time.Since(start).Seconds(), verdict)
	}
	fmt.Fprintf(os.Stdout, "%d mutants, %d not killed\n", len(mutants), bad)
	if bad > 0 || len(mutants) == 0 {
		return errors.New("every mutant must be killed")
	}
	return nil
}

// load reads the mutants of the chosen areas and names, or all.
func load(chosen []string) ([]mutant, error) {
	var all []mutant
	err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".patch" {
			return err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(path), folder+"/"), ".patch")
		area, _, _ := strings.Cut(name, "/")
		if len(chosen) > 0 && !slices.Contains(chosen, name) && !slices.Contains(chosen, area) {
			return nil
		}
		m, err := parse(name, path)
		all = append(all, m)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: run it in the root of the repository", err)
	}
	return all, err
}

// parse reads a mutant's header and the names of the files that it changes.
func parse(name, path string) (mutant, error) {
	m := mutant{name: name}
	var err error
	if m.patch, err = filepath.Abs(path); err != nil {
		return m, err
	}
	file, err := os.Open(path) //nolint:gosec // it is in our folder
	if err != nil {
		return m, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), " ")
		switch key {
		case "Defect:":
			m.defect = value
		case "Package:":
			m.pkg = value
		case "Run:":
			m.runs = value
		case "+++":
			m.files = append(m.files, strings.TrimPrefix(strings.TrimSpace(value), "b/"))
		}
	}
	if m.defect == "" || m.pkg == "" || m.runs == "" || len(m.files) == 0 {
		return m, fmt.Errorf("%s: needs the lines Defect, Package and Run, and a diff", path)
	}
	return m, lines.Err()
}

// try runs the tests of a mutant's package with its files in place of ours.
func (m *mutant) try(ctx context.Context, verbose bool) (verdict string, killed bool, err error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", false, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, err := m.overlay(ctx, dir)
	if err != nil {
		return "DOES NOT APPLY: " + err.Error(), false, nil
	}
	test := exec.CommandContext(ctx, "go", "test", "-vet=off", "-count=1", //nolint:gosec // our own patches
		"-timeout="+timeout, "-failfast", "-v", "-run="+m.runs, ".")
	test.Dir = m.pkg
	test.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay) // also for the programs that tests build
	out, err := test.CombinedOutput()
	if ctx.Err() != nil {
		return "", false, ctx.Err()
	}
	if verbose {
		fmt.Fprintf(os.Stdout, "%s\n", out)
	}
	switch {
	case strings.Contains(string(out), "[build failed]"), strings.Contains(string(out), "[setup failed]"):
		return "DOES NOT COMPILE", false, nil
	case strings.Contains(string(out), "no tests to run"):
		return "NO TESTS RUN", false, nil
	case err != nil:
		return "killed by " + failed(string(out)), true, nil
	case strings.Contains(string(out), "--- SKIP"):
		return "SURVIVED, but tests were skipped (make mutants starts the servers): " + m.defect, false, nil
	default:
		return "SURVIVED: " + m.defect, false, nil
	}
}

// overlay applies the patch to copies of its files, and returns the file that go test -overlay
// reads.
func (m *mutant) overlay(ctx context.Context, dir string) (string, error) {
	replace := map[string]string{}
	for _, name := range m.files {
		original, err := filepath.Abs(name)
		if err != nil {
			return "", err
		}
		text, err := os.ReadFile(original) //nolint:gosec // our own patches name it
		if err != nil {
			return "", err
		}
		changed := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(changed), 0o700); err != nil {
			return "", err
		}
		if err := os.WriteFile(changed, text, 0o600); err != nil { //nolint:gosec // as above
			return "", err
		}
		replace[original] = changed
	}
	apply := exec.CommandContext(ctx, "git", "apply", m.patch) //nolint:gosec // as above
	apply.Dir = dir
	if out, err := apply.CombinedOutput(); err != nil {
		return "", errors.New(strings.TrimSpace(string(out)))
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, text, 0o600)
}

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// failed names the tests that failed: the innermost ones, or the reason why none is named.
func failed(out string) string {
	var names []string
	for _, match := range failure.FindAllStringSubmatch(out, -1) {
		names = append(names, match[1])
	}
	innermost := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(names, func(other string) bool { return strings.HasPrefix(other, name+"/") })
	})
	switch {
	case len(innermost) > 0:
		return strings.Join(innermost[:min(len(innermost), 3)], ", ")
	case strings.Contains(out, "panic: test timed out"):
		return "its time limit"
	default:
		return "a panic"
	}
}
