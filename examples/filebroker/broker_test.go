package filebroker_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/brokertest"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/examples/filebroker"
)

// received are the messages in the file of a destination.
func received(t *testing.T, directory, destination string) (msgs []brokers.Message) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(directory, url.PathEscape(destination)+".jsonl"))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	for line := range bytes.Lines(text) {
		if line[len(line)-1] != '\n' {
			break // it is being written
		}
		var m brokers.Message
		require.NoError(t, json.Unmarshal(line, &m))
		msgs = append(msgs, m)
	}
	return msgs
}

func TestConformance(t *testing.T) {
	t.Parallel()
	directory := filepath.Join(t.TempDir(), "archive")
	require.NoError(t, os.Mkdir(directory, 0o700))
	var number atomic.Int64
	brokertest.Run(t, brokertest.Harness{
		Open: func(t *testing.T) brokers.Broker {
			b, err := filebroker.Open(filebroker.Settings{Directory: directory, MaxMessageBytes: 1 << 20, Unsynced: true})
			require.NoError(t, err)
			return b
		},
		OmitsText:   true,
		Destination: func(*testing.T) string { return fmt.Sprint("ordering::order", number.Add(1)) },
		Received:    func(t *testing.T, destination string) []brokers.Message { return received(t, directory, destination) },
		Stop:        func(t *testing.T) { require.NoError(t, os.Rename(directory, directory+".away")) },
		Start:       func(t *testing.T) { require.NoError(t, os.Rename(directory+".away", directory)) },
	})
}

// A configuration names the type, and nothing in Fanout has to know of it.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	source := "brokers:\n  default: {type: file, directory: " + directory + ", max_message_bytes: 5}\n"
	cfg, err := config.Parse([]byte(source), "fanout.yaml")
	require.NoError(t, err)
	_, err = fanout.OpenBroker(t.Context(), cfg, "default")
	require.ErrorContains(t, err, `broker "default": type "file" is not linked`)
	broker, err := fanout.OpenBroker(t.Context(), cfg, "default", fanout.WithBrokerType(filebroker.Type()))
	require.NoError(t, err)
	require.NoError(t, broker.Ping(t.Context()))
	results := broker.Publish(t.Context(), []brokers.Message{
		{ID: "1", Destination: "ordering::order", Payload: []byte("{}")}, {ID: "2", Destination: "ordering::order", Payload: []byte("too long")},
	})
	require.NoError(t, results[0].Err)
	require.ErrorContains(t, results[1].Err, "at most 5 are allowed")
	require.NoError(t, broker.Close(t.Context()))
	assert.Len(t, received(t, directory, "ordering::order"), 1)
}

// What is wrong is said with its line, before anything is opened.
func TestValidate(t *testing.T) {
	t.Parallel()
	_, err := config.Parse([]byte(`outbox: {external_brokers: [a, b, c]}
brokers:
  default: {type: file, directry: /x}
  a: {type: file, directory: x, max_message_bytes: 0}
  b: {type: file, directory: /y}
  c: {type: file, directory: /y/, unsynced: maybe}
`), "fanout.yaml", config.WithBrokerTypes(filebroker.Type()))
	require.Error(t, err)
	assert.Equal(t, []string{
		"fanout.yaml:3:3: brokers.default: directory is missing: use /var/lib/archive",
		`fanout.yaml:3:25: brokers.default: unknown key "directry": did you mean "directory"?`,
		"fanout.yaml:4:30: brokers.a.directory: must be an absolute path",
		`fanout.yaml:4:52: brokers.a.max_message_bytes: is "0": use 1 to 16777216`,
		`fanout.yaml:6:3: brokers.c: is the same place as broker "b": both would write to the same streams; use another directory, or a destination such as partner.{stream}`,
		"fanout.yaml:6:45: brokers.c.unsynced: must be true or false",
	}, strings.Split(err.Error(), "\n"))
}
