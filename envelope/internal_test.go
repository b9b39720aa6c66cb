package envelope

import (
	"errors"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/gowebpki/jcs"
	"github.com/stretchr/testify/require"
)

// Without randomness from the operating system an id is still a UUIDv7 of its
// time, and no other's.
func TestNewIDWithoutRandomness(t *testing.T) {
	t.Parallel()
	broken := func() (uuid.UUID, error) { return uuid.Nil, errors.New("no entropy") }
	now := time.UnixMilli(1_772_368_245_120)
	seen := make(map[uuid.UUID]bool)
	for range 1000 {
		id := newID(broken, now)
		require.Equal(t, uuid.Version(7), id.Version())
		require.Equal(t, uuid.RFC4122, id.Variant())
		seconds, nanos := id.Time().UnixTime()
		require.Equal(t, now.UnixMilli(), time.Unix(seconds, nanos).UnixMilli())
		require.False(t, seen[id])
		seen[id] = true
	}
}

// canonicalSamples tells apart what is canonical on sight from what is not.
var canonicalSamples = map[string]bool{
	`{}`: true, `[]`: true, `null`: true, `true`: true, `"a"`: true, `0`: true, `-1.5`: true,
	`{"b":1,"a":{"d":[1,2,{}],"c":null}}`:       true,
	" {\n\t\"b\" : 1 , \"a\" : [ 1 , 2 ] }\r\n": true,
	`{"a\n":1}`: false, `{"ä":1}`: false, `{"a":"ä\n\t\"\\\b\f\r"}`: true,
	`"\u000b"`: false, `"\/"`: false, `"\u2028"`: false, `"<>&"`: true,
	`999999999999999`: true, `9999999999999999`: false, `-0`: false, `0.000001`: true, `0.0000001`: false,
	`-0.5`: true, `1.50`: false, `1.0`: false, `1e3`: false, `1E3`: false, `0.0`: false, `123456.789`: true,
	`{"a":1,"a":2}`: false, `{"a":1,"b":2,"a":3}`: false, `01`: false, `-`: false, `1.`: false, `tru`: false,
	`{`: false, `[`: false, `[1,]`: false, `{"a":1,}`: false, `{"a"}`: false, `{a:1}`: false, `{,}`: false,
	`"`: false, `"\`: false, "\"\x01\"": false, "\"\xff\"": false, `1 2`: false, ``: false, `{}}`: false,
	`{"ab":1,"a":2,"b":{"z":1,"y":{"x":1,"w":2}},"A":3,"":4}`: true,
}

func TestCanonicalOnSight(t *testing.T) {
	t.Parallel()
	var c canonicalizer // reused, as from the pool
	for in, want := range canonicalSamples {
		require.Equal(t, want, c.transform([]byte(in)), in)
		compareWithLibrary(t, &c, []byte(in))
	}
}

// compareWithLibrary: what we call canonical is what the library calls so.
func compareWithLibrary(t *testing.T, c *canonicalizer, data []byte) {
	t.Helper()
	if !c.transform(data) {
		return
	}
	want, err := jcs.Transform(data)
	require.NoError(t, err, "%q", data)
	require.Equal(t, string(want), string(c.out), "%q", data)
}

func FuzzCanonical(f *testing.F) {
	for sample := range canonicalSamples {
		f.Add([]byte(sample))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var c canonicalizer
		compareWithLibrary(t, &c, data)
	})
}

// Events know the registrations of their type, but keep no catalog alive.
func TestRegistrationsAreForgotten(t *testing.T) {
	t.Parallel()
	type forgotten struct{ Key string }
	register := func(c *Catalog) { Register[forgotten](c, Key(func(f forgotten) string { return f.Key })) }
	kept := NewCatalog("ordering")
	register(kept)
	require.Eventually(t, func() bool {
		for range 10 {
			register(NewCatalog("ordering"))
		}
		runtime.GC()
		register(NewCatalog("ordering"))
		return len(registrations(reflect.TypeFor[forgotten]())) < 10
	}, 10*time.Second, time.Millisecond)
	runtime.GC()
	derived := NewEvent(forgotten{"a"}).raised.derived
	et, err := kept.Lookup(forgotten{})
	require.NoError(t, err)
	require.Same(t, et, derived[0].of)
	require.Equal(t, "a", derived[0].key(nil))
	require.Nil(t, derived[0].notBefore)
	runtime.KeepAlive(kept)
}
