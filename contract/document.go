// Package contract describes what leaves an application: for each external broker its format, flat
// fields, envelope and extensions, and for each published event type where it goes, what orders it,
// and a JSON Schema of its data. The description is a file that belongs in the repository, so that
// a change of what partners get is a change of the file, which [Document.Changes] calls breaking or
// compatible.
//
// Package fanouttest keeps the file: see fanouttest.Contract. The command "fanout contract"
// compares two of them, and makes AsyncAPI of one.
package contract

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/jsonschema"
	"github.com/gorm-fanout/fanout/internal/strictjson"
)

// Document is what leaves an application. Its fields are the file's: [Document.Describe] fills it
// from a program, encoding/json from a file, and writes it. The zero value describes an application
// of which nothing leaves. It is safe for concurrent use while it is not filled.
type Document struct{ file file }

// unordered is the key of an event type without an order.
const unordered = "none"

// version of the file's form.
const version = 1

// Bounds on a file. A contract of a hundred types with fifty fields each is under a megabyte.
const (
	maxBytes   = 8 << 20
	maxBrokers = 1000
	maxTypes   = 10_000
	maxName    = 1000 // bytes
)

// file is the form on disk.
type file struct {
	Version int    `json:"fanout_contract"`
	Context string `json:"context"`
	// Warnings are for who writes the events. They are no part of what is promised.
	Warnings []string           `json:"warnings,omitempty"`
	Brokers  map[string]*broker `json:"brokers"`
}

// broker is what leaves to one external broker.
type broker struct {
	Format      envelope.Format `json:"format"`
	ContentType string          `json:"content_type"`
	// Headers are the flat fields beside the payload: an object of strings.
	Headers *jsonschema.Schema `json:"headers"`
	// Envelope is the payload without data and extensions.
	Envelope *jsonschema.Schema `json:"envelope"`
	// BareHeaders are the flat fields beside a payload that is the data alone, without an envelope, where there is a type of
	// which this is so.
	BareHeaders *jsonschema.Schema `json:"bare_headers,omitempty"`
	// Extensions that the broker lists, by their names on the wire.
	Extensions map[string]*jsonschema.Schema `json:"extensions,omitempty"`
	Types      map[string]*eventType         `json:"types"`
}

// eventType is what leaves of the events of one type, by its wire type.
type eventType struct {
	// Destination is a template: {stream} and {aggregate} depend on what raises the event, {destination} on
	// a function of the type's.
	Destination string `json:"destination"`
	// Key is what orders the messages: aggregate, event or none.
	Key string `json:"key"`
	// Headers are flat fields of the type's own, any of which can be absent.
	Headers []string `json:"headers,omitempty"`
	// FQN is the Go type, where the broker gets it.
	FQN string `json:"fqn,omitempty"`
	// ContentType of the data, where it leaves in an encoding of its own, and Layout what the bytes hold. With format native
	// the payload is the data alone; with cloudevents it is in data_base64.
	ContentType string `json:"content_type,omitempty"`
	Layout      layout `json:"layout,omitempty"`
	// Data is the schema of the data as JSON.
	Data *jsonschema.Schema `json:"data"`
}

// MarshalJSON writes the document as its file has it, but for the white space.
func (d *Document) MarshalJSON() ([]byte, error) {
	written := d.file
	written.Version = version
	if written.Brokers == nil {
		written.Brokers = map[string]*broker{}
	}
	return json.Marshal(written)
}

// UnmarshalJSON reads a document. The error says what a file has that this package did not write:
// members of another name or twice, schemas beyond what it knows, or more than 8 MiB.
func (d *Document) UnmarshalJSON(text []byte) error {
	if len(text) > maxBytes {
		return fmt.Errorf("contract: read the file: it has more than %d bytes", maxBytes)
	}
	var read file
	err := strictjson.UnmarshalKnown(text, &read)
	if err == nil {
		err = read.check()
	}
	if err != nil {
		return fmt.Errorf("contract: read the file: %w", err)
	}
	d.file = read
	return nil
}

func (f *file) check() error {
	if f.Version != version {
		return fmt.Errorf("fanout_contract is %d: this version of the library reads %d", f.Version, version)
	}
	if len(f.Brokers) > maxBrokers {
		return fmt.Errorf("there are more than %d brokers", maxBrokers)
	}
	for name, b := range f.Brokers {
		if len(name) > maxName {
			return errName
		}
		if err := b.check(); err != nil {
			return fmt.Errorf("broker %.60q: %w", name, err)
		}
	}
	return nil
}

var errName = fmt.Errorf("the name of a broker, type, extension or header has more than %d bytes", maxName)

var errMissing = errors.New("a member is missing or null: headers, envelope, or the data of a type")

func (b *broker) check() error {
	if b == nil || b.Headers == nil || b.Envelope == nil {
		return errMissing
	}
	if len(b.Types) > maxTypes {
		return fmt.Errorf("there are more than %d types", maxTypes)
	}
	problems := []error{b.Headers.Check(), b.Envelope.Check()}
	if b.BareHeaders != nil {
		problems = append(problems, b.BareHeaders.Check())
	}
	for name, s := range b.Extensions {
		switch {
		case s == nil:
			return errMissing
		case len(name) > maxName:
			return errName
		}
		problems = append(problems, s.Check())
	}
	for name, t := range b.Types {
		switch err := t.check(); {
		case errors.Is(err, errMissing):
			return err
		case errors.Is(err, errName), len(name) > maxName:
			return errName
		case err != nil:
			problems = append(problems, fmt.Errorf("%.60q: %w", name, err))
		}
	}
	return errors.Join(problems...)
}

func (t *eventType) check() error {
	if t == nil || t.Data == nil {
		return errMissing
	}
	if len(t.Headers) > maxTypes || len(t.ContentType) > maxName || slices.ContainsFunc(t.Headers, func(header string) bool { return len(header) > maxName }) {
		return errName
	}
	return t.Data.Check()
}

// Warnings are about events that make poor contracts: fields that have no name in JSON, so that
// renaming one in Go is breaking, and types that write their JSON themselves, of which a contract
// cannot tell what they write.
func (d *Document) Warnings() []string { return slices.Clone(d.file.Warnings) }

// Changes reports how a later document differs, each change in a line that says where it is and
// what it is. A change is breaking when a partner that relies on d has to do something: what it
// reads no longer comes (a broker, a type, a field, a header, a value of an enum), or what it did
// not have to expect does (null, another type, a new value of an enum, another destination or
// order). Everything else is compatible: a further type or field, a field that is always there now.
// The error is for schemas that are too complex to compare.
func (d *Document) Changes(later *Document) (breaking, compatible []string, err error) {
	report := func(breaks bool, path, change string) {
		line := path + ": " + change
		if breaks {
			breaking = append(breaking, line)
		} else {
			compatible = append(compatible, line)
		}
	}
	err = eachPair(d.file.Brokers, later.file.Brokers, "", report, func(path string, before, after *broker) error {
		return before.changes(after, path, report)
	})
	return breaking, compatible, err
}

func (b *broker) changes(after *broker, path string, report jsonschema.Report) error {
	change := changer(report)
	if b.Format != after.Format { // then all of the envelope is another one
		report(true, path, fmt.Sprintf("format changed from %s to %s", b.Format, after.Format))
	} else {
		change(path, "content type", b.ContentType, after.ContentType)
		if err := jsonschema.Compare(b.Envelope, after.Envelope, path+": envelope", report); err != nil {
			return err
		}
		err := eachPair(b.Extensions, after.Extensions, path+": extension ", report, func(at string, before, after *jsonschema.Schema) error {
			return jsonschema.Compare(before, after, at, report)
		})
		if err != nil {
			return err
		}
	}
	if err := jsonschema.Compare(b.Headers, after.Headers, path+": headers", report); err != nil {
		return err
	}
	if b.BareHeaders != nil && after.BareHeaders != nil {
		if err := jsonschema.Compare(b.BareHeaders, after.BareHeaders, path+": headers without an envelope", report); err != nil {
			return err
		}
	}
	return eachPair(b.Types, after.Types, path+": ", report, func(at string, before, after *eventType) error {
		change(at, "destination", before.Destination, after.Destination)
		if before.FQN != "" && after.FQN != "" { // that it comes at all is in the envelope
			change(at, "fqn", before.FQN, after.FQN)
		}
		if before.Key != after.Key {
			// Order where there was none is a further promise; by something else, it is another one.
			report(before.Key != unordered, at, fmt.Sprintf("ordering key changed from %s to %s", before.Key, after.Key))
		}
		b.headerChanges(before, after, at, report)
		return before.dataChanges(after, at, report)
	})
}

// headerChanges compares the headers of a type.
func (b *broker) headerChanges(before, after *eventType, at string, report jsonschema.Report) {
	for _, name := range before.Headers {
		if !slices.Contains(after.Headers, name) {
			report(true, at+": header "+name, "removed")
		}
	}
	for _, name := range after.Headers {
		if slices.Contains(before.Headers, name) {
			continue
		}
		if b.Headers.Properties[name] != nil { // the event's own wins
			report(true, at+": header "+name, "added in place of the broker's")
			continue
		}
		report(false, at+": header "+name, "added")
	}
}

// dataChanges compares the data in the encoding that leaves.
func (t *eventType) dataChanges(after *eventType, at string, report jsonschema.Report) error {
	changer(report)(at, "content type", cmp.Or(t.ContentType, jsonType), cmp.Or(after.ContentType, jsonType))
	switch {
	case (t.ContentType == "") != (after.ContentType == ""): // all of it is another one
		return nil
	case t.Layout != nil && after.Layout != nil:
		t.Layout.changes(after.Layout, at, report)
		return nil
	}
	return jsonschema.Compare(t.Data, after.Data, at+": data", report)
}

var jsonType = envelope.FormatNative.ContentType()

func changer(report jsonschema.Report) func(path, what, before, after string) {
	return func(path, what, before, after string) {
		if before != after {
			report(true, path, fmt.Sprintf("%s changed from %q to %q", what, before, after))
		}
	}
}

// eachPair reports what only one of two maps has, and compares what both have, in the order of the
// names.
func eachPair[V any](before, after map[string]V, prefix string, report jsonschema.Report, compare func(path string, before, after V) error) error {
	for _, name := range slices.Sorted(maps.Keys(before)) {
		later, still := after[name]
		if !still {
			report(true, prefix+name, "removed")
			continue
		}
		if err := compare(prefix+name, before[name], later); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if _, known := before[name]; !known {
			report(false, prefix+name, "added")
		}
	}
	return nil
}

// title of the document for readers.
func (d *Document) title() string { return cmp.Or(d.file.Context, "application") + " events" }
