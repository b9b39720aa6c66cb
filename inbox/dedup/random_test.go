package dedup

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// Larger worlds than those that can be explored: several messages of one entity, each in several
// copies, with crashes and lost answers anywhere, an operator who resumes the entity, and a
// consumer downstream that comes when it likes. rapid chooses, and makes what fails small.
func TestRandomInterleavings(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		few := func(name string, from, to int) int { return rapid.IntRange(from, to).Draw(t, name) }
		s := begin(rapid.Bool().Draw(t, "tokens"), few("messages", 1, 4), few("copies", 1, 3), few("crashes", 0, 6), few("lies", 0, 4))
		defer s.close()
		s.eager = rapid.Bool().Draw(t, "eager")
		resumes := few("resumes", 0, 3)
		for range few("steps", 0, 300) {
			choices := s.choices()
			if resumes > 0 {
				choices = append(choices, choice{act: 'r'})
			}
			for n := range s.sent {
				choices = append(choices, choice{n, 'd'})
			}
			if len(choices) == 0 {
				break
			}
			switch c := rapid.SampledFrom(choices).Draw(t, "choice"); c.act {
			case 'r':
				resumes--
				s.deliver(nil)
			case 'd':
				s.consume(s.sent[c.actor])
			default:
				s.do(c)
			}
		}
		for choices := s.choices(); len(choices) > 0; choices = s.choices() { // whoever is left comes to an end, one after the other
			s.do(choice{choices[0].actor, 's'})
		}
		if bad := s.end(false); len(bad) > 0 {
			t.Fatal(fmt.Sprint(bad))
		}
	})
}
