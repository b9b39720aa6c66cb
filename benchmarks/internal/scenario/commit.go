package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
)

// commit asks what the plugin costs a commit. The benchmark itself stands beside the plugin's tests,
// which share its cases: this runs it and reads its output.
type commit struct{ rounds int }

func newCommit(s *Sizes) Scenario {
	c := &commit{}
	s.number(&c.rounds, "rounds", 500, 2, "rounds of a few transactions of each kind")
	return c
}

// commitLimits are those of the ratios.
func commitLimits() map[string]float64 {
	return map[string]float64{"event/by-hand": 1.1, "no-event/plain": 1.05, "other-model/plain": 1.05}
}

// Run implements Scenario.
func (c *commit) Run(ctx context.Context, o *Options) error {
	directory := "gormplugin" // from the project's directory, else from a package of this module
	for range 3 {
		if _, err := os.Stat(directory); err != nil {
			directory = filepath.Join("..", directory)
		}
	}
	return o.eachRun("commit", func(int) error {
		//nolint:gosec // a number
		command := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench=CommitPath", "-benchtime="+strconv.Itoa(c.rounds)+"x", "-count=1", ".")
		command.Dir = directory
		output, err := command.CombinedOutput()
		if err == nil {
			err = readCommits(o.Report.Scenario("commit"), string(output))
		}
		if err != nil {
			return fmt.Errorf("%w\n%s", err, output)
		}
		return nil
	})
}

var (
	commitLine  = regexp.MustCompile(`(?m)^BenchmarkCommitPath/(\w+).*$`)
	commitRatio = regexp.MustCompile(`([0-9.]+) (\S+/\S+)`)
)

// readCommits notes the ratios that the benchmark prints.
func readCommits(s *report.Scenario, output string) error {
	lines := commitLine.FindAllStringSubmatch(output, -1)
	if len(lines) == 0 {
		return errors.New("scenario: the benchmark of commits has printed no figures")
	}
	for _, line := range lines {
		for _, ratio := range commitRatio.FindAllStringSubmatch(line[0], -1) {
			value, err := strconv.ParseFloat(ratio[1], 64)
			if err != nil {
				return err
			}
			figure := s.Add(line[1], ratio[2], "x", value)
			if limit := commitLimits()[ratio[2]]; limit > 0 && line[1] != "discard" { // a database that does nothing
				figure.LimitAtMost(limit, "P5")
			}
		}
	}
	return nil
}
