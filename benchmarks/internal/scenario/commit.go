package scenario

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/internal/testservers"
)

// Commit asks what the plugin costs a commit. The benchmark itself stands beside the plugin's
// tests, which share its cases: this runs it, as make bench-commit does, and reads what it prints.
type Commit struct {
	// Rounds are the iterations of the benchmark.
	Rounds int
}

// DefaultCommit are the sizes of a full run.
func DefaultCommit() Commit { return Commit{Rounds: 500} }

// ShortCommit are sizes that only show whether the harness works.
func ShortCommit() Commit { return Commit{Rounds: 2} }

// P5.
const (
	eventTarget   = 1.1
	noEventTarget = 1.05
)

// commitPackage is where the benchmark stands.
const commitPackage = "github.com/gorm-fanout/fanout/gormplugin"

// Check implements Scenario.
func (c Commit) Check(int) error {
	if c.Rounds < 1 {
		return fmt.Errorf("%d rounds: use at least 1", c.Rounds)
	}
	return nil
}

// Run implements Scenario.
func (c Commit) Run(ctx context.Context, o *Options) error {
	directory, err := sourceOf(ctx, commitPackage)
	if err != nil {
		return err
	}
	s := o.Report.Scenario("commit")
	for run := range o.Runs {
		//nolint:gosec // a number
		command := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench=CommitPath", "-benchtime="+strconv.Itoa(c.Rounds)+"x", "-count=1", ".")
		command.Dir = directory
		command.Env = append(os.Environ(), testservers.PostgresVariable+"="+o.Postgres)
		output, err := command.CombinedOutput()
		if err != nil {
			return fmt.Errorf("scenario: the benchmark of %s: %w\n%s", commitPackage, err, output)
		}
		if err := readCommits(s, output); err != nil {
			return fmt.Errorf("%w\n%s", err, output)
		}
		o.logf("commit: run %d of %d: done", run+1, o.Runs)
	}
	return nil
}

// sourceOf finds the directory of a package of the project, which must be there as source.
func sourceOf(ctx context.Context, name string) (string, error) {
	for _, module := range []string{".", "benchmarks"} { // from the project's directory, or from this module's
		command := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", name) //nolint:gosec // a constant
		command.Dir = module
		if output, err := command.Output(); err == nil {
			return strings.TrimSpace(string(output)), nil
		}
	}
	return "", errors.New("scenario: the project's source is not here: run this in its directory, with Go installed")
}

// readCommits notes what the benchmark has printed: lines of pairs of a value and its unit behind a
// name and a count.
func readCommits(s *report.Scenario, output []byte) error {
	targets := map[string]float64{"event/by-hand": eventTarget, "no-event/plain": noEventTarget, "other-model/plain": noEventTarget}
	judged := 0
	for lines := bufio.NewScanner(bytes.NewReader(output)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || !strings.HasPrefix(fields[0], "BenchmarkCommitPath/") {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(fields[0], "BenchmarkCommitPath/"), "-") // the number of processors
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return fmt.Errorf("scenario: the benchmark of commits prints %q: %w", lines.Text(), err)
			}
			what, time, isTime := strings.Cut(fields[i+1], "-µs")
			target, isRatio := targets[what]
			switch {
			case isTime && time == "":
				s.Add(name, what, "µs", value)
			case isRatio && name != "discard": // whose database does nothing
				s.AddRatio(name, what, value, target)
				judged++
			case isRatio:
				s.Add(name, what, "x", value)
			}
		}
	}
	if judged == 0 {
		return errors.New("scenario: the benchmark of commits has printed no ratios")
	}
	return nil
}
