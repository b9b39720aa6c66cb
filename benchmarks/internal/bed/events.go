package bed

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

// Events says which events to write: each has a row for every broker, as a transaction writes them.
type Events struct {
	// Count of the events.
	Count int64
	// Brokers that get each of them. A broker's rows go to the stream of its name behind Stream.
	Brokers []string
	Stream  string
	// Keys is how many ordering keys there are.
	Keys int64
	// Payload of each row, in bytes, which no compression makes smaller.
	Payload int
	// Published is how long ago the last row was published; each 500 rows share a time, 10 ms behind those before them. Zero: the rows
	// are pending.
	Published time.Duration
	// Seed of the payload and the keys.
	Seed uint64
}

// FillEvents writes events on the server's side, and says on log how far it is where that takes long.
func (t *Table) FillEvents(ctx context.Context, log io.Writer, e Events) error {
	const bytesOfChunk = 64 << 20
	text, payload := readSQL("events"), noise(e.Payload, e.Seed)
	chunk := min(fillChunk, max(1, bytesOfChunk/int64(len(payload)+1)))
	said, end := time.Now(), t.nextID+e.Count
	for t.nextID < end {
		last := min(end, t.nextID+chunk)
		err := t.Exec(ctx, text, t.nextID, last-1, e.Brokers, e.Keys, e.Stream, payload, int64(e.Seed%(1<<31)), end, e.Published.Microseconds())
		if err != nil {
			return fmt.Errorf("bed: fill %s: %w", t.name, err)
		}
		t.nextID = last
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			fmt.Fprintf(log, "%s: %d events to go\n", t.name, end-last)
		}
	}
	return nil
}

// noise is text in which hardly any three letters occur twice.
func noise(size int, seed uint64) []byte {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	random, text := rand.New(rand.NewPCG(seed, 0)), make([]byte, size)
	for i := range text {
		text[i] = letters[random.IntN(len(letters))]
	}
	return text
}

// Noise is the payload of the rows.
func (e Events) Noise() []byte { return noise(e.Payload, e.Seed) }

// Backdate makes rows that are written from now on look so much older.
func (t *Table) Backdate(ctx context.Context, by time.Duration) error {
	return t.Exec(ctx, fmt.Sprintf("ALTER TABLE {{table}} ALTER created_at SET DEFAULT clock_timestamp() - interval '%d microseconds'", by.Microseconds()))
}

// Size of a table, in bytes.
type Size struct {
	// Rows is the table itself; Toast what large values take that it has out of line, with their index.
	Rows, Toast int64
}

// Size reads how large the table is.
func (t *Table) Size(ctx context.Context) (s Size, err error) {
	err = t.admin.QueryRow(ctx, readSQL("size"), t.name).Scan(&s.Rows, &s.Toast)
	return s, err
}
