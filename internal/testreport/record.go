package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/internal/testreport/testedwith"
	"github.com/gorm-fanout/fanout/internal/testservers"
)

// recordVariable names the file that records are appended to.
const recordVariable = "FANOUT_TEST_RECORD"

// records count the tests that have ended by the servers on which they ran: those that they, or the
// tests above them, were marked with.
func (p *pkg) records(name string) []testedwith.Record {
	byServer := map[string]*testedwith.Record{}
	for test, action := range p.ended {
		servers := map[string]bool{}
		for above := test; ; {
			for server := range p.servers[above] {
				servers[server] = true
			}
			slash := strings.LastIndexByte(above, '/')
			if slash < 0 {
				break
			}
			above = above[:slash]
		}
		if len(servers) == 0 {
			servers[""] = true
		}
		for server := range servers {
			one := byServer[server]
			if one == nil {
				one = &testedwith.Record{Server: server, Package: name}
				byServer[server] = one
			}
			switch action {
			case "pass":
				one.Passed++
			case "fail":
				one.Failed++
			case "skip":
				one.Skipped++
			}
		}
	}
	all := make([]testedwith.Record, 0, len(byServer))
	for _, one := range byServer {
		all = append(all, *one)
	}
	return all
}

// record appends the records to their file, with the names and versions of servers in place of
// variables.
func (r *report) record() error {
	path := os.Getenv(recordVariable)
	if path == "" {
		return nil
	}
	labels := map[string]string{}
	if said := os.Getenv(testservers.ServersVariable); said != "" {
		if err := json.Unmarshal([]byte(said), &labels); err != nil {
			return fmt.Errorf("testreport: %s: %w", testservers.ServersVariable, err)
		}
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // the caller's
	if err != nil {
		return fmt.Errorf("testreport: %w", err)
	}
	lines := json.NewEncoder(file)
	for _, one := range r.records {
		server, special, found := strings.Cut(one.Server, ",")
		if strings.HasPrefix(server, "FANOUT_TEST_") {
			if server = labels[server]; server == "" {
				continue // this run is about others
			}
		}
		if one.Server = server; found {
			one.Server += "," + special
		}
		err = errors.Join(err, lines.Encode(one))
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("testreport: %w", err)
	}
	return nil
}

// writeTable adds up the records of a run, and writes the result and the table of a document.
func writeTable(records, result, document string) error {
	file, err := os.Open(records) //nolint:gosec // the caller's
	if err != nil {
		return fmt.Errorf("testreport: %w", err)
	}
	defer file.Close()
	servers, err := testedwith.Collect(file)
	if err != nil {
		return err
	}
	sum := testedwith.Result{
		Date:    time.Now().UTC().Format(time.DateOnly),
		Machine: fmt.Sprintf("%s on %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH), Servers: servers,
	}
	text, err := os.ReadFile(document) //nolint:gosec // the caller's
	if err == nil {
		text, err = testedwith.Splice(text, sum.Table())
	}
	if err != nil {
		return fmt.Errorf("testreport: %w", err)
	}
	said, err := json.MarshalIndent(sum, "", "  ")
	if err != nil {
		return fmt.Errorf("testreport: %w", err)
	}
	return errors.Join(
		os.WriteFile(result, append(said, '\n'), 0o644), //nolint:gosec // a document
		os.WriteFile(document, text, 0o644),             //nolint:gosec // as above
	)
}
