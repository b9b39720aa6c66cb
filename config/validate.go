package config

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/internal/dbtable"
	"github.com/gorm-fanout/fanout/outbox"
)

// Validate says what is wrong with a configuration that was made in Go, or changed there: names, brokers
// that are listed and not there, delays that do not go together, the settings of brokers. It connects to
// nothing. The error is an *Error, whose problems have no lines. fanout.Open calls it.
func (c *Config) Validate() error {
	v := &validation{cfg: c}
	for _, name := range slices.Sorted(maps.Keys(c.Databases)) {
		v.checkName("databases", name)
		v.checkDriver(join("databases", name), c.Databases[name].Driver)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Consumers)) {
		consumer, path := c.Consumers[name], join("consumers", name)
		v.checkName("consumers", name)
		v.checkDriver(path, consumer.Driver)
		if consumer.DSN.Reveal() == "" {
			v.problemf(path, "dsn is missing: use the connection string of the database with the consumer's inbox")
		}
		if consumer.Table != "" && dbtable.CheckName(consumer.Table, "inbox_messages") != nil {
			v.problemf(path+".table", "%s is no table name: use letters, digits and underscores (at most 48)", shown(consumer.Table))
		}
		if consumer.Broker != "" && !slices.Contains(c.BrokerNames(), consumer.Broker) {
			v.problemf(path+".broker", "no messages are delivered to a broker %q%s", consumer.Broker, suggest(consumer.Broker, c.BrokerNames()))
		}
	}
	v.checkTenants()
	v.checkReferences()
	if err := c.Routing().Validate(); err != nil {
		v.problemf("outbox", "%s", err)
	}
	places := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Brokers)) {
		v.checkBroker(name, places)
	}
	if len(v.problems) > 0 {
		return &Error{Problems: v.problems}
	}
	return nil
}

type validation struct {
	cfg      *Config
	problems []Problem
}

func (v *validation) problemf(path, format string, args ...any) {
	message := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ")
	v.problems = append(v.problems, Problem{Path: path, Message: message})
}

func (v *validation) checkDriver(path string, driver outbox.Dialect) {
	if _, err := outbox.ParseDialect(string(driver)); err != nil {
		v.problemf(path+".driver", "is %q: use %s", driver, outbox.DialectNames)
	}
}

func (v *validation) checkName(section, name string) {
	if !namePattern.MatchString(name) {
		v.problemf(section, "name %s: use letters, digits, _ and -, at most 63", shown(name))
	}
}

func (v *validation) checkReferences() {
	names := slices.Sorted(maps.Keys(v.cfg.Brokers))
	used := v.cfg.BrokerNames()
	if internal := used[0]; !slices.Contains(names, internal) {
		v.problemf("outbox.internal_broker", "brokers has no entry %q%s", internal, suggest(internal, names))
	}
	for i, external := range used[1:] {
		path := fmt.Sprintf("outbox.external_brokers[%d]", i)
		switch {
		case external == used[0]:
			v.problemf(path, "internal broker %q is also listed as external: its rows would collide; remove it here", external)
		case slices.Contains(used[1:i+1], external):
			v.problemf(path, "duplicate external broker %q", external)
		case !slices.Contains(names, external):
			v.problemf(path, "brokers has no entry %q%s", external, suggest(external, names))
		}
	}
}

func (v *validation) checkBroker(name string, places map[string]string) {
	v.checkName("brokers", name)
	broker, policy, path := v.cfg.Brokers[name], v.cfg.Policy(name), join("brokers", name)
	if err := policy.Validate(); err != nil {
		v.problemf(path, "%s", err)
	}
	if _, err := signingKeys(broker.Sign); err != nil {
		v.problemf(join(path, signKey), "%s", withoutPackage(err))
	}
	if broker.Settings == nil {
		return // of a type that is linked elsewhere
	}
	section := &goSection{
		validation: v, settings: reflect.Indirect(reflect.ValueOf(broker.Settings)), path: path, internal: name == v.cfg.BrokerNames()[0], timeout: policy.PublishTimeout,
		signed: len(broker.Sign) > 0,
	}
	broker.Settings.Check(section)
	for _, server := range section.place.Servers {
		at := fmt.Sprintf("%T %q %q %q", broker.Settings, server, section.place.Inside, cmp.Or(broker.Destination, "{stream}"))
		first, there := places[at]
		if !there {
			places[at] = name
		} else if internal := v.cfg.BrokerNames()[0]; first != name && (!section.place.Partners || internal == name || internal == first) {
			v.problemf(path, samePlace, first, section.place.Elsewhere)
			break
		}
	}
}

// goSection is a broker that was made in Go, as its adapter's settings see it when they are checked: a
// key is there where its field is not zero.
type goSection struct {
	*validation

	settings reflect.Value
	path     string
	internal bool
	timeout  time.Duration
	signed   bool // the broker has keys, which are no setting of its adapter's
	place    adapter.Place
}

var _ adapter.Section = (*goSection)(nil)

// Has implements adapter.Section.
func (s *goSection) Has(key string) bool {
	if key == signKey {
		return s.signed
	}
	value := valueOf(s.settings, key)
	return value.IsValid() && !value.IsZero()
}

// valueOf is the field of a key; not valid where there is none.
func valueOf(settings reflect.Value, key string) reflect.Value {
	if settings.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	below := reflect.Value{} // a field of which the key is a part, or the other way round
	for _, field := range fieldsOf(settings.Type()) {
		tagged, _, _ := strings.Cut(field.Tag.Get("config"), ",")
		value := settings.FieldByIndex(field.Index)
		rest, inside := strings.CutPrefix(key, tagged+".")
		switch {
		case tagged == key:
			return value
		case inside:
			return valueOf(reflect.Indirect(value), rest)
		case strings.HasPrefix(tagged, key+".") && !value.IsZero():
			below = value
		}
	}
	return below
}

// Sound implements adapter.Section.
func (s *goSection) Sound(keys ...string) bool {
	return !slices.ContainsFunc(s.problems, func(p Problem) bool {
		return slices.ContainsFunc(keys, func(key string) bool { return p.Path == join(s.path, key) })
	})
}

// Rejectf implements adapter.Section.
func (s *goSection) Rejectf(key, format string, args ...any) {
	if s.Sound(key) {
		s.problemf(join(s.path, key), format, args...)
	}
}

// Removef implements adapter.Section.
func (s *goSection) Removef(key, format string, args ...any) {
	if s.Has(key) {
		s.Rejectf(key, format, args...)
	}
}

// Require implements adapter.Section.
func (s *goSection) Require(key, example string) bool {
	has := s.Has(key)
	if !has {
		s.problemf(s.path, "%s is missing: use %s", key, example)
	}
	return has
}

// Warnf implements adapter.Section. A program is not warned.
func (s *goSection) Warnf(string, string, ...any) {}

// Place implements adapter.Section.
func (s *goSection) Place(place adapter.Place) { s.place = place }

// Internal implements adapter.Section.
func (s *goSection) Internal() bool { return s.internal }

// PublishTimeout implements adapter.Section.
func (s *goSection) PublishTimeout() time.Duration { return s.timeout }
