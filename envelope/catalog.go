package envelope

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Catalog names the event types of one bounded context. Build it with
// [NewCatalog], fill it with [Register], check it with [Catalog.Err] once at
// start-up. All methods are safe for concurrent use, Register meanwhile too.
type Catalog struct {
	context   string
	prefix    string // of wire types: "Ordering."
	camelCase bool

	write   sync.Mutex               // serialises registrations
	entries atomic.Pointer[registry] // replaced as a whole: Seal reads without a lock
}

// registry is one immutable state of a catalog.
type registry struct {
	byType   map[reflect.Type]*EventType
	byWire   map[string]*EventType
	outside  map[string]reflect.Type // what partners get under a wire type
	refused  map[reflect.Type]error  // types whose registration failed
	sorted   []*EventType            // by wire type
	problems []error
}

// NewCatalog returns the empty catalog of a bounded context. Its name, in lower
// snake_case such as "ordering" or "order_handling", begins every stream
// (ordering::order-42) and, in PascalCase, every wire type
// (Ordering.OrderPlaced.v1). A bad name is reported by [Catalog.Err].
func NewCatalog(context string, opts ...CatalogOption) *Catalog {
	c := &Catalog{context: context, prefix: pascalCase(context) + "."}
	for _, opt := range opts {
		if opt != nil {
			opt(c)
		}
	}
	empty := &registry{}
	if !isContextName(context) {
		remedy := `use a name such as "ordering"`
		if better := snakeCase(context); isContextName(better) {
			remedy = fmt.Sprintf("use %q", better)
		}
		empty.problems = []error{&RegisterError{
			Subject: fmt.Sprintf("create catalog %q", context),
			Cause:   errors.New("the name of a context is lower snake_case: a-z, 0-9 and single underscores, a letter first"),
			Remedy:  remedy,
		}}
	}
	c.entries.Store(empty)
	return c
}

// A CatalogOption is for [NewCatalog].
type CatalogOption func(*Catalog)

// WithCamelCase gives fields of events that have no name in their json tag one in camelCase: OrderID leaves as orderId,
// HTTPServer as httpServer, IDs as ids (an acronym is a word as any other: Google Java Style Guide, section 5.3). Without
// it they leave under their Go names. It holds inside and outside, for the types of contracts ([As]), and in structs
// within structs, embedded ones, pointers, slices, arrays and values of maps. These stay as they are: names in tags, keys of maps, values of types with a
// MarshalJSON or MarshalText of their own, and what is in fields of interface types, such as any, whose type no catalog
// knows.
//
// Consumers need nothing for it: encoding/json, and so [DataAs], matches names in any case. Two fields of a struct that
// they could not tell apart then are refused by [Register]. Messages change for partners who match case, as JSON has it:
// give the option to a new catalog, or tell them.
func WithCamelCase() CatalogOption { return func(c *Catalog) { c.camelCase = true } }

// CamelCase reports whether the catalog was given [WithCamelCase].
func (c *Catalog) CamelCase() bool { return c.camelCase }

// Context returns the name given to [NewCatalog].
func (c *Catalog) Context() string { return c.context }

// Err returns all problems of the catalog joined, each naming the event type and
// the remedy, or nil. The parts are *[RegisterError] and *[OptionError]. A type
// whose registration had a problem is not in the catalog.
func (c *Catalog) Err() error { return errors.Join(c.entries.Load().problems...) }

// Lookup returns the registered type of an event. The error is an
// *[UnregisteredError], showing the line to add, or a *[PointerEventError].
func (c *Catalog) Lookup(event any) (*EventType, error) {
	t := reflect.TypeOf(event)
	entries := c.entries.Load()
	if et, ok := entries.byType[t]; ok {
		return et, nil
	}
	if t != nil && t.Kind() == reflect.Pointer && !isProtobuf(t) {
		return nil, &PointerEventError{Type: t}
	}
	return nil, &UnregisteredError{Type: t, Context: c.context, Refused: entries.refused[t]}
}

// Types returns all event types, sorted by wire type.
func (c *Catalog) Types() []*EventType { return slices.Clone(c.entries.Load().sorted) }

// ByWireType returns the event type of that wire type, such as
// "Ordering.OrderPlaced.v1".
func (c *Catalog) ByWireType(t string) (*EventType, bool) {
	et, ok := c.entries.Load().byWire[t]
	return et, ok
}

// ValidateCloudEvents reports, joined, every extension of a published event type,
// among those that are named, that a broker with format cloudevents cannot take:
// call it at start-up with the extensions that leave to such a broker. Extensions
// of single events and of the context are checked by [Message.MarshalCloudEvent].
func (c *Catalog) ValidateCloudEvents(extensions ...string) error {
	var problems []error
	for _, t := range c.entries.Load().sorted {
		if !t.Published() {
			continue
		}
		for _, x := range t.settings.extensions {
			if !slices.Contains(extensions, x.name) {
				continue
			}
			value, err := normalize(x.value)
			if err == nil {
				err = checkCloudEventExtension(x.name, value)
			}
			if err != nil {
				problems = append(problems, &RegisterError{"check event " + goName(t.goType) + " for CloudEvents", err, cloudEventRemedy})
			}
		}
	}
	return errors.Join(problems...)
}

// update replaces the registry with a copy that change has worked on. Copying
// makes a registration O(n), paid at start-up; reads pay nothing.
func (c *Catalog) update(change func(*registry)) {
	c.write.Lock()
	defer c.write.Unlock()
	old := c.entries.Load()
	next := &registry{
		byType:   cloneMap(old.byType),
		byWire:   cloneMap(old.byWire),
		outside:  cloneMap(old.outside),
		refused:  cloneMap(old.refused),
		problems: slices.Clone(old.problems),
	}
	change(next)
	next.sorted = slices.SortedFunc(maps.Values(next.byType), func(a, b *EventType) int {
		return strings.Compare(a.wireType, b.wireType)
	})
	c.entries.Store(next)
}

func cloneMap[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return make(map[K]V)
	}
	return maps.Clone(m)
}
