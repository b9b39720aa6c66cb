package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/internal/testreport/testedwith"
)

const (
	module = "github.com/gorm-fanout/fanout" // is left out of the names of packages

	slow       = 20 * time.Second // what no test should take
	slowestFew = 10
)

// An event is one line of go test -json, see go doc test2json. Lines about builds have no Package
// but an ImportPath.
type event struct {
	Action, Package, Test, Output, ImportPath, Key, Value string

	Elapsed     float64 // in seconds
	FailedBuild string
}

// A report tells what the events say.
type report struct {
	out     io.Writer
	verbose bool

	packages               map[string]*pkg   // that have not ended
	builds                 map[string]string // output of the compiler, by import path
	passed, failed, silent int               // tests, and packages without any
	failedPackages         []string
	skipped                map[string]int // by reason
	slow                   []string
	records                []testedwith.Record
}

// A pkg is a package under test.
type pkg struct {
	passed, failed, skipped int
	cached                  bool
	output                  strings.Builder     // that belongs to no test
	tests                   map[string][]string // output of those that have not passed, in the order of their begin
	order                   []string
	servers                 map[string]map[string]bool // on which tests run, by test
	ended                   map[string]string          // tests, and how
}

// read goes through all events. What is none is passed on.
func (r *report) read(events io.Reader) error {
	r.packages, r.builds, r.skipped = map[string]*pkg{}, map[string]string{}, map[string]int{}
	for lines := bufio.NewReader(events); ; {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil { //nolint:musttag // they have the names of the fields
			r.take(&e)
		} else {
			fmt.Fprintf(r.out, "%s", line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (r *report) take(e *event) {
	if e.Package == "" {
		r.builds[e.ImportPath] += e.Output
		return
	}
	p := r.packages[e.Package]
	if p == nil {
		p = &pkg{tests: map[string][]string{}, servers: map[string]map[string]bool{}, ended: map[string]string{}}
		r.packages[e.Package] = p
	}
	switch {
	case e.Action == "output":
		r.keep(p, e)
	case e.Action == "attr" && e.Key == "server": // see testenv.Uses
		if p.servers[e.Test] == nil {
			p.servers[e.Test] = map[string]bool{}
		}
		p.servers[e.Test][e.Value] = true
	case e.Test != "":
		r.endTest(p, e)
	case e.Action == "pass", e.Action == "fail", e.Action == "skip":
		r.endPackage(p, e)
		r.records = append(r.records, p.records(strings.TrimPrefix(short(e.Package), "./"))...)
		delete(r.packages, e.Package)
	}
}

// keep notes output until it is known whether anybody needs it.
func (r *report) keep(p *pkg, e *event) {
	if r.verbose {
		fmt.Fprint(r.out, e.Output)
	}
	switch {
	case e.Test == "":
		p.cached = p.cached || strings.HasPrefix(e.Output, "ok") && strings.Contains(e.Output, "\t(cached)")
		p.output.WriteString(e.Output)
	case !strings.HasPrefix(e.Output, "=== "):
		if _, known := p.tests[e.Test]; !known {
			p.order = append(p.order, e.Test)
		}
		p.tests[e.Test] = append(p.tests[e.Test], e.Output)
	}
}

func (r *report) endTest(p *pkg, e *event) {
	switch e.Action {
	case "pass":
		p.passed++
		r.passed++
	case "skip":
		p.skipped++
		r.skipped[reason(p.tests[e.Test])]++
	case "fail":
		p.failed++
		r.failed++
	default:
		return
	}
	p.ended[e.Test] = e.Action
	if e.Action != "fail" {
		delete(p.tests, e.Test)
	}
	if took := time.Duration(e.Elapsed * float64(time.Second)); took > slow && !p.cached && !strings.Contains(e.Test, "/") {
		r.slow = append(r.slow, fmt.Sprintf("%6.1fs %s in %s", e.Elapsed, e.Test, short(e.Package)))
	}
}

// location is what the package testing writes before a message.
var location = regexp.MustCompile(`^\s*\S+\.go:\d+: `)

// reason is what a test said when it was skipped: the last that it logged.
func reason(output []string) string {
	for _, line := range slices.Backward(output) {
		if location.MatchString(line) {
			return strings.TrimSpace(location.ReplaceAllString(line, ""))
		}
	}
	return "no reason given"
}

// endPackage says how a package ended; of one that failed also what those tests wrote that failed,
// or never came to their end.
func (r *report) endPackage(p *pkg, e *event) {
	if e.Action == "skip" || e.Action == "pass" && p.passed+p.failed+p.skipped == 0 && strings.Contains(p.output.String(), "[no test files]") {
		r.silent++
		return
	}
	took := fmt.Sprintf("%7.1fs", e.Elapsed)
	if p.cached {
		took = "  cached"
	}
	verdict := "ok  "
	if e.Action == "fail" {
		verdict = "FAIL"
		r.failedPackages = append(r.failedPackages, short(e.Package))
		r.explain(p, e.FailedBuild)
	}
	line := fmt.Sprintf("%s %s %5d tests", verdict, took, p.passed+p.failed)
	if p.skipped > 0 {
		line += fmt.Sprintf(" %3d skipped", p.skipped)
	} else {
		line += strings.Repeat(" ", len(" 000 skipped"))
	}
	fmt.Fprintln(r.out, line, " ", short(e.Package))
}

func (r *report) explain(p *pkg, failedBuild string) {
	if r.verbose {
		return
	}
	fmt.Fprint(r.out, r.builds[failedBuild])
	for _, test := range p.order {
		fmt.Fprint(r.out, strings.Join(p.tests[test], ""))
	}
	fmt.Fprint(r.out, p.output.String())
}

// short is a package's folder.
func short(name string) string {
	if rest, ok := strings.CutPrefix(name, module); ok {
		return "." + rest
	}
	return name
}

// summary says at the end what there was.
func (r *report) summary() {
	for name, p := range r.packages { // the command was ended before them
		fmt.Fprintf(r.out, "did not end: %s\n", short(name))
		r.explain(p, "")
	}
	skipped := 0
	for _, n := range r.skipped {
		skipped += n
	}
	fmt.Fprintf(r.out, "\n%d tests passed, %d failed, %d skipped; %d packages have no tests\n", r.passed, r.failed, skipped, r.silent)
	reasons := slices.SortedFunc(maps.Keys(r.skipped), func(a, b string) int {
		return cmp.Or(r.skipped[b]-r.skipped[a], strings.Compare(a, b))
	})
	for _, why := range reasons {
		fmt.Fprintf(r.out, "%6d skipped: %s\n", r.skipped[why], why)
	}
	slices.SortFunc(r.slow, func(a, b string) int { return strings.Compare(b, a) })
	for _, test := range r.slow[:min(len(r.slow), slowestFew)] {
		fmt.Fprintf(r.out, "slow: %s\n", test)
	}
	if len(r.failedPackages) > 0 {
		fmt.Fprintf(r.out, "FAILED: %s\n", strings.Join(r.failedPackages, ", "))
	}
}
