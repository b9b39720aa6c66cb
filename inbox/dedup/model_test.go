package dedup

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxRedraws bounds what is explored: two copies can replace each other's tokens for as long as
// they want to.
const maxRedraws = 2

// explorer goes through all situations that can be reached, each once. As coroutines cannot be
// copied, it goes back by beginning anew.
type explorer struct {
	begin      func() *system
	sequential bool
	visited    map[[sha256.Size]byte]bool
	ends       int
	cut        int // ways that were not gone to their end
	violation  string
	path       []choice
}

// explore reports what went wrong first, and on which way; empty for nothing.
func (x *explorer) explore() string {
	x.visited = map[[sha256.Size]byte]bool{}
	x.visit(nil)
	return x.violation
}

func (x *explorer) visit(path []choice) {
	s := x.begin()
	for _, c := range path {
		s.do(c)
	}
	for {
		mark := sha256.Sum256([]byte(s.fingerprint()))
		if x.visited[mark] {
			s.close()
			return
		}
		x.visited[mark] = true
		if s.redraws() > maxRedraws {
			x.cut++
			s.close()
			return
		}
		choices := s.choices()
		if len(choices) == 0 {
			x.ends++
			if bad := s.end(x.sequential); len(bad) > 0 {
				x.violation, x.path = fmt.Sprint(bad), path
			}
			s.close()
			return
		}
		for _, other := range choices[1:] {
			x.visit(append(slices.Clone(path), other))
			if x.violation != "" {
				s.close()
				return
			}
		}
		s.do(choices[0]) // the first way goes on in this very system
		path = append(slices.Clone(path), choices[0])
	}
}

// Every interleaving of copies of one message, with crashes between any two operations and with
// saves whose answer gets lost.
func TestEveryInterleaving(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                            string
		byToken                         bool
		messages, copies, crashes, lies int
		long                            bool
	}{
		{"one copy, three crashes", false, 1, 1, 3, 1, false},
		{"one copy, three crashes, tokens", true, 1, 1, 3, 1, false},
		{"two copies, two crashes", false, 1, 2, 2, 0, false},
		{"two copies, one crash, one answer lost, tokens", true, 1, 2, 1, 1, false},
		{"two copies, two crashes, tokens", true, 1, 2, 2, 0, true},
		{"three copies", false, 1, 3, 0, 0, false},
		{"three copies, one crash", false, 1, 3, 1, 0, false},
		{"three copies, tokens", true, 1, 3, 0, 0, true},
		{"two messages, two crashes", false, 2, 1, 2, 1, true},
		{"two messages, one crash, tokens", true, 2, 1, 1, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.long && (testing.Short() || raceDetector) {
				t.Skip("takes long with -race: go test ./inbox/dedup runs it")
			}
			x := &explorer{sequential: c.copies == 1, begin: func() *system {
				return begin(c.byToken, c.messages, c.copies, c.crashes, c.lies)
			}}
			require.Empty(t, x.explore(), "%v", x.path)
			t.Logf("%d situations, %d ends, %d ways cut", len(x.visited), x.ends, x.cut)
			require.NotZero(t, x.ends)
		})
	}
}
