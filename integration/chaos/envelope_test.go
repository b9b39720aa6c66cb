//go:build unix

package chaos

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

// The list of what may leave lets both external forms pass, and finds what the internal form has
// besides.
func TestLeaks(t *testing.T) {
	t.Parallel()
	event := envelope.NewEvent(scenario.Moved{Tx: "a", Account: "account-1"})
	message, err := scenario.Catalog().Seal(event, envelope.Source{Aggregate: "Account", ID: "account-1"}, envelope.Context{})
	require.NoError(t, err)
	native, err := message.MarshalExternal(envelope.Include{})
	require.NoError(t, err)
	cloud, err := message.MarshalCloudEvent(envelope.CloudEventOptions{})
	require.NoError(t, err)
	internal, err := message.MarshalInternal()
	require.NoError(t, err)

	fields := map[string]string{"id": "1", "type": "Chaos.Moved.v1"}
	assert.Empty(t, leaks(externalForm, fields, native), string(native))
	assert.Empty(t, leaks(cloudEvents, fields, cloud), string(cloud))
	found := leaks(externalForm, fields, internal)
	for _, secret := range []string{"metadata.domain.priority", "metadata.envelope.checksum"} {
		assert.Contains(t, found, secret, string(internal))
	}
	assert.Contains(t, leaks(cloudEvents, fields, internal), "metadata.headers.id")
	assert.Equal(t, []string{"field actor"}, leaks(externalForm, map[string]string{"actor": "ada"}, native))
	assert.Equal(t, []string{"an internal event"}, leaks(externalForm, map[string]string{"type": scenario.AuditedType}, native))
	assert.NotEmpty(t, leaks(externalForm, fields, []byte("{")))
}
