package testservers

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	// All combinations: what the user said comes first, a change to the machine last.
	for f, want := range map[facts]source{
		{}:                           fromPackages,
		{binary: true}:               fromBinaries,
		{engine: true}:               fromEngine,
		{engine: true, binary: true}: fromEngine,
		{given: true}:                fromEnvironment,
		{given: true, binary: true}:  fromEnvironment,
		{given: true, engine: true}:  fromEnvironment,
		{given: true, engine: true, binary: true}: fromEnvironment,
	} {
		require.Equal(t, want, choose(f), "%+v", f)
	}
}
