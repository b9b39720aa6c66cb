package storetest

import (
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
)

// compare looks at the whole table from outside.
func (run *modelRun) compare(t modelT) {
	require.Equal(t, run.wantRows(), run.lines("SELECT id, status, attempts, crashes, coalesce("+run.sql.text("lock_token")+", '')"+
		", CASE WHEN finished_at IS NULL AND ("+run.sql.fromNow("locked_until")+" > 0 OR "+run.sql.fromNow("available_at")+" > 0) THEN 1 ELSE 0 END"+
		", CASE WHEN deferred <> "+run.sql.no+" THEN 1 ELSE 0 END FROM {t} ORDER BY id", 7))
	require.Equal(t, run.wantBlocks(), run.lines("SELECT block_id, shard, coalesce(ordering_key, '')"+
		", CASE WHEN wake_at IS NULL THEN 'back' WHEN reason = 'operator' THEN 'operator' WHEN "+run.sql.fromNow("wake_at")+" > 0 THEN 'rests' ELSE 'due' END"+
		" FROM {t}_key_blocks ORDER BY block_id", 4))
	var shards []int
	for _, class := range run.state.Ready() {
		shards = append(shards, run.shardOfClass(class))
	}
	require.ElementsMatch(t, shards, run.ready(), "ready in\n%s", &run.state)
	run.compareState(t)
}

// compareState looks at the state of one row, another one each time. The model does not know whether a
// row waits for its schedule or for its next attempt.
func (run *modelRun) compareState(t modelT) {
	if len(run.state.Rows) == 0 {
		return
	}
	run.compared++
	r := &run.state.Rows[run.compared%len(run.state.Rows)]
	records, err := run.Store.Message(run.Context(), run.messageID(int64(r.ID)))
	require.NoError(t, err)
	require.Len(t, records, 1)
	want := run.protocol.StateOf(&run.state.Table, r)
	if want == outbox.StateScheduled && records[0].State == outbox.StateBackoff {
		return
	}
	require.Equal(t, want, records[0].State, "row %d in\n%s", r.ID, &run.state)
}

func (run *modelRun) wantRows() (lines []string) {
	for i := range run.state.Rows {
		r := &run.state.Rows[i]
		token := ""
		if r.Token != 0 {
			token = run.leases[r.Token].Token.String()
		}
		lines = append(lines, fmt.Sprintf("%d %s %d %d %s %d %d", r.ID, r.Status, r.Attempts, r.Crashes, token, digit(r.Waits), digit(r.Deferred)))
	}
	return lines
}

func (run *modelRun) wantBlocks() (lines []string) {
	for _, g := range run.state.Blocks {
		lines = append(lines, fmt.Sprintf("%d %d %s %s", g.Row, run.shardOfClass(g.Shard), run.keyName(g.Key), g.Wake))
	}
	return lines
}

func digit(flag bool) int {
	if flag {
		return 1
	}
	return 0
}

// lines reads rows of a number of columns, each as one line of text.
func (t *table) lines(text string, columns int) (lines []string) {
	t.Helper()
	rows, err := t.DB.QueryContext(t.Context(), t.read(text))
	require.NoError(t, err, text)
	defer rows.Close()
	values, targets := make([]string, columns), make([]any, columns)
	for i := range values {
		targets[i] = &values[i]
	}
	for rows.Next() {
		require.NoError(t, rows.Scan(targets...))
		lines = append(lines, strings.Join(values, " "))
	}
	require.NoError(t, rows.Err())
	return lines
}
