package deploy_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// follows compiles a schema of testdata and returns what checks a document in YAML against it.
func follows(t *testing.T, file string) func(document []byte) error {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource(file, schema))
	compiled, err := compiler.Compile(file)
	require.NoError(t, err)
	return func(document []byte) error {
		var read any
		if err := yaml.Unmarshal(document, &read); err != nil {
			return err
		}
		text, err := json.Marshal(read)
		require.NoError(t, err)
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		require.NoError(t, err)
		return compiled.Validate(value)
	}
}
