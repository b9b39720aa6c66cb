package core

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// What an operator acts on, in a few words.
func failed(id int64, key string) Operand {
	return Operand{Ref: driver.Ref{ID: id}, Broker: "b", Key: key, Status: outbox.StatusFailed, Waits: true}
}

func entry(id int64, key string) Block {
	return Block{Ref: driver.Ref{ID: id}, Broker: "b", Key: key}
}

func changed[T any](v T, change func(*T)) T {
	change(&v)
	return v
}

// moved puts a block in the place of the first row.
func moved(b Block) Move { return Move{b, driver.Ref{ID: 1}} }

func TestOperateCases(t *testing.T) {
	t.Parallel()
	operator := func(b *Block) { b.Operator = true }
	back := func(b *Block) { b.Back = true }
	elsewhere := func(b *Block) { b.Shard = 1 }
	for _, c := range []struct {
		name   string
		act    Act
		rows   []Operand
		blocks []Block
		want   Repair
	}{
		{
			"the block of a key comes back, and goes when its row is done", Requeue,
			[]Operand{failed(1, "k")},
			[]Block{entry(1, "k")},
			Repair{Moves: []Move{moved(entry(1, "k"))}, Behind: []bool{false}},
		},
		{
			"what stands behind the block stays deferred", Requeue,
			[]Operand{failed(2, "k")},
			[]Block{entry(1, "k")},
			Repair{Behind: []bool{true}},
		},
		{
			"the first that comes back is the block from then on, and holds the rest", Replay,
			[]Operand{published(1), published(2)},
			[]Block{entry(3, "k")},
			Repair{Moves: []Move{moved(entry(3, "k"))}, Behind: []bool{false, true}},
		},
		{
			"a key that waits for an operator stays as it is when another row comes back", Replay,
			[]Operand{published(1), published(3)},
			[]Block{changed(entry(2, "k"), operator)},
			Repair{Behind: []bool{false, true}},
		},
		{
			"it goes on with the row that it waits for", Requeue,
			[]Operand{failed(1, "k"), failed(2, "k")},
			[]Block{changed(entry(2, "k"), operator)},
			Repair{Moves: []Move{moved(changed(entry(2, "k"), operator))}, Behind: []bool{false, true}},
		},
		{
			"a block of another shard, key or broker is no business of a row", Requeue,
			[]Operand{failed(2, "k")},
			[]Block{changed(entry(1, "k"), elsewhere), entry(1, "l"), changed(entry(1, "k"), func(b *Block) { b.Broker = "c" })},
			Repair{Behind: []bool{false}},
		},
		{
			"a row that is the block of a shard that it has left lets that one follow when it is done", Requeue,
			[]Operand{failed(1, "k")},
			[]Block{changed(entry(1, "k"), elsewhere)},
			Repair{Moves: []Move{moved(changed(entry(1, "k"), elsewhere))}, Behind: []bool{false}},
		},
		{
			"a row has one entry in a shard, also where its key was changed by hand", Requeue,
			[]Operand{failed(1, "k")},
			[]Block{entry(1, "former"), entry(2, "k")},
			Repair{Moves: []Move{moved(entry(1, "former"))}, Behind: []bool{false}},
		},
		{
			"a key goes on with the row that it waits for, also where the row before it is still the block of another key", Requeue,
			[]Operand{failed(1, "k"), failed(2, "k")},
			[]Block{entry(1, "former"), changed(entry(2, "k"), operator)},
			Repair{Moves: []Move{moved(entry(1, "former")), {changed(entry(2, "k"), operator), driver.Ref{ID: 2}}}, Behind: []bool{false, false}},
		},
		{
			"an entry of a row that was given another broker is its own", Abandon,
			[]Operand{failed(1, "k"), failed(2, "")},
			[]Block{changed(entry(1, "k"), func(b *Block) { b.Broker = "former" }), changed(entry(2, ""), func(b *Block) { b.Broker = "former" })},
			Repair{
				Forget: []Block{changed(entry(2, ""), func(b *Block) { b.Broker = "former" })},
				Moves:  []Move{moved(changed(entry(1, "k"), func(b *Block) { b.Broker = "former" }))},
			},
		},
		{
			"what waits alone does so no more", Requeue,
			[]Operand{failed(1, ""), failed(2, "k")},
			[]Block{entry(1, ""), entry(2, ""), entry(3, "")},
			Repair{Forget: []Block{entry(1, ""), entry(2, "")}, Behind: []bool{false, false}},
		},
		{
			"a block that is back already is not written again", Requeue,
			[]Operand{failed(1, "k")},
			[]Block{changed(entry(1, "k"), back)},
			Repair{Behind: []bool{false}},
		},
		{
			"the key of an abandoned row goes on, wherever it is the block", Abandon,
			[]Operand{failed(1, "k"), failed(3, "")},
			[]Block{entry(1, "k"), changed(entry(1, "k"), elsewhere), entry(2, "l"), entry(3, "")},
			Repair{Forget: []Block{entry(3, "")}, Moves: []Move{moved(entry(1, "k")), moved(changed(entry(1, "k"), elsewhere))}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.want.Rows = c.rows
			assert.Equal(t, c.want, Operate(c.act, c.rows, c.blocks))
		})
	}
}

func published(id int64) Operand {
	return Operand{Ref: driver.Ref{ID: id}, Broker: "b", Key: "k", Status: outbox.StatusPublished}
}

// Which acts are for which rows.
func TestActs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status                   outbox.Status
		waits                    bool
		requeue, replay, abandon bool
	}{
		{outbox.StatusPending, false, false, false, true},
		{outbox.StatusPending, true, true, false, true},
		{outbox.StatusProcessing, false, true, false, true},
		{outbox.StatusProcessing, true, false, false, false},
		{outbox.StatusFailed, false, true, false, true},
		{outbox.StatusFailed, true, true, false, true},
		{outbox.StatusPublished, false, false, true, false},
		{outbox.StatusAbandoned, false, true, false, false},
	} {
		row := &Operand{Status: c.status, Waits: c.waits}
		assert.Equal(t, []bool{c.requeue, c.replay, c.abandon}, []bool{Requeue.For(row), Replay.For(row), Abandon.For(row)}, "%s, waits: %t", c.status, c.waits)
	}
}

// Where ids repeat, rows are distinguished by their messages.
func TestOperateRowsOfOneID(t *testing.T) {
	t.Parallel()
	one, other := uuid.UUID{1}, uuid.UUID{2}
	row := failed(7, "k")
	row.MessageID = one
	mine, theirs := entry(7, "k"), entry(7, "l")
	mine.MessageID, theirs.MessageID = one, other
	mine.ID = 3 // as it was before the rows were copied
	r := Operate(Abandon, []Operand{row}, []Block{mine, theirs})
	assert.Equal(t, []Move{{mine, mine.Ref}}, r.Moves)
}

func TestUnblock(t *testing.T) {
	t.Parallel()
	waits := Block{Ref: driver.Ref{ID: 1}, Key: "k", Operator: true}
	assert.Equal(t, []Move{{waits, waits.Ref}}, Unblock([]Block{{Ref: driver.Ref{ID: 2}, Key: "k", Shard: 4}, waits, {Ref: driver.Ref{ID: 3}, Operator: true}}))
	assert.Empty(t, Unblock(nil))
}

// Whatever stands in the tables: blocks are of the rows' own places, each is written once, none is
// lost, and a row that stays deferred has a block before it.
func TestOperate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, checkOperate)
}

func FuzzOperate(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkOperate)) }

func checkOperate(t *rapid.T) {
	text := rapid.SampledFrom([]string{"", "k", "l"})
	broker := rapid.SampledFrom([]string{"b", "c"})
	rows := make([]Operand, rapid.IntRange(0, 6).Draw(t, "rows"))
	for i := range rows {
		rows[i] = Operand{
			Ref: driver.Ref{ID: int64(i + 1)}, Broker: broker.Draw(t, "broker"), Key: text.Draw(t, "key"), Shard: rapid.IntRange(0, 1).Draw(t, "shard"),
			Status: rapid.SampledFrom(outbox.Statuses()).Draw(t, "status"), Waits: rapid.Bool().Draw(t, "waits"),
		}
	}
	var blocks []Block
	keys, entries := map[place]bool{}, map[Block]bool{}
	for range rapid.IntRange(0, 8).Draw(t, "blocks") { // as far as the table's own constraints allow
		b := Block{
			Ref: driver.Ref{ID: int64(rapid.IntRange(1, 7).Draw(t, "id"))}, Broker: broker.Draw(t, "broker"), Key: text.Draw(t, "key"), Shard: rapid.IntRange(0, 1).Draw(t, "shard"),
			Operator: rapid.Bool().Draw(t, "operator"),
		}
		at, id := place{b.Broker, b.Key, b.Shard}, Block{Ref: b.Ref, Shard: b.Shard}
		if b.Key != "" && keys[at] || entries[id] {
			continue
		}
		keys[at], entries[id] = true, true
		blocks = append(blocks, b)
	}
	act := Act(rapid.IntRange(0, 2).Draw(t, "act"))
	r := Operate(act, rows, blocks)

	after := map[Block]bool{} // entries by row and shard
	places := map[place]int64{}
	gone := map[Block]bool{}
	for _, b := range r.Forget {
		require.Empty(t, b.Key)
		gone[b] = true
	}
	to := map[Block]driver.Ref{}
	for _, m := range r.Moves {
		require.NotContains(t, to, m.Block, "written twice")
		to[m.Block] = m.To
	}
	for _, b := range blocks {
		if gone[b] {
			continue
		}
		ref := b.Ref
		if next, ok := to[b]; ok {
			require.LessOrEqual(t, next.ID, b.ID, "a block moves forward only")
			ref = next
		}
		id := Block{Ref: ref, Shard: b.Shard}
		require.NotContains(t, after, id, "two entries of a row in a shard: %v", blocks)
		after[id] = true
		if b.Key != "" {
			places[place{b.Broker, b.Key, b.Shard}] = ref.ID
		}
	}
	for i, row := range r.Rows {
		require.True(t, act.For(&row))
		if act == Abandon {
			require.Empty(t, r.Behind)
			continue
		}
		block, ok := places[place{row.Broker, row.Key, row.Shard}]
		require.Equal(t, ok && row.Key != "" && block < row.ID, r.Behind[i])
	}
}
