package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/fanouttest"
	"github.com/gorm-fanout/fanout/outbox"
)

// contractFile is what an application's test writes.
func contractFile[E any](t *testing.T, name string) string {
	t.Helper()
	events := envelope.NewCatalog("ordering")
	envelope.Register[E](events, envelope.Published(), envelope.Name("OrderPlaced"))
	path := filepath.Join(t.TempDir(), name)
	t.Setenv("FANOUT_UPDATE_GOLDEN", "1")
	fanouttest.Contract(t, events, outbox.Routing{External: []outbox.Route{{Broker: "partner"}, {Broker: "audit"}}}, path)
	return path
}

// The environment is that of the process: no other test may run.
func TestContract(t *testing.T) {
	before := contractFile[struct {
		ID    string `json:"id"`
		Total int    `json:"total"`
	}](t, "before.json")
	after := contractFile[struct {
		ID   string `json:"id"`
		Note string `json:"note"`
	}](t, "after.json")
	runWith := func(stdin string, args ...string) (int, string, string) {
		var out, err bytes.Buffer
		code := run(t.Context(), append([]string{"contract"}, args...), strings.NewReader(stdin), &out, &err)
		return code, out.String(), err.String()
	}

	code, stdout, stderr := runWith("", "diff", before, after)
	assert.Equal(t, exitFailed, code)
	assert.Equal(t, "breaking: audit: Ordering.OrderPlaced.v1: data.total: removed\n"+
		"breaking: partner: Ordering.OrderPlaced.v1: data.total: removed\n"+
		"compatible: audit: Ordering.OrderPlaced.v1: data.note: added\n"+
		"compatible: partner: Ordering.OrderPlaced.v1: data.note: added\n", stdout)
	assert.Equal(t, "fanout: 2 breaking, 2 compatible: partners have to know before this is deployed\n", stderr)

	text, err := os.ReadFile(before)
	require.NoError(t, err)
	code, stdout, stderr = runWith(string(text), "diff", "-", before)
	assert.Zero(t, code, stderr)
	assert.Empty(t, stdout)

	code, stdout, stderr = runWith("", "asyncapi", before, "--broker", "partner", "--contract-version", "1.4.0")
	require.Zero(t, code, stderr)
	assert.True(t, json.Valid([]byte(stdout)))
	assert.Contains(t, stdout, `"version": "1.4.0"`)
	assert.NotContains(t, stdout, "audit")

	for reason, args := range map[string][]string{
		"there is no broker \"nowhere\"":                  {"asyncapi", before, "--broker", "nowhere"},
		`give "diff" the files ["OLD" "NEW"]`:             {"diff", before},
		"no such file":                                    {"diff", before, filepath.Join(t.TempDir(), "none.json")},
		"-: unexpected end of JSON input":                 {"asyncapi", "-"},
		`unknown command "nothing" for "fanout contract"`: {"nothing"},
	} {
		code, _, stderr := runWith("", args...)
		assert.Equal(t, exitUsage, code, args)
		assert.Contains(t, stderr, reason)
	}
}
