package fanouttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gorm-fanout/fanout/contract"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/golden"
	"github.com/gorm-fanout/fanout/outbox"
)

// Contract compares what leaves the application with a file in its repository, such as
// "testdata/contract.json": per external broker the format, flat fields, envelope and extensions,
// and per published event type the destination, what orders it, and a JSON Schema of its data.
// routing is the application's own, of config.Config.Routing.
//
// The test fails where anything differs, and says what, first what is breaking for partners, then
// what is compatible: see [contract.Document.Changes]. With FANOUT_UPDATE_GOLDEN=1 in its environment the
// test writes the file instead, whatever has changed; so it is written the first time, too, and the
// review of the file is where a change is accepted. The document's warnings, about fields without
// JSON names say, are in the file, and logged where t has a Logf, as *testing.T does.
func Contract(t TB, events *envelope.Catalog, routing outbox.Routing, path string) {
	t.Helper()
	current := new(contract.Document)
	if err := current.Describe(events, routing); err != nil {
		t.Fatalf("fanouttest: %v", err)
	}
	text, err := json.MarshalIndent(current, "", "  ")
	if err != nil {
		t.Fatalf("fanouttest: write the contract: %v", err)
	}
	text = append(text, '\n')
	if log, can := t.(interface {
		Logf(format string, args ...any)
	}); can {
		for _, warning := range current.Warnings() {
			log.Logf("fanouttest: warning: %s", warning)
		}
	}
	update, err := golden.Update()
	if err != nil {
		t.Fatalf("fanouttest: %v", err)
	}
	if update {
		if err := writeFile(path, text); err != nil {
			t.Fatalf("fanouttest: write the contract: %v", err)
		}
		return
	}
	written, err := os.ReadFile(path) //nolint:gosec // the test names its own file
	switch {
	case errors.Is(err, fs.ErrNotExist):
		t.Fatalf("fanouttest: there is no contract %s: run the test with %s=1 to write it, and commit it", path, golden.Variable)
	case err != nil:
		t.Fatalf("fanouttest: read the contract: %v", err)
	case bytes.Equal(bytes.ReplaceAll(written, []byte("\r\n"), []byte("\n")), text): // as Git writes it on Windows
		return
	}
	var agreed contract.Document
	if err := json.Unmarshal(written, &agreed); err != nil {
		t.Fatalf("fanouttest: %s: %v", path, err)
	}
	breaking, compatible, err := agreed.Changes(current)
	if err != nil {
		t.Fatalf("fanouttest: %s: %v", path, err)
	}
	t.Fatalf("fanouttest: what leaves is not what %s says: %s\nRun the test with %s=1 to write the file, and have the change reviewed.",
		path, summary(breaking, compatible), golden.Variable)
}

// summary lists changes, and gives the worst of them in the first line.
func summary(breaking, compatible []string) string {
	var out strings.Builder
	switch {
	case len(breaking) > 0:
		fmt.Fprintf(&out, "breaking (%d), compatible (%d)", len(breaking), len(compatible))
	case len(compatible) > 0:
		fmt.Fprintf(&out, "compatible (%d)", len(compatible))
	default:
		out.WriteString("compatible: the same is written otherwise, or the warnings differ")
	}
	for _, change := range breaking {
		out.WriteString("\n  breaking: " + change)
	}
	for _, change := range compatible {
		out.WriteString("\n  compatible: " + change)
	}
	return out.String()
}

// writeFile writes a golden file and its folder.
func writeFile(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
