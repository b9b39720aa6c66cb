package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

const module = "github.com/gorm-fanout/fanout" // is left out of the names of packages

// An event is one line of go test -json, see go doc test2json. Lines about builds have no Package
// but an ImportPath.
type event struct {
	Action, Package, Test, Output, ImportPath, Key, Value string

	Elapsed     float64 // in seconds
	FailedBuild string
}

type report struct {
	out     io.Writer
	verbose bool

	packages       map[string]*pkg   // that have not ended
	builds         map[string]string // output of the compiler, by import path
	passed, failed int
	failedPackages []string
	skipped        map[string]int // by reason
}

// A pkg is a package under test.
type pkg struct {
	passed, failed, skipped int
	output                  strings.Builder     // that belongs to no test
	tests                   map[string][]string // output of those that have not passed
	order                   []string            // in which they began
	passedOver              map[string]bool     // tests that another one replaces, see testenv.OnEach
}

// read goes through all events, and passes on what is not one.
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
			return fmt.Errorf("read the events of go test: %w", err)
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
		p = &pkg{tests: map[string][]string{}, passedOver: map[string]bool{}}
		r.packages[e.Package] = p
	}
	switch {
	case e.Action == "output":
		r.keep(p, e)
	case e.Action == "attr" && e.Key == "passed-over":
		p.passedOver[e.Test] = true
	case e.Test != "":
		r.endTest(p, e)
	case e.Action == "pass", e.Action == "fail":
		r.endPackage(p, e)
		fallthrough
	case e.Action == "skip": // it has no tests
		delete(r.packages, e.Package)
	}
}

// keep notes output until it is known whether its test passes.
func (r *report) keep(p *pkg, e *event) {
	if r.verbose {
		fmt.Fprint(r.out, e.Output)
	}
	if e.Test == "" {
		p.output.WriteString(e.Output)
	} else if !strings.HasPrefix(e.Output, "=== ") {
		if p.tests[e.Test] == nil {
			p.order = append(p.order, e.Test)
		}
		p.tests[e.Test] = append(p.tests[e.Test], e.Output)
	}
}

func (r *report) endTest(p *pkg, e *event) {
	switch {
	case e.Action == "pass":
		p.passed++
	case e.Action == "fail":
		p.failed++
	case e.Action != "skip":
		return
	case !p.passedOver[e.Test]:
		p.skipped++
		r.skipped[reason(p.tests[e.Test])]++
	}
	if e.Action != "fail" {
		delete(p.tests, e.Test)
	}
}

// location is what the package testing writes before a message.
var location = regexp.MustCompile(`^\s*\S+\.go:\d+: `)

// reason is the message with which a test was skipped: the last that it logged.
func reason(output []string) string {
	for _, line := range slices.Backward(output) {
		if location.MatchString(line) {
			return strings.TrimSpace(location.ReplaceAllString(line, ""))
		}
	}
	return "no reason given"
}

// endPackage says how a package ended; of one that failed also the output of its tests that failed,
// or never came to their end.
func (r *report) endPackage(p *pkg, e *event) {
	r.passed, r.failed = r.passed+p.passed, r.failed+p.failed
	if p.passed+p.failed+p.skipped == 0 && e.Action == "pass" {
		return
	}
	verdict, skipped := "ok  ", ""
	if p.skipped > 0 {
		skipped = fmt.Sprintf("%d skipped", p.skipped)
	}
	if e.Action == "fail" {
		verdict = "FAIL"
		r.failedPackages = append(r.failedPackages, short(e.Package))
		r.explain(p, e.FailedBuild)
	}
	fmt.Fprintf(r.out, "%s %7.1fs %5d tests %12s   %s\n", verdict, e.Elapsed, p.passed+p.failed, skipped, short(e.Package))
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

// missing is what testservers.Needs says of a server that a command starts.
var missing = regexp.MustCompile(`needs (.+?): (.+) starts it`)

// summary says at the end what there was, and last which servers there were not.
func (r *report) summary() {
	for name, p := range r.packages { // the command was ended before them
		fmt.Fprintf(r.out, "did not end: %s\n", short(name))
		r.explain(p, "")
	}
	all, lacking, command := 0, 0, ""
	servers := map[string]bool{}
	var reasons strings.Builder
	for _, why := range slices.Sorted(maps.Keys(r.skipped)) {
		all += r.skipped[why]
		if found := missing.FindStringSubmatch(why); found != nil {
			lacking, command, servers[found[1]] = lacking+r.skipped[why], found[2], true
		} else {
			fmt.Fprintf(&reasons, "%6d skipped: %s\n", r.skipped[why], why)
		}
	}
	fmt.Fprintf(r.out, "\n%d tests passed, %d failed, %d skipped\n%s", r.passed, r.failed, all, &reasons)
	if len(r.failedPackages) > 0 {
		fmt.Fprintf(r.out, "FAILED: %s\n", strings.Join(r.failedPackages, ", "))
	}
	if lacking > 0 {
		names := strings.Join(slices.Sorted(maps.Keys(servers)), ", ")
		if last := strings.LastIndex(names, ", "); last >= 0 {
			names = names[:last] + " or " + names[last+2:]
		}
		fmt.Fprintf(r.out, "%d tests need %s: %s runs them\n", lacking, names, command)
	}
}
