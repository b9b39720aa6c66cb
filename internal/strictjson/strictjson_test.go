package strictjson_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/strictjson"
)

type inner struct {
	Type string `json:"type"`
}

type embedded struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
}

type outer struct {
	embedded

	ID      int             `json:"id"`
	Headers inner           `json:"headers"`
	List    []*inner        `json:"list"`
	ByName  map[string]int  `json:"by_name"`
	At      time.Time       `json:"at"`
	Raw     json.RawMessage `json:"raw"`
	Any     any             `json:"any"`
	Again   *outer          `json:"again"`
	Untaged string
	Hidden  string `json:"-"`
}

func TestAmbiguous(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{
		{`{"id":1,"id":2}`, `member "id" occurs twice: leave one out`},
		{`{"id":1,"\u0069d":2}`, `member "id" occurs twice`},
		{`{"ID":1}`, `member "ID" is not "id": names are case-sensitive`},
		{`{"Kind":"x"}`, `member "Kind" is not "kind"`},
		{`{"\u212aind":"x"}`, `is not "kind"`},
		{`{"untaged":"x"}`, `member "untaged" is not "Untaged"`},
		{`{"headers":{"TYPE":"x"}}`, `member "headers.TYPE" is not "type"`},
		{`{"list":[ {"type":"a"} , {"Type":"b"} ]}`, `member "list.Type" is not "type"`},
		{`{"again":{"again":{"HEADERS":{}}}}`, `member "again.again.HEADERS" is not "headers"`},
		{`{"raw":{"a":[1,{"b":1,"b":2}]}}`, `member "raw.a.b" occurs twice`},
		{`{"any":{"x":1,"y":"\"}","x":1}}`, `member "any.x" occurs twice`},
		{`{"by_name":{"a":1,"a":2}}`, `member "by_name.a" occurs twice`},
		{`{"unknown":{"a":1,"a":2}}`, `member "unknown.a" occurs twice`},
		{`{"unknown":1,"unknown":2}`, `member "unknown" occurs twice`},
		{`{"raw":{` + members(100) + `,"n7":1},"id":1}`, `member "raw.n7" occurs twice`},
		{"{\"id\":1,\"x\":\"\xff\"}", `it is not valid UTF-8`},
		{`{"id":1} {"id":2}`, `after top-level value`},
		{`{"id":1`, `unexpected end of JSON input`},
		{`{"id":1,"list":[{"type":"\uD800"}],"id":true}`, `occurs twice`},
	} {
		text, want := c[0], c[1]
		var into outer
		require.ErrorContains(t, strictjson.Unmarshal([]byte(text), &into), want, text)
		assert.Equal(t, outer{}, into, "nothing is decoded of what is refused")
	}
}

func members(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`"n%d":%d`, i, i)
	}
	return strings.Join(list, ",")
}

func TestUnambiguous(t *testing.T) {
	t.Parallel()
	var into outer
	require.NoError(t, strictjson.Unmarshal([]byte(` { "id" : 7 , "kind":"k", "headers":{"type":"t\\\"","other":{"type":1,"TYPE":2}}, "list":[ ], "HIDDEN":1,
		"by_name":{"a":1,"A":2}, "at":"2026-01-02T03:04:05Z", "raw":{"X":1,"x":2,"n":{`+members(100)+`}}, "any":[null,-1.5e3,true,{"Z":1,"z":2}], "again":null } `), &into))
	assert.Equal(t, 7, into.ID)
	assert.Equal(t, "k", into.Kind)
	assert.Equal(t, `t\"`, into.Headers.Type)
	assert.Equal(t, map[string]int{"a": 1, "A": 2}, into.ByName, "a map keeps them apart")

	for _, text := range []string{`1`, `"x"`, `[]`, `null`, `{}`, ` [1 , 2] `} {
		var anything any
		require.NoError(t, strictjson.Unmarshal([]byte(text), &anything), text)
	}
}

func TestKnown(t *testing.T) {
	t.Parallel()
	var into inner
	require.ErrorContains(t, strictjson.UnmarshalKnown([]byte(`{"type":"a","other":1}`), &into), `unknown field "other"`)
	require.ErrorContains(t, strictjson.UnmarshalKnown([]byte(`{"type":"a","TYPE":"b"}`), &into), `is not "type"`)
	require.NoError(t, strictjson.UnmarshalKnown([]byte(`{"type":"a"}`), &into))
}

// A type that is not ours may rely on what encoding/json allows, unless it is ambiguous.
func TestLoose(t *testing.T) {
	t.Parallel()
	var into inner
	require.NoError(t, strictjson.UnmarshalLoose([]byte(`{"Type":"a"}`), &into))
	assert.Equal(t, "a", into.Type)
	require.ErrorContains(t, strictjson.UnmarshalLoose([]byte(`{"type":"a","TYPE":"b"}`), &into), `member "TYPE" occurs twice`)
	require.ErrorContains(t, strictjson.UnmarshalLoose([]byte(`{"TYPE":"a","Type":"b"}`), &into), `member "Type" occurs twice`)
}

func FuzzUnmarshal(f *testing.F) {
	for _, seed := range []string{`{"id":1,"ID":2}`, `{"headers":{"type":"\\"},"list":[{"type":""}]}`, `[[[]]]`, `{"a":"\u0022"}`, ` null `, `-1`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var strict, usual outer
		if strictjson.Unmarshal(text, &strict) == nil {
			require.NoError(t, json.Unmarshal(text, &usual), "what is taken is JSON")
			assert.Equal(t, usual, strict)
		}
	})
}
