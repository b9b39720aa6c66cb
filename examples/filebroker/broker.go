// Package filebroker is an adapter of one's own: a broker that appends each message to a file, one for
// each destination, as a line of JSON. It shows all that an adapter has: settings that Go and
// configurations share, how they are checked, and the broker.
//
//	brokers:
//	  archive:
//	    type: file
//	    directory: /var/lib/archive  # required
//	    max_message_bytes: 65536     # default: no limit
//	    unsynced: false              # default false; true = a message counts before it is on the disk
//
// A program that delivers links it by
//
//	relay, err := fanout.Open(ctx, cfg, fanout.WithBrokerType(filebroker.Type()))
//
// and no other line of any program, or of Fanout, has to know of it.
package filebroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"unicode/utf8"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

// Settings are those of one broker, in Go and in a configuration of type file.
type Settings struct {
	// Directory holds the files. It must exist. Required.
	Directory string `config:"directory"`
	// MaxMessageBytes is the largest payload. Default: 0, no limit.
	MaxMessageBytes int `config:"max_message_bytes,max=16777216"`
	// Unsynced confirms messages before they are on the disk. Default: false.
	Unsynced bool `config:"unsynced"`
}

// Type is the type file of configurations.
func Type() adapter.Type {
	return adapter.Type{Name: "file", New: func() adapter.Settings { return new(Settings) }}
}

// Check implements adapter.Settings.
func (s *Settings) Check(section adapter.Section) {
	if !section.Require("directory", "/var/lib/archive") || !section.Sound("directory") {
		return
	}
	if !filepath.IsAbs(s.Directory) {
		section.Rejectf("directory", "must be an absolute path")
	}
	section.Place(adapter.Place{Servers: []string{filepath.Clean(s.Directory)}, Elsewhere: "directory"})
}

// Open implements adapter.Settings by the function Open.
func (s *Settings) Open(context.Context, string) (brokers.Broker, error) {
	b, err := Open(*s)
	if err != nil {
		return nil, err // and not a broker that is a nil *Broker
	}
	return b, nil
}

// Broker appends messages to files. All methods are safe for concurrent use.
type Broker struct {
	settings Settings
	gate     adapter.Gate
	mu       sync.Mutex
}

// Open returns a broker.
func Open(settings Settings) (*Broker, error) {
	if settings.Directory == "" {
		return nil, errors.New("filebroker: open: Directory is empty: name a directory that exists")
	}
	return &Broker{settings: settings}, nil
}

// Publish implements brokers.Broker.
func (b *Broker) Publish(ctx context.Context, msgs []brokers.Message) []brokers.Result {
	if !b.gate.Enter() {
		return adapter.Closed(msgs)
	}
	defer b.gate.Leave()
	var call adapter.Call // knows what is behind a failed message of its key, and what an outage closes
	call.Begin(msgs, nil)
	for i := range msgs {
		if !call.Admit(ctx, i) {
			continue
		}
		m, omitted := fitting(msgs[i])
		call.Omit(i, omitted)
		if err := b.write(&m); err != nil {
			call.Fail(i, fmt.Errorf("filebroker: publish to %q: %w", msgs[i].Destination, err))
		} else {
			call.Confirm(i, "")
		}
	}
	return call.Results(ctx)
}

// fitting leaves out the texts that JSON cannot carry, which the result of the message names.
func fitting(m brokers.Message) (fits brokers.Message, omitted []string) {
	attributes := m.Attributes
	m.Attributes = nil // the message is the caller's
	for _, a := range attributes {
		if utf8.ValidString(a.Name) && utf8.ValidString(a.Value) {
			m.Attributes = append(m.Attributes, a)
		} else {
			omitted = append(omitted, a.Name)
		}
	}
	if !utf8.ValidString(m.CorrelationID) {
		m.CorrelationID, omitted = "", append(omitted, brokers.FieldCorrelationID)
	}
	return m, omitted
}

func (b *Broker) write(m *brokers.Message) error {
	if most := b.settings.MaxMessageBytes; most > 0 && len(m.Payload) > most {
		return brokers.Permanent(fmt.Errorf("the payload has %d bytes, at most %d are allowed (max_message_bytes)", len(m.Payload), most))
	}
	name := url.PathEscape(m.Destination)
	if name == "" || len(name) > 200 {
		return brokers.Permanent(fmt.Errorf("no file can have the destination's name, of %d bytes", len(name)))
	}
	line, err := json.Marshal(m)
	if err != nil {
		return brokers.Permanent(err)
	}
	b.mu.Lock() // a line is written whole
	defer b.mu.Unlock()
	file, err := os.OpenFile(filepath.Join(b.settings.Directory, name+".jsonl"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // the name is escaped
	if err == nil {
		_, err = file.Write(append(line, '\n'))
		if err == nil && !b.settings.Unsynced {
			err = file.Sync()
		}
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return brokers.Unavailable(brokers.ScopeBroker, adapter.Advise(err, "check the directory, its rights, and the space on its disk"))
	}
	return nil
}

// Capabilities implements brokers.Broker.
func (b *Broker) Capabilities() brokers.Capabilities {
	return brokers.Capabilities{Ordering: true, MaxMessageBytes: b.settings.MaxMessageBytes}
}

// Ping implements brokers.Broker.
func (b *Broker) Ping(ctx context.Context) error {
	if !b.gate.Enter() {
		return brokers.ErrClosed
	}
	defer b.gate.Leave()
	if err := ctx.Err(); err != nil {
		return err
	}
	if info, err := os.Stat(b.settings.Directory); err != nil || !info.IsDir() {
		return brokers.Unavailable(brokers.ScopeBroker, fmt.Errorf("filebroker: %s is no directory that can be read", b.settings.Directory))
	}
	return nil
}

// Close implements brokers.Broker. It waits for calls of Publish, as long as ctx lasts.
func (b *Broker) Close(ctx context.Context) error {
	_, err := b.gate.Close(ctx)
	return err
}
