// Package testedwith makes the table of servers and versions in docs/tested.md out of what the runs of
// make test-all record: which tests ran on which server, and how they ended.
package testedwith

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Record is how the tests of one package ended that ran on one server.
type Record struct {
	Server  string `json:"server"` // its name and version; empty for tests that need none
	Package string `json:"package"`

	Passed  int `json:"passed"`
	Failed  int `json:"failed"`
	Skipped int `json:"skipped"`
}

// Result is what the last whole run of make test-all had to say. It is a file beside the documents.
type Result struct {
	Date    string   `json:"date"`
	Machine string   `json:"machine"` // the version of Go, and the system
	Servers []Record `json:"servers"` // by name; Package lists all packages
}

// Collect adds up the records, one in a line, of a run.
func Collect(records io.Reader) ([]Record, error) {
	type sum struct {
		Record

		packages map[string]bool
	}
	sums := map[string]*sum{}
	for lines := bufio.NewScanner(records); lines.Scan(); {
		var one Record
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("testedwith: a record of the run is malformed: %w", err)
		}
		of := sums[one.Server]
		if of == nil {
			of = &sum{Record{Server: one.Server}, map[string]bool{}}
			sums[one.Server] = of
		}
		of.Passed, of.Failed, of.Skipped = of.Passed+one.Passed, of.Failed+one.Failed, of.Skipped+one.Skipped
		of.packages[one.Package] = true
	}
	all := make([]Record, 0, len(sums))
	for _, of := range sums {
		of.Package = strings.Join(slices.Sorted(maps.Keys(of.packages)), " ")
		all = append(all, of.Record)
	}
	slices.SortFunc(all, func(a, b Record) int { return compare(a.Server, b.Server) })
	return all, nil
}

// compare orders names, numbers in them by their size, the empty one last.
func compare(a, b string) int {
	if a == "" || b == "" {
		return -cmp.Compare(a, b)
	}
	split := func(r rune) bool { return r == ' ' || r == '.' || r == ',' }
	return slices.CompareFunc(strings.FieldsFunc(a, split), strings.FieldsFunc(b, split), func(a, b string) int {
		m, errA := strconv.Atoi(a)
		n, errB := strconv.Atoi(b)
		if errA == nil && errB == nil {
			return cmp.Compare(m, n)
		}
		return strings.Compare(a, b)
	})
}

// Table is the result as a table of Markdown.
func (r *Result) Table() string {
	if len(r.Servers) == 0 {
		return "No whole run of `make test-all` has written its table here yet.\n"
	}
	var out strings.Builder
	out.WriteString("| server | passed | failed | skipped | packages |\n|---|---|---|---|---|\n")
	for i := range r.Servers {
		one := &r.Servers[i]
		server := cmp.Or(one.Server, "no server of its own: SQLite, fakes and servers in the process of the tests")
		if one.Passed+one.Failed == 0 {
			server += ": **not run**"
		}
		fmt.Fprintf(&out, "| %s | %d | %d | %d | %s |\n", server, one.Passed, one.Failed, one.Skipped, one.suites())
	}
	fmt.Fprintf(&out, "\nThe last whole run of `make test-all` made this table: %s, %s. "+
		"A test that runs on several servers, or in several stages, counts each time.\n", r.Date, r.Machine)
	return out.String()
}

// mostNamed is how many packages are named in a line of the table.
const mostNamed = 7

// suites are the packages whose tests ran, or their number where they are many.
func (r *Record) suites() string {
	packages := strings.Fields(r.Package)
	if len(packages) > mostNamed {
		return fmt.Sprintf("%d packages, see docs/tested-with.json", len(packages))
	}
	return strings.Join(packages, ", ")
}

// The table stands between these lines.
const (
	begin = "<!-- begin: make test-all writes this -->\n"
	end   = "<!-- end -->\n"
)

// Splice returns a document with another table in place of the one between its marks.
func Splice(document []byte, table string) ([]byte, error) {
	before, rest, found := bytes.Cut(document, []byte(begin))
	_, after, ended := bytes.Cut(rest, []byte(end))
	if !found || !ended {
		return nil, fmt.Errorf("testedwith: the document has no place for the table: write the lines %q and %q", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return slices.Concat(before, []byte(begin+table+end), after), nil
}
