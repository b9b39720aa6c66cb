package bed

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

// Fill says which rows to write.
type Fill struct {
	// Rows to write, all brokers together.
	Rows int64
	// Brokers take the rows in turn; Keys is how many ordering keys each of them has, Prefix how they begin.
	Brokers []string
	Keys    []int64
	Prefix  string
	// Hot is how many rows of a hundred have one key more, beside those of Keys.
	Hot int
	// Stream of each row. Default: ordering::order.
	Stream string
	// Payload of each row, in bytes.
	Payload int
	// Published rows are finished, the others pending.
	Published bool
	// Seed moves the keys.
	Seed uint64
}

// fillChunk is how many rows one transaction writes.
const fillChunk = 250_000

// Fill writes rows on the server's side, and says on log how far it is where that takes long.
func (t *Table) Fill(ctx context.Context, log io.Writer, f Fill) error {
	text := readSQL("fill")
	stream := cmp.Or(f.Stream, "ordering::order")
	began, said := time.Now(), time.Now()
	for done := int64(0); done < f.Rows; {
		n := min(f.Rows-done, fillChunk)
		if err := t.Exec(ctx, text, t.nextID, t.nextID+n-1, f.Brokers, f.Keys, f.Prefix, f.Payload, f.Published, int64(f.Seed%(1<<31)), f.Hot, stream); err != nil {
			return fmt.Errorf("bed: fill %s: %w", t.name, err)
		}
		t.nextID += n
		done += n
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			fmt.Fprintf(log, "%s: %d of %d rows written in %s\n", t.name, done, f.Rows, time.Since(began).Round(time.Second))
		}
	}
	return nil
}

// Vacuum leaves the table as autovacuum does when it has had its time: statistics are fresh and nothing is dead.
func (t *Table) Vacuum(ctx context.Context) error { return t.Exec(ctx, "VACUUM (ANALYZE) {{table}}") }

// Empty removes all rows at once.
func (t *Table) Empty(ctx context.Context) error { return t.Exec(ctx, "TRUNCATE {{table}}") }

// Wake moves the time of a block, and of the row that it is, to now.
func (t *Table) Wake(ctx context.Context, broker string, id int64) error {
	if err := t.Exec(ctx, "UPDATE {{table}} SET locked_until = now() WHERE target_broker = $1 AND id = $2", broker, id); err != nil {
		return err
	}
	return t.Exec(ctx, "UPDATE {{table}}_key_blocks SET wake_at = now() WHERE target_broker = $1 AND block_id = $2", broker, id)
}

// Drop removes the table with all that belongs to it, and closes its store's connections.
func (t *Table) Drop(ctx context.Context) error {
	t.pool.Close()
	return t.Exec(ctx, "DROP TABLE {{table}}, {{table}}_key_blocks, {{table}}_shards, {{table}}_instances, {{table}}_audit")
}

// Warm reads the first open rows of a broker, so many of each shard.
func (t *Table) Warm(ctx context.Context, broker string, rows int) error {
	_, err := Get[int64](ctx, t, readSQL("warm"), broker, rows)
	return err
}

// Counters of the server for one table, since it was made.
type Counters struct {
	// Entries of the table's indexes that scans have read, dead ones that were passed over not among them.
	Entries int64
	// Pages of the table and of its indexes that were looked at, from memory or from the disk, also by vacuum.
	Pages int64
	// WAL is how much was written to the log, in bytes, by everybody on the server.
	WAL int64
}

// Counters reads the counters, once the store's connection has handed in what it has counted. It needs PostgreSQL 15 and a
// table with one connection.
func (t *Table) Counters(ctx context.Context) (c Counters, err error) {
	if _, err = t.pool.Exec(ctx, "SELECT pg_stat_force_next_flush()"); err != nil {
		return c, fmt.Errorf("bed: read the counters: %w", err)
	}
	err = t.admin.QueryRow(ctx, readSQL("counters"), t.name).Scan(&c.Entries, &c.Pages, &c.WAL)
	return c, err
}

// Minus is what has happened between two readings.
func (c Counters) Minus(earlier Counters) Counters {
	return Counters{Entries: c.Entries - earlier.Entries, Pages: c.Pages - earlier.Pages, WAL: c.WAL - earlier.WAL}
}

// Waiting counts the rows that are out of the claim's way.
func (t *Table) Waiting(ctx context.Context) (int64, error) {
	return Get[int64](ctx, t, "SELECT count(*) FROM {{table}} WHERE deferred AND finished_at IS NULL")
}

// Count counts the rows of one status.
func (t *Table) Count(ctx context.Context, status outbox.Status) (int64, error) {
	return Get[int64](ctx, t, "SELECT count(*) FROM {{table}} WHERE status = $1", string(status))
}

// Dead is how many dead rows the server knows of in the table.
func (t *Table) Dead(ctx context.Context) (int64, error) {
	return Get[int64](ctx, t, "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = '{{table}}'::regclass")
}
