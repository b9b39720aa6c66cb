package fanouttest_test

import (
	"fmt"
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

// PublicOrder has versions that differ as those of a real one do.
type (
	publicOrder struct {
		ID    string `json:"id"`
		Total int    `json:"total"`
	}
	publicOrderMore struct {
		ID    string `json:"id"`
		Total int    `json:"total"`
		Note  string `json:"note,omitempty"`
	}
	publicOrderLess struct {
		ID   string
		Note string `json:"note"`
	}
)

func events[E any]() *envelope.Catalog {
	events := envelope.NewCatalog("ordering")
	envelope.Register[E](events, envelope.Published(), envelope.Name("OrderPlaced"))
	return events
}

// logging is a test whose log is kept.
type logging struct {
	*failing

	logged []string
}

func (l *logging) Logf(format string, args ...any) {
	l.logged = append(l.logged, fmt.Sprintf(format, args...))
}

// The environment is that of the process: no other test may run.
func TestContract(t *testing.T) {
	routing := outbox.Routing{External: []outbox.Route{{Broker: "partner"}}}
	path := filepath.Join(t.TempDir(), "testdata", "contract.json")
	check := func(events *envelope.Catalog) string {
		t.Helper()
		return failure(t, func(t fanouttest.TB) { fanouttest.Contract(t, events, routing, path) })
	}

	assert.Equal(t, "fanouttest: there is no contract "+path+": run the test with FANOUT_UPDATE_GOLDEN=1 to write it, and commit it", check(events[publicOrder]()))
	t.Setenv("FANOUT_UPDATE_GOLDEN", "1")
	fanouttest.Contract(t, events[publicOrder](), routing, path)
	t.Setenv("FANOUT_UPDATE_GOLDEN", "")
	fanouttest.Contract(t, events[publicOrder](), routing, path)
	t.Setenv("FANOUT_UPDATE_GOLDEN", "0")
	assert.Contains(t, check(events[publicOrderMore]()), "compatible (1)", "it is compared")
	t.Setenv("FANOUT_UPDATE_GOLDEN", "yes")
	assert.Equal(t, `fanouttest: FANOUT_UPDATE_GOLDEN is "yes": set it to 1 to write golden files, to 0 or not at all to compare them`, check(events[publicOrder]()))
	t.Setenv("FANOUT_UPDATE_GOLDEN", "")

	at := "partner: Ordering.OrderPlaced.v1: data"
	accept := "\nRun the test with FANOUT_UPDATE_GOLDEN=1 to write the file, and have the change reviewed."
	assert.Equal(t, "fanouttest: what leaves is not what "+path+" says: compatible (1)\n  compatible: "+at+".note: added"+accept, check(events[publicOrderMore]()))
	assert.Equal(t, "fanouttest: what leaves is not what "+path+" says: breaking (2), compatible (2)\n"+
		"  breaking: "+at+".id: removed\n  breaking: "+at+".total: removed\n  compatible: "+at+".ID: added\n  compatible: "+at+".note: added"+accept,
		check(events[publicOrderLess]()))
	assert.Contains(t, check(nil), "the catalog is nil")

	text, err := os.ReadFile(path)
	require.NoError(t, err)
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write(strings.ReplaceAll(string(text), "\n", "\r\n"))
	fanouttest.Contract(t, events[publicOrder](), routing, path)
	write(strings.TrimSpace(string(text)))
	assert.Contains(t, check(events[publicOrder]()), "compatible: the same is written otherwise")
	write("{}")
	assert.Contains(t, check(events[publicOrder]()), path+": contract: read the file: fanout_contract is 0")

	t.Setenv("FANOUT_UPDATE_GOLDEN", "1")
	logged := &logging{failing: &failing{T: t}}
	fanouttest.Contract(logged, events[publicOrderLess](), routing, path)
	assert.Len(t, logged.logged, 1)
	assert.Contains(t, logged.logged[0], "fanouttest: warning: fanouttest_test.publicOrderLess.ID has no JSON name")
}
