package envelope_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// The golden files are the contract with consumers in other languages: a change
// in one of them breaks a consumer.
func TestGolden(t *testing.T) {
	t.Parallel()
	c := newCatalog(t)
	full := order42
	full.ExpectedVersion = ptr(int64(6))

	messages := map[string]*envelope.Message{
		"aggregate_minimal": seal(t, c, placed(), order42, envelope.Context{}),
		"aggregate_full": seal(t, c, placed(
			envelope.TTL(time.Hour+90*time.Second),
			envelope.Extension("attempt", 3),
			envelope.Extension("urgent", true),
		), full, fullContext()),
		"no_aggregate": seal(t, c, fixedEvent(StockReserved{SKU: "4006381333931", Quantity: 3}),
			envelope.Source{Sequence: 2}, envelope.Context{CorrelationID: "checkout-9"}),
	}
	for name, m := range messages {
		for form, marshal := range map[string]func() ([]byte, error){
			"internal":    m.MarshalInternal,
			"external":    func() ([]byte, error) { return m.MarshalExternal(envelope.Include{}) },
			"cloudevents": func() ([]byte, error) { return m.MarshalCloudEvent(envelope.CloudEventOptions{}) },
			"external.included": func() ([]byte, error) { // as the ancestor's consumers expect it
				caused := *m
				caused.Routing.CausePublished = true
				return caused.MarshalExternal(envelope.Include{FQN: true, OriginStream: true, IdempotencyKey: true, Nulls: true})
			},
			// With what a broker lists, and no more: the region stays.
			"external.listed": func() ([]byte, error) {
				return m.MarshalExternal(envelope.Include{}, "tenant_id", "actor", "attempt", "urgent", "missing")
			},
			"cloudevents.listed": func() ([]byte, error) {
				return m.MarshalCloudEvent(envelope.CloudEventOptions{Extensions: []string{"tenant_id", "actor", "attempt", "urgent", "missing"}})
			},
		} {
			t.Run(name+"/"+form, func(t *testing.T) {
				t.Parallel()
				got, err := marshal()
				require.NoError(t, err)
				compareGolden(t, filepath.Join("testdata", name+"."+form+".json"), got)
			})
		}
	}
}

// compareGolden compares indented JSON, which shows member order, nulls and the
// spelling of every value, and can be read in a diff. That the wire has no such
// blanks is checked as well.
func compareGolden(t *testing.T, file string, got []byte) {
	t.Helper()
	var compact, indented bytes.Buffer
	require.NoError(t, json.Compact(&compact, got))
	require.Equal(t, compact.String(), string(got), "the wire form is compact")
	require.NoError(t, json.Indent(&indented, got, "", "  "))
	indented.WriteByte('\n')
	if *update {
		require.NoError(t, os.WriteFile(file, indented.Bytes(), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "run go test ./envelope -update once")
	require.Equal(t, string(want), indented.String())
}
