package explore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

// TestExplore visits every state of every world. The numbers that it prints with -v stand in
// docs/protocol.md.
func TestExplore(t *testing.T) {
	t.Parallel()
	for i := range worlds {
		name := worlds[i].name
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if testenv.Turn(t, 2) != 0 {
				testenv.NeedSeconds(t)
			}
			x := &exploration{world: sized(t, name, sizeOf())}
			start := time.Now()
			if found := x.explore(); found != nil {
				t.Fatal(found)
			}
			t.Logf("%d states, %d transitions, %d actions deep, %s", len(x.origins), x.steps, x.depth, time.Since(start).Round(time.Millisecond))
		})
	}
}

// Two explorations of a world are the same: nothing in the model depends on chance.
func TestExploreIsDeterministic(t *testing.T) {
	t.Parallel()
	a, b := &exploration{world: sized(t, "blocks", quick)}, &exploration{world: sized(t, "blocks", quick)}
	require.Nil(t, a.explore())
	require.Nil(t, b.explore())
	require.Equal(t, a.origins, b.origins)
	require.Equal(t, a.steps, b.steps)
}
