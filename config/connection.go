package config

import (
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/internal/nearest"
)

// keyPattern is what keys look like in this file.
var keyPattern = namePattern

// readConnection reads the type and the settings that are its adapter's. checked is false where the
// adapter is not linked, so that nothing can be said about keys that are not known here.
func (r *reader) readConnection(entry *object, broker *Broker) (checked bool) {
	kind, found := r.readType(entry, broker)
	if !found {
		return false
	}
	var settings adapter.Settings
	if kind.New != nil {
		settings = kind.New()
	}
	value := reflect.ValueOf(settings)
	if value.Kind() != reflect.Pointer || value.IsNil() || value.Elem().Kind() != reflect.Struct {
		r.problemf(entry.at, entry.path, "the adapter of type %s is wrong: New must return a pointer to a struct, but returns %T", kind.Name, settings)
		return false
	}
	entry.decode(value.Elem())
	r.refuseOthers(entry, kind)
	broker.Settings = settings
	return true
}

// readType reads the type of a broker; found is false where there is none, or one that is not linked.
func (r *reader) readType(entry *object, broker *Broker) (kind adapter.Type, found bool) {
	var names []string
	for _, linked := range r.types {
		names = append(names, linked.Name)
	}
	f := entry.text("type", &broker.Type)
	entry.require("type", suggest("", names))
	if f == nil {
		return adapter.Type{}, false
	}
	i := slices.Index(names, broker.Type)
	if i >= 0 {
		return r.types[i], true
	}
	switch misspelt := nearest.Of(f.source, names) != ""; {
	case misspelt, !namePattern.MatchString(broker.Type): // what is no name may be a secret
		r.rejectf(f, "%s is not known%s", shown(f.source), suggest(f.source, names))
		broker.Type = ""
	case len(names) > 0:
		r.unlinked = append(r.unlinked, r.newProblem(f.at, f.path, "%s is not linked by this program, so the settings of the connection are not checked; linked are %s",
			[]any{shown(f.source), either(names)}))
	}
	return adapter.Type{}, false
}

// refuseOthers refuses keys that types other than that of the broker take. None of them is
// recommended for one that is unknown.
func (r *reader) refuseOthers(entry *object, kind adapter.Type) {
	takes := keysOf(kind)
	var others []string
	for _, other := range r.types {
		for _, key := range keysOf(other) {
			if !slices.Contains(takes, key) {
				others = append(others, key)
			}
		}
	}
	entry.ignored = func(name string) bool { return slices.Contains(others, name) && !slices.Contains(takes, name) }
	for _, f := range entry.fields {
		if slices.Contains(others, f.name) && !slices.Contains(entry.known, f.name) {
			f.bad = true
			entry.known = append(entry.known, f.name)
			r.problemf(f.key, f.path, "does nothing for a broker of type %s: remove it", kind.Name)
		}
	}
}

// checkURL refuses what no client can read. Connection strings in other forms than a URL are the
// driver's to judge.
func (r *reader) checkURL(entry *object, name string, secret Secret) {
	f := entry.find(name)
	if f == nil || f.bad || !strings.Contains(secret.Reveal(), "://") {
		return
	}
	u, err := url.Parse(secret.Reveal())
	if err == nil && u.Port() != "" {
		var n uint64
		if n, err = strconv.ParseUint(u.Port(), 10, 16); n == 0 {
			err = strconv.ErrRange
		}
	}
	if err != nil { // whose text would quote the password
		r.rejectf(f, "cannot be read as a URL: check the port, and write special characters in the password as %%40 and the like")
	}
}
