package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/outbox"
)

func on(kind string, agg int) op { return op{Kind: kind, Agg: agg} }

func savepointOp(kind, name string) op { return op{Kind: kind, Name: name} }

func raises(agg int) op { return op{Kind: "raise", Event: "ticked", Agg: agg} }

func block(kind string, end result, body ...op) op { return op{Kind: kind, End: end, Body: body} }

// Programs that were wrong once, or nearly, and the outbox after them. Each runs against the model, too.
func TestPrograms(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		program []op
		want    []string
		only    outbox.Dialect
	}{
		"raised after the delete of a value whose events are all written": {
			program: []op{raises(0), on("save", 0), block("transaction", done, on("delete_value", 0), raises(0))},
			want:    []string{"1 default", "2 default"},
		},
		"a batch in a transaction of the caller's own is written in raise order": {
			program: []op{raises(0), raises(1), block("own", done, on("creates", 1))},
			want:    []string{"1 default", "2 default"},
		},
		"a miss counts again when a savepoint takes back the write after it": {
			program: []op{raises(0), block("transaction", done, on("miss", 0), savepointOp("SAVEPOINT", "a"), on("create", 0), savepointOp("ROLLBACK_TO", "a"))},
		},
		"a miss counts when a savepoint takes back another one": {
			program: []op{raises(0), block("transaction", done, on("miss", 0), savepointOp("SAVEPOINT", "b"), on("miss", 0), savepointOp("ROLLBACK_TO", "b"))},
		},
		"a name means the savepoint before it again when the last one is released": {
			program: []op{
				raises(0),
				block("transaction", done, savepointOp("SAVEPOINT", "a"), on("save", 0), savepointOp("SAVEPOINT", "a"), savepointOp("RELEASE", "a"), savepointOp("ROLLBACK_TO", "a")),
			},
			only: outbox.SQLite,
		},
		"events leave in the order in which they were raised": {
			program: []op{raises(0), raises(1), raises(0), block("transaction", done, on("save", 1), on("save", 0))},
			want:    []string{"1 default", "2 default", "3 default"},
		},
		"the last savepoint of a name counts": {
			program: []op{
				raises(0), raises(1),
				block("transaction", done, savepointOp("SAVEPOINT", "a"), on("save", 0), savepointOp("SAVEPOINT", "a"), on("save", 1), savepointOp("ROLLBACK_TO", "a")),
			},
			want: []string{"1 default"},
		},
		"a function of a part that is undone does not run": {
			program: []op{block("transaction", done, on("after", 0), savepointOp("SAVEPOINT", "a"), on("after", 0), savepointOp("ROLLBACK_TO", "a"))},
		},
		"an event between a write and a miss stays": {
			program: []op{block("transaction", done, on("save", 0), raises(0), on("miss", 0))},
		},
		"nothing runs after a rollback": {
			program: []op{block("transaction", failed, on("after", 0)), block("do", panicked, on("after", 0)), block("begin", failed, on("after", 0))},
		},
		"a savepoint that is set after a batch was written in part does not fix that": {
			program: []op{
				on("create", 0),
				block("transaction", done, raises(0), on("ignores", 0), savepointOp("SAVEPOINT", "a"), savepointOp("ROLLBACK_TO", "a")),
			},
		},
		"events of an aggregate that was loaded again are left behind once": {
			program: []op{on("create", 0), block("transaction", done, on("load", 0), raises(0), on("load", 0), raises(0))},
		},
		"a doubt stays when a statement changes no row": {
			program: []op{on("create", 0), block("transaction", done, on("ignores", 0), raises(0), on("ignores", 0))},
		},
		"a doubt ends with a write": {
			program: []op{on("create", 0), block("transaction", done, on("ignores", 0), raises(0), on("save", 0))},
			want:    []string{"1 default"},
		},
		"a commit that fails keeps the events for the next one": {
			program: []op{raises(0), block("transaction", done, on("save", 0), op{Kind: "publish", Event: "ticked"}, on("doubt", 0)), on("save", 0)},
			want:    []string{"1 default"},
			only:    outbox.Postgres,
		},
		"a statement that fails takes nothing along": {
			program: []op{on("create", 0), raises(0), block("transaction", done, on("create", 0), on("save", 1))},
		},
		"an aborted transaction recovers at a savepoint": {
			program: []op{raises(0), block("begin", done, on("save", 0), savepointOp("savepoint", "a"), on("broken", 0), on("track", 1), savepointOp("rollback_to", "a"), raises(0))},
			want:    []string{"1 default", "2 default"},
		},
		"a savepoint that an aborted transaction refuses is none": {
			program: []op{
				raises(0),
				block("begin", done, savepointOp("savepoint", "a"), on("save", 0), on("broken", 0), savepointOp("savepoint", "a"), savepointOp("rollback_to", "a"), on("save", 1)),
			},
			want: nil, // elsewhere the second savepoint is there, and holds what was saved before it
			only: outbox.Postgres,
		},
		"batches in an aborted transaction are not tried, so nobody knows what they hold": {
			program: []op{
				block("transaction", failed, raises(1), on("save", 1)),
				block("transaction", done, raises(1), on("broken", 0), on("batches", 1)),
				block("transaction", done, raises(1), on("save", 1)),
			},
			want: []string{"2 default", "3 as 1 default"},
			only: outbox.Postgres,
		},
		"an event of a savepoint that was rolled back goes with the next write": {
			program: []op{block("transaction", done, on("save", 0), block("transaction", failed, raises(0)), raises(0)), on("save", 0)},
			want:    []string{"2 default", "1 default"},
		},
	}
	for _, test := range cases {
		n := 0
		number(test.program, &n)
	}
	for name, at := range sites {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &site{t: t, strict: at.strict}
			at.start(t, s)
			for name, test := range cases {
				if test.only != "" && test.only != s.dialect {
					continue
				}
				t.Run(name, func(t *testing.T) {
					got := s.compare(t, test.program)
					if !s.strict {
						assert.Equal(t, test.want, got)
					}
				})
			}
		})
	}
}
