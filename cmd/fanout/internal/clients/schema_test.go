package clients_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/cmd/fanout/internal/clients"
	"github.com/gorm-fanout/fanout/config"
)

// The schema in the repository is the one that the reader makes of itself.
func TestSchemaIsUpToDate(t *testing.T) {
	t.Parallel()
	const file = "../../../../config/fanout.schema.json"
	made := config.Schema(config.WithBrokerTypes(clients.Types()...))
	if os.Getenv("FANOUT_UPDATE_GOLDEN") == "1" {
		require.NoError(t, os.WriteFile(file, made, 0o600))
	}
	written, err := os.ReadFile(filepath.FromSlash(file))
	require.NoError(t, err)
	assert.Equal(t, string(written), string(made), "write it with FANOUT_UPDATE_GOLDEN=1")
}

// schema is the one of these types, of all where there are none, as an editor has it.
func schema(t *testing.T, opts ...config.Option) *jsonschema.Schema {
	t.Helper()
	if opts == nil {
		opts = []config.Option{config.WithBrokerTypes(clients.Types()...)}
	}
	made, err := jsonschema.UnmarshalJSON(bytes.NewReader(config.Schema(opts...)))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("fanout.schema.json", made))
	compiled, err := compiler.Compile("fanout.schema.json")
	require.NoError(t, err)
	return compiled
}

func asJSON(t *testing.T, value any) (document []byte, decoded any) {
	t.Helper()
	document, err := json.Marshal(value)
	require.NoError(t, err)
	decoded, err = jsonschema.UnmarshalJSON(bytes.NewReader(document))
	require.NoError(t, err)
	return document, decoded
}

func TestReferenceFollowsTheSchema(t *testing.T) {
	t.Parallel()
	first, _, _ := strings.Cut(config.Reference(), "\n")
	made := struct {
		ID string `json:"$id"` //nolint:tagliatelle // JSON Schema's name
	}{}
	require.NoError(t, json.Unmarshal(config.Schema(), &made))
	assert.Equal(t, "# yaml-language-server: $schema="+made.ID, first)

	var document any
	require.NoError(t, yaml.Unmarshal([]byte(config.Reference()), &document))
	_, decoded := asJSON(t, document)
	require.NoError(t, schema(t).Validate(decoded))
}

// wrongByItself is what the reader says of a key, a word or a value that is wrong whatever the rest of
// the document says.
var wrongByItself = regexp.MustCompile(`^(must be |unknown key |has no value|is a number: put|is true or false: put|is an empty text|is empty: give|` +
	`is -?\d+: use |has no unit|.* is not known|.* is not a duration|.* has no unit|name .*: use letters|does nothing for a broker of type \w+: remove it$)`)

// documents are the smallest ones that load, with the section whose keys are tried.
func documents() map[string]func() (document, section map[string]any) {
	type object = map[string]any
	base := func() object {
		return object{
			"outbox":  object{"external_brokers": []any{}},
			"brokers": object{"default": object{"type": "memory"}},
		}
	}
	made := map[string]func() (object, object){}
	for section := range contract {
		made[section] = func() (object, object) {
			document := base()
			at := document
			for i, name := range strings.Split(section, ".") {
				if name == "" {
					continue
				}
				below, ok := at[name].(object)
				if !ok {
					below = object{}
					at[name] = below
				}
				at = below
				switch {
				case i > 0:
				case name == "brokers":
					at["partner"] = object{"type": "memory"}
					document["outbox"].(object)["external_brokers"] = []any{"partner"}
					at = at["partner"].(object)
				case name == "consumers":
					at["billing"] = object{"driver": "sqlite", "dsn": "y.db"}
					at = at["billing"].(object)
				case name == "databases":
					at["main"] = object{"driver": "sqlite", "dsn": "x.db"}
					at = at["main"].(object)
				}
			}
			return document, at
		}
	}
	required := map[string]object{
		"redis": {"url": "redis://a"}, "pubsub": {"project": "p"}, "rabbitmq": {"url": "amqp://a"}, "nats": {"url": "nats://a"},
		"kafka": {"bootstrap_servers": "a:1"}, "webhook": {"url": "https://a.example", "secrets": []any{shopSecret}}, "memory": {},
	}
	for kind, sections := range byType {
		for section := range sections {
			made[kind+"/"+section] = func() (object, object) {
				document, broker := made["brokers"]()
				maps.Copy(broker, required[kind])
				broker["type"] = kind
				if section == "" {
					return document, broker
				}
				below := object{}
				broker[section] = below
				return document, below
			}
		}
	}
	return made
}

// keysOf are the keys that a section of documents has, and some that it has not.
func keysOf(section string) []string {
	kind, below, typed := strings.Cut(section, "/")
	keys := contract[section]
	if typed {
		keys = byType[kind][below]
	}
	return append(slices.Clone(keys), "zzzzzz", "typ", "project", "sasl", "unroutable") // the latter are those of other types
}

// In every section each key has values of every kind, right ones and wrong ones: the schema refuses
// nothing that the reader accepts, and all that the reader refuses for itself.
func TestSchemaRefusesWhatTheReaderRefuses(t *testing.T) {
	t.Parallel()
	compiled := schema(t)
	values := []any{
		nil, true, 0, 1, -1, 1.5, 99_999_999_999, "", "x", "1", "true", "0s", "1d12h", "1.5d", "-3s", "json", "default", "${NUMBER}", "${WORD}",
		[]any{},
		[]any{"x"},
		[]any{1},
		[]any{nil},
		map[string]any{},
		map[string]any{"zzzzzz": 1},
		map[string]any{"a b": "0123456789abcdef"},
	}
	variables := config.WithEnv(env("NUMBER", "7", "WORD", "json"))
	read := func(document []byte) []config.Problem {
		_, err := config.Parse(document, "f", variables, config.WithBrokerTypes(clients.Types()...))
		var wrong *config.Error
		if errors.As(err, &wrong) {
			return wrong.Problems
		}
		require.NoError(t, err)
		return nil
	}
	var refused, accepted atomic.Int64
	t.Cleanup(func() {
		t.Logf("%d documents that the reader accepts, and %d that it refuses for one value", accepted.Load(), refused.Load())
		assert.Greater(t, accepted.Load(), int64(300))
		assert.Greater(t, refused.Load(), int64(4000))
	})
	for section, made := range documents() {
		t.Run(section, func(t *testing.T) {
			t.Parallel()
			whole, _ := made()
			document, decoded := asJSON(t, whole)
			if _, below, _ := strings.Cut(section, "/"); below == "" { // some sections need keys, here or beside them
				require.Empty(t, read(document))
			}
			require.NoError(t, compiled.Validate(decoded))

			for _, key := range keysOf(section) {
				for _, value := range values {
					whole, in := made()
					in[key] = value
					document, decoded := asJSON(t, whole)
					problems, flaw := read(document), compiled.Validate(decoded)
					if len(problems) == 0 {
						accepted.Add(1)
						assert.NoError(t, flaw, "the schema refuses what the reader accepts: %s", document)
					}
					if text, _ := value.(string); strings.Contains(text, "${") {
						continue // what it stands for only the reader knows
					}
					if slices.ContainsFunc(problems, func(p config.Problem) bool { return wrongByItself.MatchString(p.Message) }) {
						refused.Add(1)
						assert.Error(t, flaw, "the reader refuses, the schema does not: %s\n%v", document, problems)
					}
				}
			}
		})
	}
}

// What an editor cannot know is left to the reader, which says it.
func TestSchemaOfATypeThatIsNotLinked(t *testing.T) {
	t.Parallel()
	_, own := asJSON(t, map[string]any{"brokers": map[string]any{"default": map[string]any{"type": "sqs", "queue": map[string]any{"region": 1}, "workers": 2}}})
	require.NoError(t, schema(t).Validate(own), "its settings are its adapter's")
	_, wrong := asJSON(t, map[string]any{"brokers": map[string]any{"default": map[string]any{"type": "sqs", "workers": "two"}}})
	require.Error(t, schema(t).Validate(wrong), "those of all brokers are known")

	none := config.WithBrokerTypes()
	require.NoError(t, schema(t, none).Validate(own), "so it is where a program links no type at all")
	require.Error(t, schema(t, none).Validate(wrong))
}

// A program's own types have sections like those that are built in, whatever they are called.
func TestSchemaOfOwnTypes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sqs", "broker", "variable", "duration", "other"} {
		kind := fanout.BrokerTypes()[0]
		kind.Name = name
		compiled := schema(t, config.WithBrokerTypes(kind))
		_, right := asJSON(t, map[string]any{"brokers": map[string]any{"default": map[string]any{"type": name, "url": "redis://a", "workers": 2, "ttl": "1h", "max_age": "${AGE}"}}})
		require.NoError(t, compiled.Validate(right), name)
		_, wrong := asJSON(t, map[string]any{"brokers": map[string]any{"default": map[string]any{"type": name, "uri": "redis://a"}}})
		require.ErrorContains(t, compiled.Validate(wrong), "uri", name)
	}
}
